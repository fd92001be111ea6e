"""One pass over a pair of tensors: every sum the metrics need, in chunks that stay in the cache.

A chunk is converted to float64 and summed by dot products, which is both exact enough to print the SDK's digits and
the fastest way measured (float32 sums print wrong digits; whole-array formulas read memory six times). The caller
pins BLAS to one thread: dot products of this size are slower with several, much slower on a busy machine.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence

import numpy as np

from sgsdump.comparison.metrics.base import Accumulator, Sums
from sgsdump.tensors.real_view import Values

CHUNK = 1 << 15
_LOCAL = threading.local()


def pair_sums(sample: Values, benchmark: Values, accumulators: Sequence[Accumulator] = ()) -> Sums:
    """The sums of two tensors of equal shape; accumulators are updated in the same pass, and in
    further passes if they ask for one."""
    p, q, r, ones = _workspace()
    aa = bb = ab = dd = d1 = b1 = 0.0
    odd = np.zeros(7, np.int64)
    wide = _are_wide(sample, benchmark)
    with np.errstate(all="ignore"):
        for a, b in chunks(sample.array, benchmark.array):
            n = a.size
            x, y, one = (p, q, ones) if n == CHUNK else (p[:n], q[:n], ones[:n])
            x[:] = a if sample.to_real is None else sample.to_real(a)
            y[:] = b if benchmark.to_real is None else benchmark.to_real(b)
            xx, yy = float(x.dot(x)), float(y.dot(y))
            ab += float(x.dot(y))
            if not math.isfinite(xx) or not math.isfinite(yy):
                odd += _not_finite(x, y)
            if accumulators or wide:
                d = _difference(a, b, wide, x, y, r[:n])
                _feed(accumulators, x, y, d)
                x[:] = d
            else:
                # in place: half the cache traffic of a third buffer
                np.subtract(x, y, out=x)
            dd += float(x.dot(x))
            np.absolute(x, out=x)
            np.absolute(y, out=y)
            aa, bb, d1, b1 = aa + xx, bb + yy, d1 + float(x.dot(one)), b1 + float(y.dot(one))
        _feed_again(sample, benchmark, accumulators, wide)
    counts = [int(n) for n in odd]
    return Sums(sample.array.size, aa, bb, ab, dd, d1, b1, *counts)


def hold_equal(sample: Values, benchmark: Values) -> bool:
    """Whether two tensors of equal shape hold the same values, -Inf among them; NaN equals nothing."""
    for a, b in chunks(sample.array, benchmark.array):
        x = a if sample.to_real is None else sample.to_real(a)
        y = b if benchmark.to_real is None else benchmark.to_real(b)
        if not np.array_equal(x, y):
            return False
    return True


def _feed_again(sample: Values, benchmark: Values, accumulators: Sequence[Accumulator], wide: bool) -> None:
    """Further passes, for the accumulators that want them."""
    p, q, r, _ = _workspace()
    waiting = [accumulator for accumulator in accumulators if accumulator.wants_again()]
    while waiting:
        for a, b in chunks(sample.array, benchmark.array):
            x, y = p[: a.size], q[: a.size]
            x[:] = a if sample.to_real is None else sample.to_real(a)
            y[:] = b if benchmark.to_real is None else benchmark.to_real(b)
            d = _difference(a, b, wide, x, y, r[: a.size])
            _feed(waiting, x, y, d)
        waiting = [accumulator for accumulator in waiting if accumulator.wants_again()]


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


def _workspace() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Three buffers and a vector of ones of CHUNK float64, the thread's own and kept: fresh pages cost a fifth more.

    They begin on cache lines: the processor's widest loads are slow where they cross one.
    """
    if not hasattr(_LOCAL, "buffers"):
        block = np.empty(4 * CHUNK + 8)
        start = -block.ctypes.data % 64 // 8
        p, q, r, ones = block[start : start + 4 * CHUNK].reshape(4, CHUNK)
        ones[:] = 1
        _LOCAL.buffers = p, q, r, ones
    return _LOCAL.buffers


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


def _not_finite(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The counts of ``Sums`` from ``sample_nan`` on."""
    nan, inf, minus = ([test(side) for side in (x, y)] for test in (np.isnan, np.isinf, np.isneginf))
    same = (x == y) | (nan[0] & nan[1])
    apart = (nan[0] | nan[1] | inf[0] | inf[1]) & ~same
    return np.array([np.count_nonzero(m) for m in (nan[0], inf[0], nan[1], inf[1], *minus, apart)])
