"""What ``torch.save`` writes, a .pt or .pth file, and TorchScript's; read only, and nothing in it is run.

Since torch 1.6 it is a zip archive, all its members below one folder of any name::

    NAME/data.pkl             a pickle of whatever was saved (``rebuild.py`` says what it may say)
    NAME/byteorder            little or big
    NAME/data/KEY             the bytes of each storage, stored as they are, from a multiple of 64 on

before it (and with ``_use_new_zipfile_serialization=False``) five pickles one behind the other: a magic number, the
protocol 1001, facts of the machine, what was saved, and the keys of its storages; then for each key the number of
elements as uint64 and their bytes.

Names are those of ``contents.py``. Values are views of the mapped file; strided tensors are strided views, tensors that
share a storage share its bytes. Quantised ones keep their scales.
"""

from __future__ import annotations

import io
import zipfile
from functools import partial
from mmap import mmap
from pathlib import Path
from typing import Any

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.format import Format
from sgsdump.dumps.formats.arrays import zip_member
from sgsdump.dumps.formats.torch.contents import tensors
from sgsdump.dumps.formats.torch.rebuild import BYTES, Storage, rebuilt, referred
from sgsdump.dumps.formats.torch.storages import Place, TorchFile, tensor
from sgsdump.errors import FormatError
from sgsdump.files import pickles as pickle_machine
from sgsdump.files.bounded_read import open_file
from sgsdump.files.mapped import map_file
from sgsdump.registry import listed
from sgsdump.tensors.tensor import Tensor

PICKLE = "data.pkl"
MAGIC = 0x1950A86A20F9469CFC6C
_MAGIC_BYTES = MAGIC.to_bytes(10, "little")
_PROTOCOL = 1001
_MOST_PICKLE = 256 << 20
_SHOWN = 3


def recognises(path: Path, head: bytes) -> bool:
    if head.startswith(zip_member.MAGIC):
        return _is_archive(path)
    return head[:1] == b"\x80" and _MAGIC_BYTES in head[:32]


def _is_archive(path: Path) -> bool:
    """Whether a zip archive has the pickle of a torch file; the directory at its end says so."""
    try:
        with open_file(path) as file, zipfile.ZipFile(file) as archive:
            return any(name.rpartition("/")[2] == PICKLE and name.count("/") <= 1 for name in archive.namelist())
    except Exception:
        # What zipfile raises for a hostile directory is open-ended.
        return False


def read(path: Path) -> Dump:
    """A dump whose values are views of the mapped file. Raises FormatError."""
    notes: list[str] = []
    found = read_tensors(path, path.stem, notes)
    return Dump([Record("out", 0, index, "", one) for index, one in enumerate(found)], FORMAT.name, None, path, notes)


def read_tensors(path: Path, alone: str, notes: list[str], keep_open: bool = True) -> list[Tensor]:
    """The tensors of a file. ``keep_open``: it stays mapped; else it is mapped again whenever values are asked for.

    Raises FormatError for damage, for what is no tensor, and for a pickle that wants to call anything.
    """
    data = map_file(path)
    content, file = (_archive if data[:4] == zip_member.MAGIC else _legacy)(data, path)
    file = file._replace(data=(lambda: data) if keep_open else partial(map_file, path))
    readable: list[Tensor] = []
    left_out: dict[str, list[str]] = {}
    for name, view in tensors(content, alone, notes):
        one = tensor(file, name, view)
        if isinstance(one, Tensor):
            readable.append(one)
        else:
            left_out.setdefault(one, []).append(name[:80])
    notes += [_line(why, names) for why, names in left_out.items()]
    if not readable:
        raise FormatError(f"{path} holds no tensor that can be read{': ' + notes[-1] if notes else ''}")
    return readable


def _line(why: str, names: list[str]) -> str:
    return f"left out: {listed(names, _SHOWN, repr)}: it {why}"


def _archive(data: mmap, path: Path) -> tuple[Any, TorchFile]:
    """What a zip archive holds, and where its storages lie."""
    members = {member.name: member for member in zip_member.members(data, path)}
    names = [name for name in members if name.rpartition("/")[2] == PICKLE and name.count("/") <= 1]
    if not names:
        raise FormatError(f"{path} is no torch file: there is no {PICKLE} in it")
    folder = names[0].removesuffix(PICKLE)
    storages = f"{folder}data/"
    places = {
        name.removeprefix(storages): Place(member.offset, member.size, member if member.deflated else None)
        for name, member in members.items()
        if name.startswith(storages)
    }
    order = members.get(f"{folder}byteorder")
    big = order is not None and zip_member.start_of(data, order, 8) == b"big"
    text = _content(data, members[names[0]], path)
    content = pickle_machine.load(io.BytesIO(text), f"{path}: {PICKLE}", rebuilt, referred)
    return content, TorchFile(path, lambda: data, len(data), places, big)


def _content(data: mmap, member: zip_member.Member, path: Path) -> bytes:
    if member.size > _MOST_PICKLE:
        raise FormatError(f"{path}: its {PICKLE} has {member.size} bytes, more than tensors need")
    return zip_member.unpack(data, member).tobytes() if member.deflated else data[member.offset :][: member.size]


def _legacy(data: mmap, path: Path) -> tuple[Any, TorchFile]:
    """What the older form holds, and where its storages lie."""
    data.seek(0)
    used: dict[str, Storage] = {}

    def refer(reference: Any) -> Any:
        one = referred(reference)
        if isinstance(one, Storage):
            used.setdefault(one.key, one)
        return one

    magic, protocol, machine, content, keys = (pickle_machine.load(data, str(path), rebuilt, refer) for _ in range(5))
    if magic != MAGIC or protocol != _PROTOCOL or not isinstance(machine, dict) or not isinstance(keys, list):
        raise FormatError(f"{path} is not a whole torch file of the older form")
    big = machine.get("little_endian") is False
    places: dict[str, Place] = {}
    offset = data.tell()
    for key in keys:
        if not isinstance(key, str) or key not in used:
            raise FormatError(f"{path} has a storage {str(key)[:80]!r} that no tensor is of")
        one = used[key]
        if one.dtype is None and one.type_name != BYTES:
            raise FormatError(f"{path} has storages of the type {one.type_name[:60]!r}, which is not known")
        count = int.from_bytes(data[offset : offset + 8], "big" if big else "little")
        size = count * (1 if one.dtype is None else one.dtype.itemsize)
        if offset + 8 + size > len(data):
            raise FormatError(f"{path} is cut off: the storage {key[:80]!r} needs {size} bytes")
        places[key] = Place(offset + 8, size)
        offset += 8 + size
    return content, TorchFile(path, lambda: data, len(data), places, big)


FORMAT = Format("torch", recognises, read)
