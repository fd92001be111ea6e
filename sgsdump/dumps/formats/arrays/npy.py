"""Readers of a .npy file and of a folder of .npy files; writer of such folders.

A single file is a dump of one output tensor, named after the file without ``.npy`` (read-only).

A folder that sgsdump wrote has a manifest ``sgsdump.json`` (``shared/manifest.py``) whose ``values`` are file names. It
holds all facts of a dump. Extension types are stored as raw bits; the manifest names the types.

In any other folder, each .npy file at any depth is an output tensor. Its name is the path below the folder without
``.npy``; tensors are sorted by name in natural order (``conv2`` before ``conv10``). Files that are not tensors are
skipped with a note. A folder is refused if no .npy file lies directly in it and most files below are of other types.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sgsdump.dumps.dump import Damage, Dump, Record
from sgsdump.dumps.format import Format
from sgsdump.dumps.formats.shared import manifest, npy_file
from sgsdump.dumps.formats.shared.npy_file import MAGIC, plain_tensor
from sgsdump.errors import FormatError, OutputError
from sgsdump.files.atomic_write import replacing_folder
from sgsdump.files.folder import files_below, has_file, in_order, inside
from sgsdump.files.names import Taken, file_stem

ENDING = ".npy"


def recognises(path: Path, head: bytes) -> bool:
    return path.is_dir() and ((path / manifest.NAME).is_file() or has_file(path, ENDING))


def read(path: Path) -> Dump:
    """Read a folder of .npy files; values are loaded on request. Raises FormatError."""
    notes: list[str] = []
    files = files_below(path, ENDING, notes)
    read_records = _ours if (path / manifest.NAME).is_file() else _foreign
    records = read_records(path, files, notes)
    return Dump(records, FOLDER.name, None, path, notes)


def write(records: Iterable[Record], path: Path, variant: Any = None) -> None:
    """Write one file per record, and the manifest. An existing folder is moved aside.

    Raises OutputError if writing fails, ConfigError for values that a .npy file cannot hold.
    """
    taken, entries = Taken(), []
    with replacing_folder(Path(path)) as folder:
        for record in records:
            name = taken.free(file_stem(record.name), ENDING)
            entries.append(manifest.entry_of(record, name))
            npy_file.save(folder / name, npy_file.in_shape(record.tensor))
            del record
        if not entries:
            raise OutputError(f"cannot write {path}: there is no tensor to write")
        npy_file.save_bytes(folder / manifest.NAME, manifest.text_of(entries))


def _recognises_file(path: Path, head: bytes) -> bool:
    return head.startswith(MAGIC)


def _read_file(path: Path) -> Dump:
    """Read a single .npy file. Raises FormatError for damage and for pickled objects."""
    notes: list[str] = []
    tensor = plain_tensor(path, path.name.removesuffix(".npy"), notes)
    return Dump([Record("out", 0, 0, "", tensor)], FILE.name, None, path, notes)


def _ours(folder: Path, files: list[str], notes: list[str]) -> list[Record]:
    entries = manifest.read(inside(folder, manifest.NAME))
    there = set(files)
    stray = there - {entry.values for entry in entries}
    if stray:
        notes.append(f"{len(stray)} .npy files are not listed in {manifest.NAME}: {', '.join(sorted(stray)[:3])}")
    return [_record(folder, there, *entry) for entry in entries]


def _record(folder: Path, there: set[str], record: Record, values: str) -> Record:
    # Files of the listing are known to be inside the folder; inside() explains what is wrong with any other name.
    direct = values in there and "/" not in values
    path, info = folder / values if direct else inside(folder, values), record.tensor.info
    header, _ = npy_file.header_of(path)
    npy_file.check_type(header, info.dtype, path)
    manifest.check_count(record, header.elements, path)
    return replace(record, tensor=npy_file.tensor_of(path, header, info))


def _foreign(folder: Path, files: list[str], notes: list[str]) -> list[Record]:
    _check_share(folder, files)
    records: list[Record] = []
    for name in sorted(files, key=in_order):
        try:
            tensor = npy_file.plain_tensor(folder / name, name.removesuffix(ENDING), notes)
        except FormatError as error:
            notes.append(Damage.left_out(error))
            continue
        records.append(Record("out", 0, len(records), "", tensor))
    if not records:
        raise FormatError(f"no .npy file in {folder} is a tensor ({notes[-1] if notes else 'there is none'})")
    return records


def _check_share(folder: Path, files: Sequence[str]) -> None:
    """Raise FormatError for a folder of other files with only a few arrays deep below."""
    if any("/" not in name for name in files):
        return
    others = len(files_below(folder, "", [])) - len(files)
    if files and others > len(files):
        first = min(files, key=in_order).rpartition("/")[0]
        raise FormatError(
            f"{folder} is not a dump: only {len(files)} of the {len(files) + others} files in it and "
            f"its subfolders are .npy files. Give the folder that contains the arrays ({first})"
        )


FILE = Format("npy", _recognises_file, _read_file, one_tensor=True)
FOLDER = Format("npy_dir", recognises, read, write, manifest.loses, f"{manifest.NAME}, .npy files")
