"""Where the bytes of storages lie, and the values of a tensor that is a view of one."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from mmap import mmap
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sgsdump.dumps.formats.arrays import zip_member
from sgsdump.dumps.formats.arrays.zip_member import Member
from sgsdump.dumps.formats.torch.rebuild import Scaled, View
from sgsdump.errors import FormatError
from sgsdump.files.mapped import view
from sgsdump.tensors.dtypes import carrier
from sgsdump.tensors.tensor import Quant, Tensor, TensorInfo

# A tensor may have that many times its file's bytes: one row that stands for many (``expand``) is stored once.
MOST_TIMES = 32


class Place(NamedTuple):
    """The bytes of a storage in a file: as they lie there, or a deflated member of an archive."""

    offset: int
    size: int
    member: Member | None = None


class TorchFile(NamedTuple):
    """A file whose pickle has been read. ``data`` gives it mapped; little-endian unless ``big``."""

    path: Path
    data: Callable[[], mmap]
    size: int
    places: dict[str, Place]
    big: bool = False


def tensor(file: TorchFile, name: str, view: View) -> Tensor | str:
    """The tensor that a view is, or why it is left out. Raises FormatError when its storage is missing or too short."""
    where = f"{file.path}: tensor {name[:80]!r}"
    if view.dtype is None:
        return f"is of the type {view.type_name[:60]}, which is not known"
    place = file.places.get(view.storage.key)
    if place is None:
        raise FormatError(f"{where} is of the storage {view.storage.key[:80]!r}, which is missing")
    item = view.dtype.itemsize
    if view.span and (view.offset + view.span) * item > place.size:
        raise FormatError(
            f"{where} needs the bytes up to {(view.offset + view.span) * item} of a storage of {place.size}"
        )
    if view.elements * item > MOST_TIMES * file.size:
        return f"is expanded to {view.elements} elements, of which the file stores {view.span}"
    quant, dtype = None, view.dtype
    if view.scaled is not None:
        quant = _quant(file, name, view, view.scaled)
        if quant is None:
            return "is quantised in a way that is not known"
        dtype = np.dtype(np.float32) if _many_zeros(file, name, view) is not None else dtype
    return Tensor(TensorInfo(name, view.shape, dtype, quant=quant), partial(_load, file, name, view))


def _quant(file: TorchFile, name: str, view: View, scaled: Scaled) -> Quant | None:
    """How the integers mean numbers; None where the arrays of scales are no arrays of this tensor's channels."""
    if scaled.axis is None:
        return (
            Quant(view.dtype, scaled.scale, scaled.zero_point, exact=True) if abs(scaled.zero_point) < 2**31 else None
        )
    arrays = [_array(file, name, one) for one in (scaled.scale, scaled.zero_point)]
    scales, zeros = arrays
    if scales is None or zeros is None or scales.shape != zeros.shape or scales.shape != (view.shape[scaled.axis],):
        return None
    zero = int(zeros[0]) if zeros.size and zeros.min() == zeros.max() else 0
    return Quant(view.dtype, scales.astype(np.float64), zero, scaled.axis, exact=True)


def _many_zeros(file: TorchFile, name: str, view: View) -> np.ndarray | None:
    """The zero points of channels that have different ones, which a Quant cannot say: such values are dequantised."""
    if view.scaled is None or view.scaled.axis is None:
        return None
    zeros = _array(file, name, view.scaled.zero_point)
    return zeros if zeros is not None and zeros.size and zeros.min() != zeros.max() else None


def _array(file: TorchFile, name: str, view: View) -> np.ndarray | None:
    one = tensor(file, name, view) if view.scaled is None else ""
    plain = isinstance(one, Tensor) and one.dtype in (np.float64, np.float32, np.int64, np.int32)
    array = one.stored() if isinstance(one, Tensor) and plain else None
    return array if array is not None and np.isfinite(array).all() else None


def _load(file: TorchFile, name: str, view: View) -> np.ndarray:
    values = _values(file, view)
    zeros = _many_zeros(file, name, view)
    if zeros is None or view.scaled is None:
        return values
    scales = _array(file, name, view.scaled.scale)
    assert scales is not None and view.scaled.axis is not None
    along = [-1 if axis == view.scaled.axis else 1 for axis in range(values.ndim)]
    real = (values.astype(np.int64) - zeros.reshape(along)).astype(np.float32)
    return np.asarray(real * scales.astype(np.float32).reshape(along), np.float32)


def _values(file: TorchFile, view: View) -> np.ndarray:
    """The stored values in their shape: a view of the mapped file where they lie there as they are."""
    assert view.dtype is not None
    place = file.places[view.storage.key]
    flat = _run(file, place, view.dtype, view.span, view.offset)
    if file.big:
        flat = _turned(flat, view.dtype)
    if view.is_contiguous or not view.elements:
        array = flat.reshape(view.shape)
    else:
        steps = [stride * view.dtype.itemsize for stride in view.strides]
        array = np.ndarray(view.shape, view.dtype, flat, 0, steps)
    if view.conjugated:
        array = np.conj(array)
    return np.negative(array) if view.negated else array


def _run(file: TorchFile, place: Place, dtype: np.dtype, count: int, first: int) -> np.ndarray:
    try:
        if place.member is None:
            return view(file.data(), dtype, count, place.offset + first * dtype.itemsize)
        unpacked = zip_member.unpack(file.data(), place.member)
        return np.frombuffer(unpacked, dtype, count, first * dtype.itemsize)
    except ValueError as error:
        raise FormatError(f"cannot read {file.path}, was it changed? ({error})") from None


def _turned(flat: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Values of a file of the other byte order."""
    unit = dtype.itemsize // (2 if dtype.kind == "c" else 1)
    if unit == 1 or not math.prod(flat.shape):
        return flat
    turned = flat.view(carrier(dtype)).view(np.uint8).reshape(-1, unit)[:, ::-1]
    return np.ascontiguousarray(turned).reshape(-1).view(dtype)
