"""A small whole file, or folder, of a format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fuzzing.mutations import Edit, mutated

MOST_BYTES = 6000
_MOST_FILES = 40


@dataclass(frozen=True)
class Seed:
    """A file under its name, or a folder: contents by the path below it.

    format  what it is, and so how it is read (``trial.reader``).
    edit    how its files are damaged.
    slower  how many times a reader's limits of time and memory it may take.
    """

    format: str
    name: str
    files: dict[str, bytes]
    edit: Edit = mutated
    slower: int = 1

    @property
    def is_folder(self) -> bool:
        return "" not in self.files

    def put(self, folder: Path) -> Path:
        """Write it below ``folder``; gives the path to open."""
        for name, data in self.files.items():
            path = folder / self.name / name if name else folder / self.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return folder / self.name


def content_of(path: Path) -> dict[str, bytes]:
    """The files of a seed, those of a folder cut to a few small ones; none for a large file."""
    if path.is_file():
        return {"": path.read_bytes()} if path.stat().st_size <= 4 * MOST_BYTES else {}
    small = (p for p in sorted(path.rglob("*")) if p.is_file() and p.stat().st_size <= 4 * MOST_BYTES)
    return {str(p.relative_to(path)): p.read_bytes() for p in _first(small)}


def _first(paths: Iterable[Path]) -> list[Path]:
    return [path for path, _ in zip(paths, range(_MOST_FILES))]
