"""The compiled kernel, where it is installed: the sums of ``by_numpy``, digit by digit, at the speed of reading."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import NamedTuple

import ml_dtypes
import numpy as np

from sgsdump.comparison.sums.lanes import CHUNK, LANES, Part
from sgsdump.comparison.sums.picked import Picked
from sgsdump.comparison.sums.tiles import Table
from sgsdump.comparison.sums.to_sum import ToSum
from sgsdump.errors import ValuesError
from sgsdump.files.mapped import OpenFile, address_of, kept_open, opened
from sgsdump.tensors.kernels import kernel
from sgsdump.tensors.tensor import Values

# The kernel's numbers for types; integers mean numbers by a scale and a zero point.
_TYPES = (np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, np.int16, np.uint16)
_KINDS = {np.dtype(dtype): kind for kind, dtype in enumerate(_TYPES)}
_LARGEST_ZERO_POINT = 1 << 30
_LOCAL = threading.local()
_KERNEL = kernel("sgsdump.comparison.sums.kernel", INTERFACE=4, LANES=LANES, CHUNK=CHUNK)


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


def takes_both(sample: Values, benchmark: Values) -> bool:
    """Whether the kernel takes the two sides of a pair."""
    return takes(sample) and takes(benchmark)


class Side(NamedTuple):
    """A side of a pair: its values, the file they are a mapped view of, and what is picked up on the way."""

    values: Values
    file: OpenFile | None
    picked: Picked | None


# A pair that ``takes`` accepts, and the parts of it that are wanted.
Work = tuple[ToSum, list[list[Table]]]


def sums(works: Sequence[Work]) -> list[list[Part] | ValuesError]:
    """The sums of the parts of several pairs, all in one call without the GIL; an error for a pair one of whose files
    cannot be read. Flat tables of mapped files are read from these, which must not be more than are kept open."""
    assert _KERNEL is not None, "asked of pairs only that takes() accepts"
    with kept_open():
        found: list[Part | int] = _KERNEL.sums([part for work in works for part in _parts(*work)], _scratch())
    following = iter(found)
    return [_whole([next(following) for _ in parts]) for _, parts in works]


def _whole(results: list[Part | int]) -> list[Part] | ValuesError:
    parts = [result for result in results if not isinstance(result, int)]
    if len(parts) == len(results):
        return parts
    error = next(result for result in results if isinstance(result, int))
    why = OSError(error, os.strerror(error)) if error else "it is shorter than when it was opened"
    return ValuesError(f"a mapped file cannot be read any more: {why}")


def _parts(pair: ToSum, parts: list[list[Table]]) -> list[list[tuple]]:
    sample, benchmark, _, picked = pair
    wanted = picked if picked and pair.is_flat else (None, None)
    a, b = (Side(side, opened(side.array), one) for side, one in zip((sample, benchmark), wanted))
    return [[_table(a, b, table) for table in part] for part in parts]


def _table(sample: Side, benchmark: Side, table: Table) -> tuple:
    assert table.a.shape == table.b.shape
    sides = _described(sample, table.a, table.is_flat), _described(benchmark, table.b, table.is_flat)
    return *sides, (*table.a.shape, *table.tile)


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
