"""The compiled kernel, where it is installed: the sums of ``by_numpy``, digit by digit, at the speed of reading."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import ml_dtypes
import numpy as np

from sgsdump.comparison.sums.lanes import CHUNK, LANES, Part
from sgsdump.comparison.sums.picked import Picked
from sgsdump.comparison.sums.tiles import Table
from sgsdump.errors import ValuesError
from sgsdump.files.mapped.reading import OpenFile, opened
from sgsdump.files.mapped.views import address_of
from sgsdump.tensors.kernels import kernel
from sgsdump.tensors.real_view import Values

# The kernel's numbers for types; integers mean numbers by a scale and a zero point.
_TYPES = (np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, np.int16, np.uint16)
_KINDS = {np.dtype(dtype): kind for kind, dtype in enumerate(_TYPES)}
_LARGEST_ZERO_POINT = 1 << 30
_LOCAL = threading.local()
_KERNEL = kernel("sgsdump.comparison.sums.kernel", INTERFACE=3, LANES=LANES, CHUNK=CHUNK)


def description() -> str:
    """Which sums are in use, for ``sgsdump --version``."""
    return "numpy sums" if _KERNEL is None else f"compiled sums ({_KERNEL.vectors()})"


def takes(side: Values) -> bool:
    """Whether the kernel is there and knows the type, and how its values become real ones."""
    dtype = side.array.dtype
    if _KERNEL is None or dtype not in _KINDS:
        return False
    if side.to_real is None:
        return True
    return dtype.kind in "iu" and side.scaling is not None and abs(side.scaling.zero_point) <= _LARGEST_ZERO_POINT


class Side(NamedTuple):
    """A side of a pair: its values, the file they are a mapped view of, and what is picked up on the way."""

    values: Values
    file: OpenFile | None
    picked: Picked | None


@contextmanager
def summing(
    sample: Values, benchmark: Values, picked: tuple[Picked, Picked] | None = None
) -> Iterator[Callable[[list[Table]], Part]]:
    """What makes the sums of a part of two that ``takes`` accepts. Flat tables of mapped files are read from these;
    ``picked`` is whole afterwards where both sides are flat. Raises ValuesError for a file that cannot be read."""
    is_flat = sample.array.flags.c_contiguous and benchmark.array.flags.c_contiguous
    wanted = picked if picked and is_flat else (None, None)
    with opened(sample.array) as file, opened(benchmark.array) as other:
        a, b = Side(sample, file, wanted[0]), Side(benchmark, other, wanted[1])
        try:
            yield lambda tables: _part_sums(tables, a, b)
        except OSError as error:
            raise ValuesError(f"a mapped file cannot be read any more: {error}") from None
    for one in wanted:
        if one:
            one.whole = True


def _part_sums(tables: list[Table], sample: Side, benchmark: Side) -> Part:
    assert _KERNEL is not None, "asked of pairs only that takes() accepts"
    described = []
    for table in tables:
        assert table.a.shape == table.b.shape
        sides = _described(sample, table.a, table.is_flat), _described(benchmark, table.b, table.is_flat)
        described.append((*sides, (*table.a.shape, *table.tile)))
    part: Part = _KERNEL.part_sums(described, _scratch())
    return part


def _described(side: Side, array: np.ndarray, is_flat: bool) -> tuple[float, ...]:
    (values, file, picked), address = side, address_of(array)
    scale, zero_point = (1.0, 0) if values.scaling is None else (values.scaling.scale, values.scaling.zero_point)
    place = (file.descriptor, address - file.address) if file and is_flat else (-1, 0)
    wanted = _wanted(picked, values.array, array) if picked and is_flat else (0, 0, 0, 0)
    return address, _KINDS[array.dtype], *array.strides, scale, zero_point, *place, *wanted


def _wanted(picked: Picked, whole: np.ndarray, part: np.ndarray) -> tuple[int, ...]:
    """What is to be picked up from a part: places, how many, where their values go, and where the part begins."""
    places, values = address_of(picked.places), address_of(picked.values)
    if part.size == whole.size:
        return places, len(picked.places), values, 0
    start = (address_of(part) - address_of(whole)) // whole.itemsize
    first, last = np.searchsorted(picked.places, (start, start + part.size)).tolist()
    return places + 8 * first, last - first, values + 4 * first, start


def _scratch() -> int:
    """The address of the thread's own room for four chunks, what is read and what is packed of either side; kept, and
    beginning on a cache line."""
    if not hasattr(_LOCAL, "scratch"):
        _LOCAL.block = np.empty(4 * CHUNK + 16, np.float32)
        _LOCAL.scratch = -(-address_of(_LOCAL.block) // 64) * 64
    scratch: int = _LOCAL.scratch
    return scratch
