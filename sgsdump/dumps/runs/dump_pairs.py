"""Folders of dumps, one for each run (a picture, a step): which of one folder belongs to which of the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sgsdump.errors import ConfigError
from sgsdump.files.folder import in_order


@dataclass(frozen=True)
class PairedDumps:
    """The dumps of one name on both sides, in order, and the names that stand on one side only."""

    pairs: dict[str, tuple[Path, Path]]
    only_in_sample: tuple[str, ...]
    only_in_benchmark: tuple[str, ...]


def paired_dumps(sample: Path, benchmark: Path) -> PairedDumps:
    """Dumps (files or folders) directly in two folders, paired by name, endings apart: ``1.bin`` with ``1.npz``.

    Names that begin with a dot are passed over. Where the name without ending is not unique in a folder, whole names
    count. Raises ConfigError for what is no folder, and when no name is on both sides.
    """
    sides = [_entries(folder) for folder in (sample, benchmark)]
    unique = all(max(Counter(path.stem for path in side).values(), default=0) == 1 for side in sides)
    name_of: Callable[[Path], str] = (lambda path: path.stem) if unique else (lambda path: path.name)
    left, right = ({name_of(path): path for path in side} for side in sides)
    pairs = {name: (path, right[name]) for name, path in left.items() if name in right}
    if not pairs:
        raise ConfigError(
            f"no dump of one name in both folders: {sample} has {len(left)}, {benchmark} has {len(right)}; dumps of "
            f"one run need one name"
        )
    return PairedDumps(
        pairs,
        tuple(name for name in left if name not in right),
        tuple(name for name in right if name not in left),
    )


def _entries(folder: Path) -> list[Path]:
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "is not there"
        raise ConfigError(f"a folder of dumps, one for each run, is asked for; {folder} {what}")
    return sorted((path for path in folder.iterdir() if path.name[0] != "."), key=lambda path: in_order(path.name))
