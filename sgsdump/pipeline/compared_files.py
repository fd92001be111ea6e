"""Compare the files of a run with those of one or two other runs: folders of .npy files, or dump folders.

Files are matched by name, else by tensor. The tensor's name is needed because a tensor dumped alone has no prefix
``topoidx_00012__``, and the casts of a float16 copy shift the indices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.dumps.formats.sdaa import dump_info
from sgsdump.dumps.formats.sdaa.dump_info import named
from sgsdump.errors import ConfigError, FormatError
from sgsdump.files.mapped import load_npy
from sgsdump.progress import SILENT, Progress
from sgsdump.tensors.dtypes import BEYOND_NUMPY, restored

if TYPE_CHECKING:
    import numpy as np

    from sgsdump.comparison.golden import GoldenComparison, GoldenSettings, Load


def compare_run(
    run: Path,
    compare_dir: Path,
    golden_dir: Path | None = None,
    settings: GoldenSettings | None = None,
    progress: Progress = SILENT,
) -> GoldenComparison:
    """Compare the run's outputs with those of ``compare_dir``, three-way with ``golden_dir``.

    settings  tag and thresholds, else the defaults; the titles are the folders.

    Raises ConfigError for a folder that is missing or contains no .npy file, ValuesError if no file is on every side.
    """
    from sgsdump.comparison.golden import DEFAULTS, compare_files

    sample = npy_files(run)
    others = [_named_as(sample, npy_files(folder)) for folder in (compare_dir, golden_dir) if folder is not None]
    titles = str(run), str(compare_dir), str(golden_dir) if golden_dir is not None else None
    golden = others[1] if len(others) > 1 else None
    comparison = compare_files(sample, others[0], golden, replace(settings or DEFAULTS, titles=titles), progress)
    asked = _Asked.of(run)
    told = [_Asked.of(folder) for folder in (compare_dir, golden_dir) if folder is not None]
    unmatched = {file for file, _ in comparison.unmatched()}
    rows = tuple(replace(row, name=named(row.file)[1]) for row in comparison.rows)
    left_out = frozenset(file for file in unmatched if _is_left_out(file, asked, told))
    return replace(comparison, rows=rows, left_out=left_out)


@dataclass(frozen=True)
class _Asked:
    """Tensors that a dump was asked for, dumped or failed, and all tensors of its model."""

    names: frozenset[str] = frozenset()
    of_model: frozenset[str] = frozenset()

    @classmethod
    def of(cls, folder: Path) -> _Asked:
        root = _root(folder)
        if not (root / dump_info.JSON_NAME).is_file():
            return cls()
        info = dump_info.read(root)
        listed = info.meta.get("node_output_names")
        of_model = frozenset(name for name in listed if isinstance(name, str)) if isinstance(listed, list) else ()
        return cls(frozenset(entry.name for entry in info.outputs), frozenset(of_model))

    def left_out(self, name: str) -> bool:
        """Return whether the dump's model has a tensor that was not requested."""
        return name in self.of_model and name not in self.names


def _is_left_out(file: str, run: _Asked, others: Sequence[_Asked]) -> bool:
    """Return whether a file that is not on every side is not missing either.

    This is the case if the run was not asked for it (another part of the model, the casts of another type), or another
    run was not.
    """
    name = named(file)[1]
    if run.names and name not in run.names:
        return True
    return any(side.left_out(name) for side in others) and all(
        name in side.names or side.left_out(name) for side in others
    )


def recorded(folder: Path) -> dict[str, Load]:
    """Return tensor name -> loader for a dump folder, including its inputs."""
    inputs = _root(folder) / dump_info.INPUTS
    loads: dict[str, Load] = {named(p.name)[1]: partial(_load, p, "") for p in sorted(inputs.glob("*.npy"))}
    return loads | {named(file)[1]: load for file, load in npy_files(folder).items()}


def npy_files(folder: Path) -> dict[str, Load]:
    """Return file name -> loader for the .npy files of a folder, or of a dump folder's outputs. Raises ConfigError."""
    if not folder.is_dir():
        problem = "is a file; give its folder" if folder.exists() else "does not exist"
        raise ConfigError(f"cannot compare: the path {problem}: {folder}")
    root = _root(folder)
    files = sorted((root / dump_info.OUTPUTS if root == folder else folder).glob("*.npy"))
    if not files:
        raise ConfigError(f"the folder {folder} has no .npy file to compare with")
    entries = dump_info.read(root).outputs if (root / dump_info.JSON_NAME).is_file() else ()
    dtypes = {Path(entry.file).name: entry.facts.dtype for entry in entries if entry.file and entry.facts}
    return {path.name: partial(_load, path, dtypes.get(path.name, "")) for path in files}


def other_inputs(run: Path, other: Path) -> list[str]:
    """Return the inputs whose values differ between ``run`` and ``other``, both dump folders or their outputs.

    Empty if they are equal, or if a folder contains no inputs.
    """
    folders = [_root(folder) / dump_info.INPUTS for folder in (run, other)]
    ours, others = ({path.name: path for path in folder.glob("*.npy")} for folder in folders)
    common = sorted(ours.keys() & others.keys())
    return [named(file)[1] for file in common if not _equal(_load(ours[file], ""), _load(others[file], ""))]


def _root(folder: Path) -> Path:
    return folder if (folder / dump_info.OUTPUTS).is_dir() else folder.parent


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def _named_as(sample: Mapping[str, Load], other: Mapping[str, Load]) -> dict[str, Load]:
    """Return ``other`` under the sample's file names for equal tensors."""
    free = {named(file)[1]: file for file in other if file not in sample}
    renamed = {free[named(file)[1]]: file for file in sample if file not in other and named(file)[1] in free}
    return {renamed.get(file, file): load for file, load in other.items()}


def _load(path: Path, dtype: str) -> np.ndarray:
    """Return the array of a file, in the dtype of dump_info.json if numpy has no name for the dtype."""
    try:
        array = load_npy(path)
    except (OSError, ValueError) as error:
        raise FormatError(f"{path} is not an .npy file that can be read: {error}") from None
    return restored(array, BEYOND_NUMPY[dtype]) if dtype in BEYOND_NUMPY else array
