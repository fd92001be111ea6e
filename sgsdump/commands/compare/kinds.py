"""What the paths given to ``compare`` are, where they are no dumps."""

from __future__ import annotations

from pathlib import Path

from sgsdump.errors import ConfigError, FormatError

ENDING = ".onnx"


def holds_ranges(path: Path) -> bool:
    """Whether a file or folder is ranges by its first bytes. Of a pickle, only what no dump's name ends in."""
    from sgsdump.sidecars import tensor_min_max

    head = b""
    if not path.is_dir():
        try:
            with open(path, "rb") as file:
                head = file.read(tensor_min_max.HEAD_BYTES)
        except OSError:
            return False
    return tensor_min_max.holds_ranges(path, head)


def are_models(sample: Path, benchmark: Path) -> bool:
    """Whether both are named as ONNX models are. Raises ConfigError where one alone is."""
    kinds = [path.suffix.lower() == ENDING and not path.is_dir() for path in (sample, benchmark)]
    if any(kinds) and not all(kinds):
        model, other = (sample, benchmark) if kinds[0] else (benchmark, sample)
        raise ConfigError(
            f"{model} is a model and {other} is not; dump the model first: sgsdump dump -m {model} -i INPUT"
        )
    return all(kinds)


def is_no_dump(path: Path) -> bool:
    """Return whether a path is a file of no known format."""
    from sgsdump.dumps.trees import format_of, tree_of

    if not path.is_file():
        return False
    try:
        format_of(tree_of(path))
    except FormatError:
        return True
    return False
