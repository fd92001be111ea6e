"""Readers of a .npy file and of a folder of .npy files; writer of such folders.

A single file is a dump of one output tensor, named after the file without ``.npy`` (read-only).

A folder that sgsdump wrote has a manifest ``sgsdump.json`` (``shared/manifest.py``) whose ``values`` are file names. It
holds all facts of a dump. Extension types are stored as raw bits; the manifest names the types.

``folder.py`` reads any other folder.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.format import Format
from sgsdump.dumps.formats.shared import manifest, npy_file
from sgsdump.dumps.formats.shared.npy_file import MAGIC, plain_tensor
from sgsdump.errors import OutputError
from sgsdump.files.atomic_write import replacing_folder
from sgsdump.files.folder import files_below, has_file, inside
from sgsdump.files.names import Taken, file_stem

ENDING = ".npy"


def recognises(path: Path, head: bytes) -> bool:
    return path.is_dir() and ((path / manifest.NAME).is_file() or has_file(path, ENDING))


def read(path: Path) -> Dump:
    """Read a folder of .npy files; values are loaded on request. Raises FormatError."""
    if not (path / manifest.NAME).is_file():
        from sgsdump.dumps.formats.arrays import folder

        return folder.read(path)
    notes: list[str] = []
    records = _ours(path, files_below(path, ENDING, notes), notes)
    return Dump(records, FOLDER.name, None, path, notes)


def write(records: Iterable[Record], path: Path, variant: Any = None) -> None:
    """Write one file per record, and the manifest. An existing folder is moved aside.

    Raises OutputError if writing fails, ConfigError for values that a .npy file cannot hold.
    """
    taken, entries = Taken(), []
    with replacing_folder(Path(path)) as place:
        for record in records:
            name = taken.free(file_stem(record.name), ENDING)
            entries.append(manifest.entry_of(record, name))
            npy_file.save(place / name, npy_file.in_shape(record.tensor))
            del record
        if not entries:
            raise OutputError(f"cannot write {path}: there is no tensor to write")
        npy_file.save_bytes(place / manifest.NAME, manifest.text_of(entries))


def _recognises_file(path: Path, head: bytes) -> bool:
    return head.startswith(MAGIC)


def _read_file(path: Path) -> Dump:
    """Read a single .npy file. Raises FormatError for damage and for pickled objects."""
    notes: list[str] = []
    tensor = plain_tensor(path, path.name.removesuffix(".npy"), notes)
    return Dump([Record("out", 0, 0, "", tensor)], FILE.name, None, path, notes)


def _ours(path: Path, files: list[str], notes: list[str]) -> list[Record]:
    entries = manifest.read(inside(path, manifest.NAME))
    there = set(files)
    stray = there - {entry.values for entry in entries}
    if stray:
        notes.append(f"{len(stray)} .npy files are not listed in {manifest.NAME}: {', '.join(sorted(stray)[:3])}")
    return [_record(path, there, *entry) for entry in entries]


def _record(place: Path, there: set[str], record: Record, values: str) -> Record:
    # Files of the listing are known to be inside the folder; inside() explains what is wrong with any other name.
    direct = values in there and "/" not in values
    path, info = place / values if direct else inside(place, values), record.tensor.info
    header, _ = npy_file.header_of(path)
    npy_file.check_type(header, info.dtype, path)
    manifest.check_count(record, header.elements, path)
    return replace(record, tensor=npy_file.tensor_of(path, header, info))


FILE = Format("npy", _recognises_file, _read_file, one_tensor=True)
FOLDER = Format("npy_dir", recognises, read, write, manifest.loses, f"{manifest.NAME}, .npy files")
