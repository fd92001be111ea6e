"""Sums of pairs of tensors, and passes over all values for accumulators.

The compiled kernel sums at reading speed if it is installed and supports the pair; otherwise numpy gives the same
digits. All sums are in float64, because float32 would give wrong digits.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import add
from typing import NamedTuple

import ml_dtypes
import numpy as np

from sgsdump.comparison.metrics import Accumulator, Counts, Sums
from sgsdump.comparison.sums import by_numpy
from sgsdump.comparison.sums.tiles import (
    CHUNK,
    COUNTS,
    LANES,
    PART,
    SUMS,
    ChannelSums,
    Part,
    Picked,
    Table,
    ToSum,
    are_wide,
    parts,
)
from sgsdump.errors import ValuesError
from sgsdump.files.mapped import MappedFile, OpenFile, address_of, file_of, in_memory, kept_open, opened
from sgsdump.tensors.one_pass.compiled import kernel
from sgsdump.tensors.tensor import Values

# The kernel's type numbers; integers represent real values by scale and zero point.
_TYPES = (np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, np.int16, np.uint16)
_KINDS = {np.dtype(dtype): kind for kind, dtype in enumerate(_TYPES)}
_LARGEST_ZERO_POINT = 1 << 30
SHORT, PERIOD = 16, 8192  # constants of the kernel's source
_KERNEL = kernel("sgsdump.comparison.sums.kernel", INTERFACE=6, LANES=LANES, CHUNK=CHUNK)
_MANY = 4  # least number of parts for which threads pay off
_ONE_AT_A_TIME = threading.Lock()
_LOCAL = threading.local()
_NO_SUMS, _NO_COUNTS = [0.0] * SUMS, [0] * COUNTS


def description() -> str:
    """Return which implementation is in use, for ``sgsdump --version``."""
    return "numpy sums" if _KERNEL is None else f"compiled sums ({_KERNEL.vectors()})"


def takes(side: Values) -> bool:
    """Return whether the kernel exists and supports the type and its conversion to real values."""
    dtype = side.array.dtype
    if _KERNEL is None or dtype not in _KINDS:
        return False
    if side.to_real is None:
        return True
    return dtype.kind in "iu" and side.scaling is not None and abs(side.scaling.zero_point) <= _LARGEST_ZERO_POINT


def pair_sums(
    sample: Values,
    benchmark: Values,
    accumulators: Sequence[Accumulator] = (),
    threads: int = 1,
    picked: tuple[Picked, Picked] | None = None,
) -> Sums:
    """Return the sums of two tensors of equal shape; accumulators also see all values, repeatedly on request.

    Raises ValuesError for a mapped file that was truncated or cannot be read.
    """
    [sums] = sums_of_each([ToSum(sample, benchmark, takes(sample) and takes(benchmark), picked)], threads)
    if isinstance(sums, ValuesError):
        raise sums
    feed_all(sample, benchmark, accumulators)
    return sums


# Parts of a pair; None if the kernel can read it as a single row of contiguous values.
_Work = list[list[Table]] | None


def sums_of_each(pairs: Sequence[ToSum], threads: int = 1) -> Iterator[Sums | ValuesError]:
    """Yield the sums of pairs in order, or the error of a mapped file that was truncated or cannot be read.

    Pairs of one part that the kernel supports are summed in one call when the first result is requested, the others
    when it is their turn.

    threads  number of threads for the parts of a large pair; one such pair runs at a time. Mapped pages of a large
             pair's parts are released after reading; those of a small pair with the last user of its values.
    """
    pairs = [_laid_open(pair) for pair in pairs]
    works = [_work(pair) for pair in pairs]
    are_together = [work is None or (pair.by_kernel and len(work) == 1) for pair, work in zip(pairs, works)]
    summed = iter(_kernel_sums([item for item, chosen in zip(zip(pairs, works), are_together) if chosen]))
    for pair, work, is_summed in zip(pairs, works, are_together):
        results = next(summed) if is_summed else _by_part(pair, work or [], threads)
        yield results if isinstance(results, ValuesError) else _added_up(pair, results)


def _laid_open(pair: ToSum) -> ToSum:
    """Return the pair, loaded into memory if the reading order differs from the order in the mapped files.

    Such files are read through descriptors in one go.
    """
    if pair.is_flat:
        return pair
    sample, benchmark = (side.of(in_memory(side.array)) for side in (pair.sample, pair.benchmark))
    return pair._replace(sample=sample, benchmark=benchmark)


def _work(pair: ToSum) -> _Work:
    a, b = pair.sample.array, pair.benchmark.array
    is_row = pair.by_kernel and 0 < a.size <= PART and a.flags.c_contiguous and b.flags.c_contiguous
    return None if is_row else list(parts(a, b))


def _by_part(pair: ToSum, work: list[list[Table]], threads: int) -> list[Part] | ValuesError:
    """Return the sums of the parts, computed one by one or in parallel."""

    def summed(part: list[Table], channels: ChannelSums | None) -> Part:
        if pair.by_kernel:
            [results] = _kernel_sums([(pair._replace(channels=channels), [part])])
            if isinstance(results, ValuesError):
                raise results
            [result] = results
        else:
            result = by_numpy.part_sums(pair, part)
        return result

    shape, of_all = pair.sample.array.shape, pair.channels
    channels = [
        of_all and ChannelSums(shape, of_all.axis, of_all.skip) for _ in work
    ]  # one per part, because parts may run in parallel
    try:
        if threads == 1 or len(work) < _MANY:
            results = list(map(summed, work, channels))
        else:
            with _ONE_AT_A_TIME, ThreadPoolExecutor(threads) as pool:
                results = list(pool.map(summed, work, channels))
    except ValuesError as error:
        return error
    if of_all is not None:
        for of_part in channels:
            of_all.totals += 0.0 if of_part is None else of_part.totals
        if not pair.by_kernel:
            _add_channels(pair, of_all)
    return results


def _add_channels(pair: ToSum, channels: ChannelSums) -> None:
    """Add the sums of the channels if the kernel does not exist or does not support the pair."""
    start, channels.skip = 0, 1
    with np.errstate(all="ignore"):
        for _, b, d in _float_chunks(pair.sample, pair.benchmark):
            of = (np.arange(start, start + b.size) // channels.inner) % channels.count
            for total, values in zip(channels.totals, (d, b)):
                total += np.bincount(of, np.abs(values), channels.count)
            start += b.size


def _added_up(pair: ToSum, results: list[Part]) -> Sums:
    for picked in pair.picked or ():
        picked.whole = pair.by_kernel and pair.is_flat
    if pair.channels is not None:
        pair.channels.whole = True
    sums, counts = _NO_SUMS, _NO_COUNTS
    for part_sums, part_counts in results:
        sums, counts = list(map(add, sums, part_sums)), list(map(add, counts, part_counts))
    aa, bb, ab, dd, d1, b1 = sums
    return Sums(pair.sample.array.size, aa, bb, ab, dd, d1, b1, Counts(*counts))


# Kernel interface: addresses, strides and files of the values to sum.


class _Side(NamedTuple):
    """Side of a pair: its values, the mapped file behind them, and the values to pick up."""

    values: Values
    file: OpenFile | None
    picked: Picked | None

    def row(self) -> tuple[float, ...]:
        """Return the description of all values as one contiguous row."""
        array = self.values.array
        address, size = address_of(array), array.itemsize
        picked = (0, 0, 0, 0) if self.picked is None else _wanted(self.picked, array, array)
        return self._described(address, (array.size * size, size), True, picked)

    def table(self, array: np.ndarray, is_flat: bool) -> tuple[float, ...]:
        picked = _wanted(self.picked, self.values.array, array) if self.picked and is_flat else (0, 0, 0, 0)
        return self._described(address_of(array), array.strides, is_flat, picked)

    def _described(
        self, address: int, strides: tuple[int, ...], is_flat: bool, picked: tuple[int, ...]
    ) -> tuple[float, ...]:
        values, file = self.values, self.file
        scale, zero_point = (1.0, 0) if values.scaling is None else (values.scaling.scale, values.scaling.zero_point)
        source = (file.descriptor, address - file.address) if file and is_flat else (-1, 0)
        return address, _KINDS[values.array.dtype], *strides, scale, zero_point, *source, *picked


def _kernel_sums(works: Sequence[tuple[ToSum, _Work]]) -> list[list[Part] | ValuesError]:
    """Return the sums of all parts in one call without the GIL, or an error for a pair whose file cannot be read.

    All pairs must satisfy ``takes``. Flat tables of mapped files are read from the files, whose number must not exceed
    the number of files kept open.
    """
    if not works:
        return []
    assert _KERNEL is not None, "takes() must accept both sides"
    with kept_open():
        files: dict[MappedFile | None, OpenFile | None] = {None: None}
        described = [_described_parts(pair, work, files) for pair, work in works]
        results = iter(_KERNEL.sums([part for pair_parts in described for part in pair_parts], _scratch()))
        summed = [_whole([next(results) for _ in pair_parts]) for pair_parts in described]
        for file in filter(None, files.values()):
            file.check()
    return summed


def _whole(results: list[Part | int]) -> list[Part] | ValuesError:
    parts = [result for result in results if not isinstance(result, int)]
    if len(parts) == len(results):
        return parts
    error = next(result for result in results if isinstance(result, int))
    why = OSError(error, os.strerror(error)) if error else "it is shorter than when it was opened"
    return ValuesError(f"a mapped file can no longer be read: {why}")


def _described_parts(pair: ToSum, work: _Work, files: dict[MappedFile | None, OpenFile | None]) -> list[list[tuple]]:
    """Return the kernel's description of the parts; ``files`` collects the files to read."""
    picked = pair.picked if pair.picked and pair.is_flat else (None, None)
    a, b = (
        _Side(side, _opened(side.array, files), of_side) for side, of_side in zip((pair.sample, pair.benchmark), picked)
    )
    if work is None:
        size = pair.sample.array.size
        return [[(a.row(), b.row(), (1, size, 1, min(size, CHUNK)), _channels_of_row(pair.channels, 0))]]
    return [
        [(a.table(t.a, t.is_flat), b.table(t.b, t.is_flat), (*t.a.shape, *t.tile), _channels_of(pair, t)) for t in part]
        for part in work
    ]


def _opened(array: np.ndarray, files: dict[MappedFile | None, OpenFile | None]) -> OpenFile | None:
    """Return the open file behind an array; a batch has no more files than are kept open, so each is opened once."""
    data = file_of(array)
    if data not in files:
        files[data] = opened(array)
    return files[data]


_NO_CHANNELS = (0, 0, 1, 0, 0)
_BY_COLUMNS, _BY_ROWS = -1, -2


def _channels_of_row(channels: ChannelSums | None, first: int) -> tuple[int, ...]:
    return (
        (channels.inner, channels.count, channels.skip, first, address_of(channels.totals))
        if channels
        else _NO_CHANNELS
    )


def _channels_of(pair: ToSum, table: Table) -> tuple[int, ...]:
    """Return the kernel's description of the channels of a table."""
    channels, array = pair.channels, pair.sample.array
    if channels is None:
        return _NO_CHANNELS
    if pair.is_flat:
        return _channels_of_row(channels, (address_of(table.a) - address_of(array)) // array.itemsize)
    return (
        _BY_ROWS if channels.inner > 1 else _BY_COLUMNS,
        channels.count,
        channels.skip,
        0,
        address_of(channels.totals),
    )


def sums_channels(pair: ToSum, axis: int) -> bool:
    """Return whether the sums of the channels along this axis are available.

    All values must be contiguous, or in tables whose rows or columns are the channels.
    """
    array = pair.sample.array
    if pair.is_flat:
        return math.prod(array.shape[axis + 1 :]) >= SHORT or math.prod(array.shape[axis:]) <= PERIOD
    if array.ndim != 4 or 1 in array.shape[1:] or not pair.by_kernel or array.size > PART:
        return False
    tables = [table for part in parts(array, pair.benchmark.array) for table in part]
    side = 1 if axis == 3 else 0
    return all(table.a.shape[side] == array.shape[axis] <= PERIOD for table in tables)


def judged_channels(
    channels: ChannelSums, floor: float, lost: float, median: float, common: float
) -> tuple[int, int, float] | bool | None:
    """Return the kernel's judgement by the rules of ``channels.py``; False without a kernel."""
    if _KERNEL is None:
        return False
    judged: tuple[int, int, float] | None = _KERNEL.judged(
        address_of(channels.totals), channels.count, floor, lost, median, common
    )
    return judged


def _wanted(picked: Picked, whole: np.ndarray, part: np.ndarray) -> tuple[int, ...]:
    """Return what to pick up from a part: indices, their number, the target address, and the start of the part."""
    indices, values = address_of(picked.places), address_of(picked.values)
    if part.size == whole.size:
        return indices, len(picked.places), values, 0
    start = (address_of(part) - address_of(whole)) // whole.itemsize
    first, last = np.searchsorted(picked.places, (start, start + part.size)).tolist()
    return indices + 8 * first, last - first, values + 4 * first, start


def _scratch() -> int:
    """Return the address of the thread's buffer for four chunks (values read and packed, for both sides).

    The buffer is kept per thread and aligned to a cache line.
    """
    if not hasattr(_LOCAL, "scratch"):
        _LOCAL.block = np.empty(4 * CHUNK + 16, np.float32)
        _LOCAL.scratch = -(-address_of(_LOCAL.block) // 64) * 64
    scratch: int = _LOCAL.scratch
    return scratch


# Passes over all values.


def hold_equal(sample: Values, benchmark: Values) -> bool:
    """Return whether two tensors of equal shape hold the same values, including -Inf; NaN equals nothing."""
    for a, b in chunks(sample.array, benchmark.array):
        x = a if sample.to_real is None else sample.to_real(a)
        y = b if benchmark.to_real is None else benchmark.to_real(b)
        if not np.array_equal(x, y):
            return False
    return True


def feed_all(sample: Values, benchmark: Values, accumulators: Sequence[Accumulator]) -> None:
    """Pass all values to every accumulator in read-only chunks, and again to those that request another pass."""
    waiting = list(accumulators)
    with np.errstate(all="ignore"):
        while waiting:
            for chunk in _float_chunks(sample, benchmark):
                shown = [part.view() for part in chunk]
                for part in shown:
                    part.flags.writeable = False
                for accumulator in waiting:
                    accumulator.add(*shown)
            waiting = [accumulator for accumulator in waiting if accumulator.wants_again()]


def _float_chunks(sample: Values, benchmark: Values) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield chunks of real float64 values and their difference, in buffers that the next chunk overwrites."""
    wide = are_wide(sample, benchmark)
    if not hasattr(_LOCAL, "buffers"):
        _LOCAL.buffers = np.empty((3, CHUNK))  # kept per thread: fresh pages cost a fifth more time
    for a, b in chunks(sample.array, benchmark.array):
        x, y, d = _LOCAL.buffers[:, : a.size]
        x[:] = a if sample.to_real is None else sample.to_real(a)
        y[:] = b if benchmark.to_real is None else benchmark.to_real(b)
        yield x, y, by_numpy.difference(a, b, wide, x, y, d)


def chunks(a: np.ndarray, b: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield two arrays of equal shape as flat chunks of at most CHUNK values, in the same order."""
    if a.flags.c_contiguous and b.flags.c_contiguous:
        a, b = a.reshape(-1), b.reshape(-1)
        with kept_open():
            for start in range(0, a.size, CHUNK):
                yield in_memory(a[start : start + CHUNK]), in_memory(b[start : start + CHUNK])
        return
    a, b = in_memory(a), in_memory(b)
    if a.flags.c_contiguous and b.flags.c_contiguous:
        yield from chunks(a, b)
    elif a.size <= CHUNK:
        yield a.reshape(-1), b.reshape(-1)
    elif len(a) == 1:
        yield from chunks(a[0], b[0])
    else:
        rows = max(1, CHUNK * len(a) // a.size)
        for start in range(0, len(a), rows):
            yield from chunks(a[start : start + rows], b[start : start + rows])
