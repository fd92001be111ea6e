"""The sums of a pair of tensors that the metrics need, and what looks at every value besides.

``sums`` adds up, by the compiled kernel where it can and by numpy else, with the same digits, in float64 (float32 would
print wrong ones).
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from sgsdump.comparison.metrics.base import Accumulator, Sums
from sgsdump.comparison.sums import by_numpy, compiled
from sgsdump.comparison.sums.lanes import CHUNK, COUNTS, SUMS, Part
from sgsdump.comparison.sums.picked import Picked
from sgsdump.comparison.sums.tiles import Table, parts
from sgsdump.comparison.sums.to_sum import ToSum
from sgsdump.errors import ValuesError
from sgsdump.files.mapped import let_go
from sgsdump.tensors.tensor import Values

_MANY = 4  # parts that are worth threads of their own
_ONE_AT_A_TIME = threading.Lock()
_LOCAL = threading.local()


def pair_sums(
    sample: Values,
    benchmark: Values,
    accumulators: Sequence[Accumulator] = (),
    threads: int = 1,
    picked: tuple[Picked, Picked] | None = None,
) -> Sums:
    """The sums of two tensors of equal shape; accumulators see all values too, and again while they ask for it.

    Raises ValuesError for a mapped file that became shorter, or cannot be read.
    """
    [sums] = sums_of_each([ToSum(sample, benchmark, compiled.takes_both(sample, benchmark), picked)], threads)
    if isinstance(sums, ValuesError):
        raise sums
    feed_all(sample, benchmark, accumulators)
    return sums


def sums_of_each(pairs: Sequence[ToSum], threads: int = 1) -> Iterator[Sums | ValuesError]:
    """The sums of some pairs, in their order, or the error of a mapped file that became shorter or cannot be read.

    Those of one part that the kernel takes are summed in one call when the first is asked for, the others when it is
    their turn.

    threads  how many may add up the parts of a large pair; one such pair is on at a time. The mapped pages of a part
             that was read are given back, those of a small pair go with the last user of its values.
    """
    works = [list(parts(sample.array, benchmark.array)) for sample, benchmark, *_ in pairs]
    together = [len(work) == 1 and pair.by_kernel for pair, work in zip(pairs, works)]
    chosen = [(pair, work) for pair, work, is_one in zip(pairs, works, together) if is_one]
    found = iter(compiled.sums(chosen) if chosen else [])
    for pair, work, is_one in zip(pairs, works, together):
        results = next(found) if is_one else _by_part(pair, work, threads)
        yield results if isinstance(results, ValuesError) else _added_up(pair, results)


def _by_part(pair: ToSum, work: list[list[Table]], threads: int) -> list[Part] | ValuesError:
    """The sums of the parts one by one, or side by side."""

    def summed(part: list[Table]) -> Part:
        result = _one_of(compiled.sums([(pair, [part])])) if pair.by_kernel else by_numpy.part_sums(pair, part)
        for table in part if len(work) > 1 else []:
            if table.is_flat:
                let_go(table.a)
                let_go(table.b)
        return result

    try:
        return list(_side_by_side(summed, work, threads))
    except ValuesError as error:
        return error


def _one_of(results: list[list[Part] | ValuesError]) -> Part:
    [parts] = results
    if isinstance(parts, ValuesError):
        raise parts
    return parts[0]


def _added_up(pair: ToSum, results: list[Part]) -> Sums:
    for one in pair.picked or ():
        one.whole = pair.by_kernel and pair.is_flat
    sums, counts = [0.0] * SUMS, [0] * COUNTS
    for more_sums, more_counts in results:
        sums = list(map(operator.add, sums, more_sums))
        counts = list(map(operator.add, counts, more_counts))
    aa, bb, ab, dd, d1, b1 = sums
    return Sums(pair.sample.array.size, aa, bb, ab, dd, d1, b1, *counts)


def _side_by_side(summed: Callable[[list[Table]], Part], work: list[list[Table]], threads: int) -> Iterator[Part]:
    """The results in the order of the work."""
    if threads == 1 or len(work) < _MANY:
        yield from map(summed, work)
        return
    with _ONE_AT_A_TIME, ThreadPoolExecutor(threads) as pool:
        yield from pool.map(summed, work)


def hold_equal(sample: Values, benchmark: Values) -> bool:
    """Whether two tensors of equal shape hold the same values, -Inf among them; NaN equals nothing."""
    for a, b in chunks(sample.array, benchmark.array):
        x = a if sample.to_real is None else sample.to_real(a)
        y = b if benchmark.to_real is None else benchmark.to_real(b)
        if not np.array_equal(x, y):
            return False
    return True


def feed_all(sample: Values, benchmark: Values, accumulators: Sequence[Accumulator]) -> None:
    """All values to every accumulator, and again to those that ask for it."""
    if not accumulators:
        return
    waiting = list(accumulators)
    with np.errstate(all="ignore"):
        while waiting:
            for chunk in _float_chunks(sample, benchmark):
                _feed(waiting, *chunk)
            waiting = [accumulator for accumulator in waiting if accumulator.wants_again()]


def _float_chunks(sample: Values, benchmark: Values) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Chunks of real values in float64, and their difference, in buffers that the next chunk overwrites."""
    wide = by_numpy.are_wide(sample, benchmark)
    if not hasattr(_LOCAL, "buffers"):
        _LOCAL.buffers = np.empty((3, CHUNK))  # the thread's own, and kept: fresh pages cost a fifth more
    for a, b in chunks(sample.array, benchmark.array):
        x, y, d = _LOCAL.buffers[:, : a.size]
        x[:] = a if sample.to_real is None else sample.to_real(a)
        y[:] = b if benchmark.to_real is None else benchmark.to_real(b)
        yield x, y, by_numpy.difference(a, b, wide, x, y, d)


def _feed(accumulators: Sequence[Accumulator], *chunk: np.ndarray) -> None:
    """The chunk to every accumulator, as views that none can write to."""
    shown = [part.view() for part in chunk]
    for part in shown:
        part.flags.writeable = False
    for accumulator in accumulators:
        accumulator.add(*shown)


def chunks(a: np.ndarray, b: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Two arrays of equal shape as flat chunks of at most CHUNK values, in the same order."""
    if a.flags.c_contiguous and b.flags.c_contiguous:
        a, b = a.reshape(-1), b.reshape(-1)
        for start in range(0, a.size, CHUNK):
            yield a[start : start + CHUNK], b[start : start + CHUNK]
    elif a.size <= CHUNK:
        yield a.reshape(-1), b.reshape(-1)
    elif len(a) == 1:
        yield from chunks(a[0], b[0])
    else:
        rows = max(1, CHUNK * len(a) // a.size)
        for start in range(0, len(a), rows):
            yield from chunks(a[start : start + rows], b[start : start + rows])
