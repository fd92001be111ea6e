"""Where a dump lies: the format of what is at a path, and of a tree of runs the one that is chosen."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from sgsdump.dumps.format import HEAD_BYTES
from sgsdump.dumps.formats import FORMATS
from sgsdump.dumps.runs import Choice, Run, chosen, how_to_choose, joined, one_of, split_choice
from sgsdump.errors import ConfigError, FormatError, SgsdumpError
from sgsdump.files.bounded_read import open_file, reading
from sgsdump.plugins import SWITCH, are_left_out, leave_out

TOPOLOGY = "model/*/*.json"
_HOOKED = "msit_dump_*/control.json"
_MODELS = (".tflite", ".onnx", ".xml", ".prototxt", ".caffemodel")


def located(path: Path, choice: Choice) -> tuple[Any, Path]:
    """The format of the dump that is meant, and the file or folder to read. Raises FormatError and ConfigError."""
    tree, choice = _split(path, choice)
    format = format_of(tree)
    runs = _runs(tree, format, [])
    if choice and not runs:
        raise ConfigError(f"{tree} is one dump, not a tree of runs: there is no {choice} to choose in it")
    if not choice and len(runs) < 2:
        return next((member for member in FORMATS.own.values() if member.owns(tree)), format), tree
    return format, tree / one_of(tree, chosen(tree, runs, choice), choice).place


def list_runs(
    path: str | Path, step: int | None = None, rank: int | None = None, notes: list[str] | None = None
) -> list[Run]:
    """The runs of a tree, step by step, those that ``open_dump`` would choose from; none for a dump of another kind.

    notes  is given what was skipped, a line each. Raises as ``open_dump`` does, but for there being several.
    """
    tree, choice = _split(Path(path), Choice(step, rank))
    return chosen(tree, _runs(tree, format_of(tree), [] if notes is None else notes), choice)


def tree_of(path: Path) -> Path:
    """The file or folder that a path is of: without the choice of a run after it. Raises ConfigError."""
    return _split(path, Choice())[0]


def how_to_choose_of(path: Path, runs: Sequence[Run], step: int | None = None, rank: int | None = None) -> str:
    """The text that chooses one of several runs of the tree that a path names."""
    return how_to_choose(*_split(path, Choice(step, rank), enter=False), runs)


def _split(path: Path, choice: Choice, enter: bool = True) -> tuple[Path, Choice]:
    with reading(path):
        exists = path.exists()
    if not exists:
        path, suffix = split_choice(path)
        choice = joined(path, suffix, choice)
    return _entered(path) if enter else path, choice


def _entered(path: Path) -> Path:
    """The tree in the folder that was ``sgsdump exec``'s -o, where it is the only one; any other path as it is."""
    trees = list(islice(path.glob(_HOOKED), 2)) if path.is_dir() else []
    return trees[0].parent if len(trees) == 1 else path


def _runs(tree: Path, format: Any, notes: list[str]) -> Sequence[Run]:
    return format.runs(tree, notes) if format.runs is not None and tree.is_dir() else ()


def format_of(path: Path) -> Any:
    """The format that recognises what is at a path. Raises FormatError."""
    head = _head(path)
    for format in FORMATS.own.values():
        if format.recognises(path, head):
            return format
    for name, format in FORMATS.items():
        if name not in FORMATS.own and _recognised(name, format, path, head):
            return format
    if not head and path.is_file():
        raise FormatError(f"{path} is empty; was the run that wrote it cut off, or is dumpTensor off?")
    if any(path.glob(TOPOLOGY)):
        raise FormatError(
            f"{path} has no tensors, only the topology of a program (--type without tensor); sgsdump show --operators "
            f"{path} lists it"
        )
    several = sorted(path.glob(_HOOKED)) if path.is_dir() else []
    if several:
        raise FormatError(f"{path} holds {len(several)} dumps; name one of them, {several[-1].parent} is the last")
    if path.is_dir():
        marks = [format.looks_for for format in FORMATS.values() if format.looks_for]
        raise FormatError(f"{path} is a folder, not a dump (looked for: {', '.join(marks)})")
    if path.suffix.lower() in _MODELS or head[4:8] == b"TFL3":
        typed, made = shlex.quote(str(path)), shlex.quote(str(Path(path.name).with_suffix(".bin")))
        if path.suffix == ".sim":
            raise FormatError(
                f"{path} is a model, not a dump; dump it first: sgsdump simulate -m {typed} -t Float|Fixed -i INPUT "
                f"(see sgsdump simulate --help)"
            )
        raise FormatError(
            f"{path} is a model, not a dump; dump it first: sgsdump dump -m {typed} -i INPUT -o {made} (see sgsdump "
            f"dump --help)"
        )
    if path.suffix == ".raw":
        raise FormatError(f"{path} holds bare values, and their type is not in it; give it: --raw-dtype float32")
    bare = "; if it holds bare values, give their type: --raw-dtype float32" if path.suffix == ".bin" else ""
    left_out = f"; {SWITCH} leaves plug-ins out" if are_left_out() else ""
    raise FormatError(f"{path} is not a dump of a known format (known: {', '.join(FORMATS)}){bare}{left_out}")


def _recognised(name: str, format: Any, path: Path, head: bytes) -> bool:
    """Whether a plug-in's reader recognises a file; one that fails is left out."""
    try:
        return bool(format.recognises(path, head))
    except Exception as error:
        leave_out(f"plug-in's {name!r} of formats", error)
        return False


def _head(path: Path) -> bytes:
    if path.is_dir():
        return b""
    if not path.exists():
        raise FormatError(f"no such file: {path}")
    if not path.is_file():
        raise FormatError(f"cannot read {path}: it is a device or a pipe; name a file or a folder")
    with reading(path, SgsdumpError), open_file(path) as file:
        return file.read(HEAD_BYTES)
