"""One pass over a pair of tensors: every sum the metrics need, in chunks that stay in the cache.

A chunk is converted to float64 and summed by dot products, which is both exact enough to print the SDK's digits and
the fastest way measured (float32 sums print wrong digits; whole-array formulas read memory six times). The caller
pins BLAS to one thread: dot products of this size are slower with several, much slower on a busy machine.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from sgsdump.metric import Sums

CHUNK = 1 << 15
_LOCAL = threading.local()


@dataclass(frozen=True)
class Values:
    """Stored values and how a chunk of them becomes real ones (None: they are real as they lie).

    array may be memory-mapped, unaligned or a transposed view; it is never written to.
    """

    array: np.ndarray
    to_real: Callable[[np.ndarray], np.ndarray] | None = None

    def of(self, array: np.ndarray) -> Values:
        """The same meaning on another view of the values."""
        return Values(array, self.to_real)


def pair_sums(sample: Values, benchmark: Values) -> Sums:
    """The sums of two tensors of equal shape."""
    p, q, ones = _workspace()
    aa = bb = ab = dd = d1 = b1 = 0.0
    odd = np.zeros(4, np.int64)
    with np.errstate(all="ignore"):
        for a, b in chunks(sample.array, benchmark.array):
            n = a.size
            x, y, one = (p, q, ones) if n == CHUNK else (p[:n], q[:n], ones[:n])
            x[:] = a if sample.to_real is None else sample.to_real(a)
            y[:] = b if benchmark.to_real is None else benchmark.to_real(b)
            xx, yy = float(x.dot(x)), float(y.dot(y))
            ab += float(x.dot(y))
            if not math.isfinite(xx):
                odd[:2] += _not_finite(x)
            if not math.isfinite(yy):
                odd[2:] += _not_finite(y)
            # in place: half the cache traffic of a third buffer
            np.subtract(x, y, out=x)
            dd += float(x.dot(x))
            np.absolute(x, out=x)
            np.absolute(y, out=y)
            aa, bb, d1, b1 = aa + xx, bb + yy, d1 + float(x.dot(one)), b1 + float(y.dot(one))
    counts = [int(n) for n in odd]
    return Sums(sample.array.size, aa, bb, ab, dd, d1, b1, *counts)


def _workspace() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two buffers and a vector of ones of CHUNK float64, the thread's own and kept: fresh pages cost a fifth more.

    They begin on cache lines: the processor's widest loads are slow where they cross one.
    """
    if not hasattr(_LOCAL, "buffers"):
        block = np.empty(3 * CHUNK + 8)
        start = -block.ctypes.data % 64 // 8
        p, q, ones = block[start : start + 3 * CHUNK].reshape(3, CHUNK)
        ones[:] = 1
        _LOCAL.buffers = p, q, ones
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


def _not_finite(values: np.ndarray) -> tuple[int, int]:
    return int(np.isnan(values).sum()), int(np.isinf(values).sum())
