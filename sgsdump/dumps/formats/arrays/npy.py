"""A single .npy file: a dump of one output tensor, named as the file without ``.npy``. Read only."""

from __future__ import annotations

from pathlib import Path

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.format import Format
from sgsdump.dumps.formats.arrays.npy_file import MAGIC, plain_tensor


def recognises(path: Path, head: bytes) -> bool:
    return head.startswith(MAGIC)


def read(path: Path) -> Dump:
    """Raises FormatError for a damaged file and for pickled objects."""
    notes: list[str] = []
    tensor = plain_tensor(path, path.name.removesuffix(".npy"), notes)
    return Dump([Record("out", 0, 0, "", tensor)], FORMAT.name, None, path, notes)


FORMAT = Format("npy", recognises, read)
