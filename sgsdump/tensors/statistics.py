"""Statistics of one tensor, in chunks: nothing as large as the tensor is made, whatever its type, order or alignment.

Values become float64 chunk by chunk (``numpy.nditer`` does it for strided, unaligned and memory-mapped arrays alike).
NaN and Inf are counted and left out of every other figure. No BLAS: its threads make sums of 32 Ki elements slower.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from sgsdump.tensors.one_pass import compiled

CHUNK = 32 * 1024
LARGEST = 65504.0  # of float16
_PART = 1 << 20


@dataclass(frozen=True)
class Statistics:
    """Figures of all of a tensor's values together, from a dump or computed; None in a field that is not known.

    min, max, mean   of the finite values; None when there is none.
    l2norm           square root of the sum of squares of the finite values.
    count            all elements, NaN and Inf included.
    nan, negative_inf, positive_inf   how many elements are not finite.
    checksum         of the values as they were dumped, after its kind: ``md5:1a2b3c4d``.

    Statistics that a run dumped have the rounding of their writer, and may follow its own rule for NaN and Inf.
    """

    min: float | None = None
    max: float | None = None
    mean: float | None = None
    l2norm: float | None = None
    count: int | None = None
    nan: int | None = None
    negative_inf: int | None = None
    positive_inf: int | None = None
    checksum: str | None = field(default=None, kw_only=True)

    @property
    def inf(self) -> int:
        """How many elements are known to be +Inf or -Inf."""
        return (self.negative_inf or 0) + (self.positive_inf or 0)

    @property
    def finite(self) -> int:
        """How many elements are neither NaN nor Inf; 0 when the count is not known."""
        return 0 if self.count is None else self.count - (self.nan or 0) - self.inf

    @property
    def span(self) -> tuple[float, float]:
        """min and max, NaN for one that is not known."""
        return math.nan if self.min is None else self.min, math.nan if self.max is None else self.max


def summarise(values: np.ndarray) -> Statistics:
    """All statistics of an array of any shape and real dtype, in one pass; None only where no value is finite.

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
    counts = (values.size, nan, minus_inf, inf - minus_inf)
    if not finite:
        return Statistics(None, None, None, None, *counts)
    if math.isfinite(squares):
        mean, l2norm = total / finite, math.sqrt(squares)
    else:
        mean, l2norm = _scaled_sums(values, finite, max(abs(low), abs(high)))
    return Statistics(low, high, min(max(mean, low), high), l2norm, *counts)


def merged(parts: Iterable[Statistics]) -> Statistics:
    """The statistics of a tensor from those that ``summarise`` gave of its parts; without parts, of an empty tensor."""
    parts = list(parts)
    counts = [sum(getattr(part, name) for part in parts) for name in ("count", "nan", "negative_inf", "positive_inf")]
    counted = [part for part in parts if part.finite]
    if not counted:
        return Statistics(None, None, None, None, *counts)
    finite = sum(part.finite for part in counted)
    low, high = min(part.span[0] for part in counted), max(part.span[1] for part in counted)
    mean = math.fsum((part.mean or 0.0) * (part.finite / finite) for part in counted)
    l2norm = math.hypot(*(part.l2norm or 0.0 for part in counted))
    return Statistics(low, high, min(max(mean, low), high), l2norm, *counts)


def saturated(values: np.ndarray) -> int:
    """How many values of a float16 array are ±65504, which devices put where the result is larger, instead of Inf.

    0 for an array of another type.
    """
    if values.dtype.kind != "f" or values.dtype.itemsize != 2:
        return 0
    flat = values.reshape(-1)
    parts = (flat[start : start + _PART] for start in range(0, flat.size, _PART))
    bits = (np.ascontiguousarray(part, np.float16).view(np.uint16) for part in parts)
    return sum(int(np.count_nonzero((part & 0x7FFF) == 0x7BFF)) for part in bits)


def histogram(values: np.ndarray, low: float, high: float, bins: int) -> np.ndarray:
    """int64 counts of the finite values of [low, high] in ``bins`` bins of equal width; values beyond are left out.

    Bin ``floor((x - low) / (high - low) * bins)``; high itself is in the last bin, and when low == high every value
    equal to it is in the middle bin. A value within rounding of an edge may count on either side of it.
    """
    counts = np.zeros(bins, np.int64)
    if low < high and compiled.takes(values):
        compiled.count_between(values, low, high, counts)
        return counts
    half = 0.5 if math.isinf(high - low) else 1.0
    origin, width = low * half, high * half - low * half
    for chunk in _chunks(values):
        if not (chunk.min() >= low and chunk.max() <= high):
            chunk = chunk[(chunk >= low) & (chunk <= high)]
        if width == 0:
            counts[bins // 2] += chunk.size
            continue
        position = chunk * half
        position -= origin
        position /= width
        position *= bins
        index = position.astype(np.int32)
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


def narrowest_span(counts: np.ndarray, low: float, high: float, share: float = 0.99) -> tuple[float, float]:
    """The narrowest interval that holds at least ``share`` of the counted values, to one bin's width; of several the
    one that leaves out about as many at either end. What is one-sided, as after a Relu, is cut at its far end alone.

    counts are ``histogram``'s over [low, high]. Returns (nan, nan) when they are all zero.
    """
    below = np.concatenate([[0], np.cumsum(counts)])
    total = int(below[-1])
    if not total:
        return math.nan, math.nan
    last = np.searchsorted(below, below[:-1] + math.ceil(share * total * (1 - 1e-12)), side="left")
    starts = np.flatnonzero(last < len(below))
    widths = last[starts] - starts
    ties = starts[widths == widths.min()]
    left_out = np.abs(below[ties] - (total - below[last[ties]]))
    first = int(ties[np.argmin(left_out)])
    step = high / len(counts) - low / len(counts)
    return low + first * step, min(low + int(last[first]) * step, high)


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
