"""Reader of the tensors in a torch file, as views of the mapped file.

``torch/torch_file.py`` specifies the file. No code in the file is executed; ``torch_pickle.py`` lists the calls that
the pickle may contain.
"""

from __future__ import annotations

import io
import math
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sgsdump.dumps.formats.shared import zip_member
from sgsdump.dumps.formats.shared.torch_pickle import BYTES, Scaled, Storage, View, rebuilt, referred, tensors_in
from sgsdump.dumps.formats.shared.zip_member import Member
from sgsdump.errors import FormatError, listed
from sgsdump.files import pickles as pickle_machine
from sgsdump.files.mapped import MappedFile, Source, in_memory, map_file, view
from sgsdump.tensors.dtypes import carrier
from sgsdump.tensors.tensor import Quant, Tensor, TensorInfo

# Limit of a tensor's size as a multiple of the file size: ``expand`` stores a repeated row only once.
MOST_TIMES = 32
PICKLE = "data.pkl"
MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_MOST_PICKLE = 256 << 20
_SHOWN = 3


class StorageSpan(NamedTuple):
    """Position of a storage in the file: plain bytes, or a deflated member of an archive."""

    offset: int
    size: int
    member: Member | None = None


class TorchFile(NamedTuple):
    """A torch file whose pickle has been read; little-endian unless ``big``."""

    path: Path
    data: Source
    size: int
    spans: dict[str, StorageSpan]
    big: bool = False


def tensor(file: TorchFile, name: str, view: View) -> Tensor | str:
    """Return the tensor of a view, or the reason to skip it. Raises FormatError if its storage is missing or short."""
    where = f"{file.path}: tensor {name[:80]!r}"
    if view.dtype is None:
        return f"has the unknown type {view.type_name[:60]}"
    span = file.spans.get(view.storage.key)
    if span is None:
        raise FormatError(f"{where} uses the storage {view.storage.key[:80]!r}, which is missing")
    item = view.dtype.itemsize
    if view.span and (view.offset + view.span) * item > span.size:
        raise FormatError(
            f"{where} needs {(view.offset + view.span) * item} bytes of a storage that has only {span.size} bytes"
        )
    if view.elements * item > MOST_TIMES * file.size:
        return f"is expanded to {view.elements} elements; the file stores only {view.span} elements"
    quant, dtype = None, view.dtype
    if view.scaled is not None:
        quant = _quant(file, name, view, view.scaled)
        if quant is None:
            return "has an unknown quantisation scheme"
        dtype = np.dtype(np.float32) if _many_zeros(file, name, view) is not None else dtype
    return Tensor(TensorInfo(name, view.shape, dtype, quant=quant), partial(_load, file, name, view))


def read_tensors(path: Path, alone: str, notes: list[str]) -> list[Tensor]:
    """Return the tensors of a file.

    Raises FormatError for damage, for a file without tensors, and for a pickle with unknown calls.
    """
    data = map_file(path)
    content, file = (_archive if data[:4] == zip_member.MAGIC else _legacy)(data, path)
    file = file._replace(data=data.source)
    readable: list[Tensor] = []
    left_out: dict[str, list[str]] = {}
    for name, part in tensors_in(content, alone, notes):
        stored = tensor(file, name, part)
        if isinstance(stored, Tensor):
            readable.append(stored)
        else:
            left_out.setdefault(stored, []).append(name[:80])
    notes += [f"left out: {listed(names, _SHOWN, repr)}: it {why}" for why, names in left_out.items()]
    if not readable:
        raise FormatError(f"{path} holds no readable tensor{': ' + notes[-1] if notes else ''}")
    return readable


def _quant(file: TorchFile, name: str, view: View, scaled: Scaled) -> Quant | None:
    """Return scale and zero point; None if the arrays do not match the tensor's channels."""
    if scaled.axis is None:
        return (
            Quant(view.dtype, scaled.scale, scaled.zero_point, exact=True) if abs(scaled.zero_point) < 2**31 else None
        )
    arrays = [_array(file, name, stored) for stored in (scaled.scale, scaled.zero_point)]
    scales, zeros = arrays
    if scales is None or zeros is None or scales.shape != zeros.shape or scales.shape != (view.shape[scaled.axis],):
        return None
    zero = int(zeros[0]) if zeros.size and zeros.min() == zeros.max() else 0
    return Quant(view.dtype, scales.astype(np.float64), zero, scaled.axis, exact=True)


def _many_zeros(file: TorchFile, name: str, view: View) -> np.ndarray | None:
    """Return per-channel zero points that differ. A Quant cannot hold them, so such values are dequantised."""
    if view.scaled is None or view.scaled.axis is None:
        return None
    zeros = _array(file, name, view.scaled.zero_point)
    return zeros if zeros is not None and zeros.size and zeros.min() != zeros.max() else None


def _array(file: TorchFile, name: str, view: View) -> np.ndarray | None:
    stored = tensor(file, name, view) if view.scaled is None else ""
    plain = isinstance(stored, Tensor) and stored.dtype in (np.float64, np.float32, np.int64, np.int32)
    array = stored.stored() if isinstance(stored, Tensor) and plain else None
    return array if array is not None and np.isfinite(array).all() else None


def _load(file: TorchFile, name: str, view: View) -> np.ndarray:
    values = _values(file, view)
    zeros = _many_zeros(file, name, view)
    if zeros is None or view.scaled is None:
        return values
    scales = _array(file, name, view.scaled.scale)
    assert scales is not None and view.scaled.axis is not None
    along = [-1 if axis == view.scaled.axis else 1 for axis in range(values.ndim)]
    real = (in_memory(values).astype(np.int64) - zeros.reshape(along)).astype(np.float32)
    return np.asarray(real * scales.astype(np.float32).reshape(along), np.float32)


def _values(file: TorchFile, view: View) -> np.ndarray:
    """Return the stored values in their shape, as a view of the mapped file if possible."""
    assert view.dtype is not None
    span = file.spans[view.storage.key]
    flat = _run(file, span, view.dtype, view.span, view.offset)
    if file.big:
        flat = _turned(in_memory(flat), view.dtype)
    if view.is_contiguous or not view.elements:
        array = flat.reshape(view.shape)
    else:
        steps = [stride * view.dtype.itemsize for stride in view.strides]
        array = np.ndarray(view.shape, view.dtype, flat, 0, steps)
    if view.conjugated:
        array = np.conj(in_memory(array))
    return np.negative(in_memory(array)) if view.negated else array


def _run(file: TorchFile, span: StorageSpan, dtype: np.dtype, count: int, first: int) -> np.ndarray:
    try:
        if span.member is None:
            return view(file.data, dtype, count, span.offset + first * dtype.itemsize)
        unpacked = zip_member.unpack(file.data, span.member)
        return np.frombuffer(unpacked, dtype, count, first * dtype.itemsize)
    except ValueError as error:
        raise FormatError(f"cannot read {file.path} ({error}). Check whether the file was changed") from None


def _turned(flat: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Swap the byte order of the values."""
    unit = dtype.itemsize // (2 if dtype.kind == "c" else 1)
    if unit == 1 or not math.prod(flat.shape):
        return flat
    turned = flat.view(carrier(dtype)).view(np.uint8).reshape(-1, unit)[:, ::-1]
    return np.ascontiguousarray(turned).reshape(-1).view(dtype)


def _archive(data: MappedFile, path: Path) -> tuple[Any, TorchFile]:
    """Return the unpickled content of a zip archive, and the positions of its storages."""
    members = {member.name: member for member in zip_member.members(data, path)}
    names = [name for name in members if name.rpartition("/")[2] == PICKLE and name.count("/") <= 1]
    if not names:
        raise FormatError(f"{path} is not a torch file: it contains no {PICKLE}")
    folder = names[0].removesuffix(PICKLE)
    storages = f"{folder}data/"
    spans = {
        name.removeprefix(storages): StorageSpan(member.offset, member.size, member if member.deflated else None)
        for name, member in members.items()
        if name.startswith(storages)
    }
    order = members.get(f"{folder}byteorder")
    big = order is not None and zip_member.start_of(data, order, 8) == b"big"
    text = zip_member.content(data, members[names[0]], _MOST_PICKLE, f"{path}: its {PICKLE}", "tensors need")
    content = pickle_machine.load(io.BytesIO(text), f"{path}: {PICKLE}", rebuilt, referred)
    return content, TorchFile(path, data.source, len(data), spans, big)


def _legacy(data: MappedFile, path: Path) -> tuple[Any, TorchFile]:
    """Return the unpickled content of a file of the older form, and the positions of its storages."""
    data.seek(0)
    used: dict[str, Storage] = {}

    def refer(reference: Any) -> Any:
        stored = referred(reference)
        if isinstance(stored, Storage):
            used.setdefault(stored.key, stored)
        return stored

    magic, protocol, machine, content, keys = (pickle_machine.load(data, str(path), rebuilt, refer) for _ in range(5))
    if magic != MAGIC or protocol != _PROTOCOL or not isinstance(machine, dict) or not isinstance(keys, list):
        raise FormatError(f"{path} is not a complete torch file in the older format (not zip)")
    big = machine.get("little_endian") is False
    spans: dict[str, StorageSpan] = {}
    offset = data.tell()
    for key in keys:
        if not isinstance(key, str) or key not in used:
            raise FormatError(f"{path} has a storage {str(key)[:80]!r} that no tensor uses")
        stored = used[key]
        if stored.dtype is None and stored.type_name != BYTES:
            raise FormatError(f"{path} has storages of the unknown type {stored.type_name[:60]!r}")
        count = int.from_bytes(data[offset : offset + 8], "big" if big else "little")
        size = count * (1 if stored.dtype is None else stored.dtype.itemsize)
        if offset + 8 + size > len(data):
            raise FormatError(f"{path} is cut off: the storage {key[:80]!r} needs {size} bytes")
        spans[key] = StorageSpan(offset + 8, size)
        offset += 8 + size
    return content, TorchFile(path, data.source, len(data), spans, big)
