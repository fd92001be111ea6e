"""One pass over a pair of tensors: every sum the metrics need, in chunks that stay in the cache.

``sums`` adds them up, by the compiled kernel where it can and by numpy else, with the same digits (float32 sums would
print wrong ones).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import numpy as np

from sgsdump.comparison.metrics.base import Accumulator, Sums
from sgsdump.comparison.sums import compiled
from sgsdump.comparison.sums.lanes import CHUNK, Totals, add_chunk
from sgsdump.tensors.real_view import Values

_LOCAL = threading.local()


def pair_sums(sample: Values, benchmark: Values, accumulators: Sequence[Accumulator] = ()) -> Sums:
    """The sums of two tensors of equal shape; accumulators are updated in the same pass, and in
    further passes if they ask for one."""
    totals = Totals()
    if not accumulators and _for_kernel(sample, benchmark):
        compiled.add(totals, sample.array, benchmark.array)
    else:
        with np.errstate(all="ignore"):
            wide = _are_wide(sample, benchmark)
            for chunk in _float_chunks(sample, benchmark, wide):
                add_chunk(totals, *chunk)
                _feed(accumulators, *chunk)
            waiting = [accumulator for accumulator in accumulators if accumulator.wants_again()]
            while waiting:
                for chunk in _float_chunks(sample, benchmark, wide):
                    _feed(waiting, *chunk)
                waiting = [accumulator for accumulator in waiting if accumulator.wants_again()]
    aa, bb, ab, dd, d1, b1 = totals.sums()
    return Sums(sample.array.size, aa, bb, ab, dd, d1, b1, *totals.counts())


def hold_equal(sample: Values, benchmark: Values) -> bool:
    """Whether two tensors of equal shape hold the same values, -Inf among them; NaN equals nothing."""
    for a, b in chunks(sample.array, benchmark.array):
        x = a if sample.to_real is None else sample.to_real(a)
        y = b if benchmark.to_real is None else benchmark.to_real(b)
        if not np.array_equal(x, y):
            return False
    return True


def _for_kernel(sample: Values, benchmark: Values) -> bool:
    real_as_stored = sample.to_real is None and benchmark.to_real is None
    return real_as_stored and compiled.takes(sample.array, benchmark.array)


def _float_chunks(sample: Values, benchmark: Values, wide: bool) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Chunks of real values in float64, and their difference, in buffers that the next chunk overwrites."""
    p, q, r = _workspace()
    for a, b in chunks(sample.array, benchmark.array):
        x, y = p[: a.size], q[: a.size]
        x[:] = a if sample.to_real is None else sample.to_real(a)
        y[:] = b if benchmark.to_real is None else benchmark.to_real(b)
        yield x, y, _difference(a, b, wide, x, y, r[: a.size])


def _feed(accumulators: Sequence[Accumulator], *chunk: np.ndarray) -> None:
    """The chunk to every accumulator, as views that none can write to."""
    shown = [part.view() for part in chunk]
    for part in shown:
        part.flags.writeable = False
    for accumulator in accumulators:
        accumulator.add(*shown)


def _are_wide(sample: Values, benchmark: Values) -> bool:
    """True for integers whose difference float64 may lose: 64 bits, of one type, real as stored."""
    a, b = sample.array.dtype, benchmark.array.dtype
    return a == b and a.kind in "iu" and a.itemsize == 8 and sample.to_real is None and benchmark.to_real is None


def _difference(a: np.ndarray, b: np.ndarray, wide: bool, x: np.ndarray, y: np.ndarray, out: np.ndarray) -> np.ndarray:
    """x - y, in ``out``; of wide integers a - b, which is exact until it is rounded once."""
    if not wide:
        return np.subtract(x, y, out=out)
    # modulo 2**64 the larger less the smaller is their true distance
    larger, u, v = a >= b, a.astype(np.uint64), b.astype(np.uint64)
    out[:] = np.where(larger, u - v, v - u)
    return np.negative(out, out=out, where=~larger)


def _workspace() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three buffers of CHUNK float64, the thread's own and kept: fresh pages cost a fifth more.

    They begin on cache lines: the processor's widest loads are slow where they cross one.
    """
    if not hasattr(_LOCAL, "buffers"):
        block = np.empty(3 * CHUNK + 8)
        start = -block.ctypes.data % 64 // 8
        _LOCAL.buffers = tuple(block[start : start + 3 * CHUNK].reshape(3, CHUNK))
    buffers: tuple[np.ndarray, np.ndarray, np.ndarray] = _LOCAL.buffers
    return buffers


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
