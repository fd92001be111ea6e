"""Reader and writer of numpy's .npz files: zip archives of .npy files.

An archive that sgsdump wrote has a manifest ``sgsdump.json`` (``shared/manifest.py``) as last member, whose ``values``
are member names. It holds all facts of a dump. The manifest is stored as a uint8 array, so that numpy.load sees only
arrays; the first versions stored plain text. In any other archive, each .npy member is an output tensor named after the
member without ``.npy``, in archive order.

Uncompressed members (numpy.savez) are not copied. Deflated members are unpacked on request, to at most the size in
their .npy header. The checksum of a member is verified whenever its values are read, as in numpy.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.dumps.dump import Damage, Dump, Record
from sgsdump.dumps.format import Format
from sgsdump.dumps.formats.shared import manifest, npy_file, zip_member
from sgsdump.dumps.formats.shared.zip_member import Member
from sgsdump.errors import FileChanged, FormatError, OutputError
from sgsdump.files.atomic_write import replacing
from sgsdump.files.mapped import MappedFile, Source, kept_open, map_file, view
from sgsdump.files.names import Taken, label
from sgsdump.tensors.tensor import Tensor, TensorInfo

ENDING = ".npy"


def recognises(path: Path, head: bytes) -> bool:
    name = int.from_bytes(head[26:28], "little")
    return head.startswith(zip_member.MAGIC) and head[30 : 30 + name].endswith(ENDING.encode())


def read(path: Path) -> Dump:
    """Read a .npz file; values are loaded on request. Raises FormatError for damage and decompression bombs."""
    data, notes = map_file(path), list[str]()
    members = zip_member.members(data, path)
    by_name = {member.name: member for member in members}
    if len(by_name) < len(members):
        notes.append(f"{len(members) - len(by_name)} members are ignored: a later member has the same name")
    own_manifest = by_name.pop(manifest.NAME, None) or by_name.pop(manifest.NAME + ENDING, None)
    if own_manifest is not None:
        where = f"{path}: {own_manifest.name}"
        text = zip_member.content(data, own_manifest, manifest.MOST_BYTES, where, "any dump's manifest")
        if own_manifest.name.endswith(ENDING):
            header = _header(data, own_manifest, path)
            text = text[header.offset : header.end]
        entries = manifest.parse(text, f"{path}: {manifest.NAME}")
        records = [_record(data, by_name, path, *entry) for entry in entries]
    else:
        records = _foreign(data, by_name, path, notes)
    return Dump(records, FORMAT.name, None, path, notes)


def _record(data: MappedFile, members: dict[str, Member], path: Path, record: Record, values: str) -> Record:
    where = f"{path}: member {values[:80]!r}"
    if values not in members:
        raise FormatError(f"{where} is missing, but {manifest.NAME} names it")
    header, info = _header(data, members[values], path), record.tensor.info
    npy_file.check_type(header, info.dtype, where)
    manifest.check_count(record, header.elements, where)
    return replace(record, tensor=Tensor(info, partial(_load, data.source, members[values], header, info.dtype, path)))


def _foreign(data: MappedFile, members: dict[str, Member], path: Path, notes: list[str]) -> list[Record]:
    records: list[Record] = []
    for name, member in members.items():
        try:
            header = _header(data, member, path)
            npy_file.check_plain(header, f"{path}: member {name[:80]!r}")
        except FormatError as error:
            notes.append(Damage.left_out(error))
            continue
        info = TensorInfo(name.removesuffix(ENDING), header.shape, header.dtype)
        tensor = Tensor(info, partial(_load, data.source, member, header, header.dtype, path))
        records.append(Record("out", 0, len(records), "", tensor))
    if not records:
        raise FormatError(f"no member of {path} is a tensor ({notes[-1] if notes else 'the file is empty'})")
    return records


def _header(data: MappedFile, member: Member, path: Path) -> npy_file.Header:
    start = zip_member.start_of(data, member, npy_file.HEAD_BYTES)
    return npy_file.parse_header(start, member.size, f"{path}: member {member.name[:80]!r}")


def _load(source: Source, member: Member, header: npy_file.Header, dtype: np.dtype, path: Path) -> np.ndarray:
    try:
        with kept_open():
            if not member.deflated:
                zip_member.check(source, member)
                flat = view(source, header.dtype, header.elements, member.offset + header.offset)
            else:
                flat = zip_member.unpack(source, member)[header.offset : header.end].view(header.dtype)
    except FileChanged:
        raise
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None
    return npy_file.shaped(flat, header, dtype)


def write(records: Iterable[Record], path: Path, variant: Any = None) -> None:
    """Write one uncompressed member per record, and the manifest.

    Raises OutputError if writing fails, ConfigError for values that a .npy file cannot hold.
    """
    taken, entries = Taken(ignores_case=False), []
    manifest_name = taken.free(manifest.NAME, ENDING)
    with replacing(Path(path)) as file, zipfile.ZipFile(file, "w") as archive:
        for record in records:
            name = taken.free(label(record.name), ENDING)
            entries.append(manifest.entry_of(record, name))
            with archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as member:
                npy_file.write(member, npy_file.in_shape(record.tensor))  # type: ignore[arg-type]
            del record
        if not entries:
            raise OutputError(f"cannot write {path}: there is no tensor to write")
        with archive.open(zipfile.ZipInfo(manifest_name), "w", force_zip64=True) as member:
            npy_file.write(member, np.frombuffer(manifest.text_of(entries), np.uint8))  # type: ignore[arg-type]


FORMAT = Format("npz", recognises, read, write, manifest.loses)
