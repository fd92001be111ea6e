"""One pass over a pair of tensors: every sum the metrics need, in chunks that stay in the cache.

A chunk is converted to float64 and summed by dot products, which is both exact enough to print the SDK's digits and
the fastest way measured (float32 sums print wrong digits; whole-array formulas read memory six times). The caller
pins BLAS to one thread: dot products of this size are slower with several, much slower on a busy machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from sgsdump.metric import Sums

CHUNK = 1 << 15
_ONES = np.ones(CHUNK)


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
    p, q = np.empty(CHUNK), np.empty(CHUNK)
    total = np.zeros(6)
    odd = np.zeros(4, np.int64)
    with np.errstate(all="ignore"):
        for a, b in chunks(sample.array, benchmark.array):
            n = a.size
            x, y, ones = p[:n], q[:n], _ONES[:n]
            x[:] = a if sample.to_real is None else sample.to_real(a)
            y[:] = b if benchmark.to_real is None else benchmark.to_real(b)
            aa, bb, ab = x @ x, y @ y, x @ y
            if not math.isfinite(aa):
                odd[:2] += _not_finite(x)
            if not math.isfinite(bb):
                odd[2:] += _not_finite(y)
            # in place: half the cache traffic of a third buffer
            np.subtract(x, y, out=x)
            dd = x @ x
            np.abs(x, out=x)
            np.abs(y, out=y)
            total += (aa, bb, ab, dd, x @ ones, y @ ones)
    return Sums(sample.array.size, *map(float, total), *map(int, odd))


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
