"""Statistics of one tensor, in chunks: nothing as large as the tensor is made, whatever its type, order or alignment.

Values become float64 chunk by chunk (``numpy.nditer`` does it for strided, unaligned and memory-mapped arrays alike).
NaN and Inf are counted and left out of every other figure. No BLAS: its threads make sums of 32 Ki elements slower.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

CHUNK = 32 * 1024


@dataclass(frozen=True)
class Stats:
    """One tensor in figures; all but ``count``, ``nan`` and ``inf`` are over the finite values, nan when none is.

    count   all elements, NaN and Inf included.
    nan     elements that are NaN; inf: elements that are +Inf or -Inf; minus_inf: those that are -Inf.
    min, max, mean   of the finite values.
    l2norm  square root of the sum of squares of the finite values.
    """

    count: int
    nan: int
    inf: int
    min: float
    max: float
    mean: float
    l2norm: float
    minus_inf: int = 0

    @property
    def finite(self) -> int:
        """How many elements are neither NaN nor Inf."""
        return self.count - self.nan - self.inf


def summarise(values: np.ndarray) -> Stats:
    """Count, extremes, mean and norm of an array of any shape and real dtype, in one pass.

    64-bit integers beyond 2**53 are rounded to float64. Sums that overflow float64 are taken again on scaled values.
    """
    nan = inf = minus_inf = 0
    low, high, total, squares = math.inf, -math.inf, 0.0, 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for chunk in _chunks(values):
            square = float(np.einsum("i,i->", chunk, chunk))
            if not math.isfinite(square):
                minus_inf += int(np.count_nonzero(chunk == -math.inf))
                chunk, nans, infs = _finite(chunk)
                nan, inf = nan + nans, inf + infs
                if not chunk.size:
                    continue
                square = float(np.einsum("i,i->", chunk, chunk))
            low, high = min(low, float(chunk.min())), max(high, float(chunk.max()))
            total += float(chunk.sum())
            squares += square
    finite = values.size - nan - inf
    if not finite:
        return Stats(values.size, nan, inf, math.nan, math.nan, math.nan, math.nan, minus_inf)
    if math.isfinite(squares):
        mean, l2norm = total / finite, math.sqrt(squares)
    else:
        mean, l2norm = _scaled_sums(values, finite, max(abs(low), abs(high)))
    return Stats(values.size, nan, inf, low, high, min(max(mean, low), high), l2norm, minus_inf)


def merged(parts: Iterable[Stats]) -> Stats:
    """The figures of a tensor whose parts have these; of none, those of an empty tensor."""
    parts = list(parts)
    count, nan, inf = (sum(getattr(part, name) for part in parts) for name in ("count", "nan", "inf"))
    minus_inf = sum(part.minus_inf for part in parts)
    known = [part for part in parts if part.finite]
    if not known:
        return Stats(count, nan, inf, math.nan, math.nan, math.nan, math.nan, minus_inf)
    finite = sum(part.finite for part in known)
    low, high = min(part.min for part in known), max(part.max for part in known)
    mean = math.fsum(part.mean * (part.finite / finite) for part in known)
    l2norm = math.hypot(*(part.l2norm for part in known))
    return Stats(count, nan, inf, low, high, min(max(mean, low), high), l2norm, minus_inf)


def histogram(values: np.ndarray, low: float, high: float, bins: int) -> np.ndarray:
    """int64 counts of the finite values of [low, high] in ``bins`` bins of equal width; values beyond are left out.

    Bin ``floor((x - low) / (high - low) * bins)``; high itself is in the last bin, and when low == high every value
    equal to it is in the middle bin. A value within rounding of an edge may count on either side of it.
    """
    counts = np.zeros(bins, np.int64)
    half = 0.5 if math.isinf(high - low) else 1.0
    origin, width = low * half, high * half - low * half
    for chunk in _chunks(values):
        if not (chunk.min() >= low and chunk.max() <= high):
            chunk = chunk[(chunk >= low) & (chunk <= high)]
        if width == 0:
            counts[bins // 2] += chunk.size
            continue
        place = chunk * half
        place -= origin
        place /= width
        place *= bins
        index = place.astype(np.int32)
        np.minimum(index, bins - 1, out=index)
        counts += np.bincount(index, minlength=bins)
    return counts


def count_outside(values: np.ndarray, low: float, high: float) -> int:
    """How many finite values lie below ``low`` or above ``high``."""
    outside = 0
    for chunk in _chunks(values):
        beyond = (chunk < low) | (chunk > high)
        if beyond.any():
            outside += int(np.count_nonzero(beyond & np.isfinite(chunk)))
    return outside


def central_span(counts: np.ndarray, low: float, high: float, share: float = 0.99) -> tuple[float, float]:
    """The interval that leaves at most ``(1 - share) / 2`` of the counted values out at each end, to one bin's width.

    counts are ``histogram``'s over [low, high]. Returns (nan, nan) when they are all zero.
    """
    below = np.cumsum(counts)
    total = int(below[-1]) if below.size else 0
    if not total:
        return math.nan, math.nan
    cut = (1 - share) / 2 * total
    first = int(np.searchsorted(below, cut, side="right"))
    last = int(np.searchsorted(below, total - cut, side="left"))
    step = high / len(counts) - low / len(counts)
    return low + first * step, min(low + (last + 1) * step, high)


def _chunks(values: np.ndarray) -> Iterator[np.ndarray]:
    """Non-empty 1-D float64 views of at most CHUNK elements, valid until the next one; in memory order."""
    flags = ["external_loop", "buffered", "zerosize_ok"]
    iterator = np.nditer(values, flags, [["readonly"]], np.float64, "K", "unsafe", buffersize=CHUNK)  # type: ignore
    with iterator:
        for chunk in iterator:
            if chunk.size:
                yield chunk


def _finite(chunk: np.ndarray) -> tuple[np.ndarray, int, int]:
    finite = chunk[np.isfinite(chunk)]
    nan = int(np.count_nonzero(np.isnan(chunk)))
    return finite, nan, chunk.size - finite.size - nan


def _scaled_sums(values: np.ndarray, finite: int, peak: float) -> tuple[float, float]:
    """Mean and norm of values whose squares overflow float64."""
    total = squares = 0.0
    for chunk in _chunks(values):
        part = _finite(chunk)[0] / peak
        total += float(part.sum())
        squares += float(np.einsum("i,i->", part, part))
    return total / finite * peak, math.sqrt(squares) * peak
