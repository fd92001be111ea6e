"""Statistics and histograms of one tensor, computed in chunks for any type, order and alignment.

``numpy.nditer`` converts values to float64 chunk by chunk, also for strided, unaligned and memory-mapped arrays. No
array as large as the tensor is allocated. NaN and Inf are counted and excluded from every other figure. BLAS is not
used: its threads make sums of 32 Ki elements slower.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from sgsdump.tensors.one_pass import compiled

CHUNK = 32 * 1024
LARGEST = 65504.0  # largest finite float16
_PART = 1 << 20


@dataclass(frozen=True)
class Statistics:
    """Statistics over all values of a tensor, computed or read from a dump. Unknown fields are None.

    Attributes
    ----------
    min, max, mean : float or None
        Over the finite values; None if no value is finite.
    l2norm : float or None
        Square root of the sum of squares of the finite values.
    count : int or None
        Number of all elements, including NaN and Inf.
    nan, negative_inf, positive_inf : int or None
        Number of NaN, -Inf and +Inf elements.
    checksum : str or None
        Checksum of the dumped values, with its kind as prefix: ``md5:1a2b3c4d``.
    l1norm : float or None
        Sum of magnitudes. Dumped by some tools only; ``summarise`` leaves it unknown (see ``l1norm_and_std``).
    std : float or None
        Standard deviation with the divisor n - 1, as torch computes it. Dumped by some tools only.
    digits : int or None
        Significant digits in which the dumping tool printed the numbers; None for full precision.

    Notes
    -----
    Statistics read from a dump were rounded by the tool that wrote them. The tool may treat NaN and Inf differently.
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
    l1norm: float | None = field(default=None, kw_only=True)
    std: float | None = field(default=None, kw_only=True)
    digits: int | None = field(default=None, kw_only=True)

    @property
    def inf(self) -> int:
        """Number of elements known to be +Inf or -Inf."""
        return (self.negative_inf or 0) + (self.positive_inf or 0)

    @property
    def finite(self) -> int:
        """Number of elements that are neither NaN nor Inf; 0 if the count is unknown."""
        return 0 if self.count is None else self.count - (self.nan or 0) - self.inf

    @property
    def span(self) -> tuple[float, float]:
        """Minimum and maximum as a tuple, with NaN for an unknown value."""
        return math.nan if self.min is None else self.min, math.nan if self.max is None else self.max


def summarise(values: np.ndarray) -> Statistics:
    """Compute all statistics of an array of any shape and real dtype in one pass.

    Fields are None only if no value is finite. 64-bit integers beyond 2**53 are rounded to float64. If the sum of
    squares overflows float64, sums are computed again on scaled values.
    """
    dense = compiled.in_memory_order(values)
    found = _summarise(values) if dense is None else compiled.summarise(dense, CHUNK)
    low, high, total, squares, nan, minus_inf, plus_inf = found
    finite = values.size - nan - minus_inf - plus_inf
    counts = (values.size, nan, minus_inf, plus_inf)
    if not finite:
        return Statistics(None, None, None, None, *counts)
    if math.isfinite(squares):
        mean, l2norm = total / finite, math.sqrt(squares)
    else:
        mean, l2norm = _scaled_sums(values, finite, max(abs(low), abs(high)))
    low, high = low + 0.0, high + 0.0  # a zero has no sign: which one numpy returns depends on the processor
    return Statistics(low, high, min(max(mean, low), high), l2norm, *counts)


def _summarise(values: np.ndarray) -> tuple[float, float, float, float, int, int, int]:
    """Return what ``compiled.summarise`` returns, for any array."""
    nan = minus_inf = plus_inf = 0
    low, high, total, squares = math.inf, -math.inf, 0.0, 0.0
    scratch = np.empty(CHUNK)
    with np.errstate(over="ignore", invalid="ignore"):
        for chunk in _chunks(values):
            square = float(np.square(chunk, out=scratch[: chunk.size]).sum())
            if not math.isfinite(square):
                minus_inf += int(np.count_nonzero(chunk == -math.inf))
                plus_inf += int(np.count_nonzero(chunk == math.inf))
                nan += int(np.count_nonzero(np.isnan(chunk)))
                chunk = chunk[np.isfinite(chunk)]
                if not chunk.size:
                    continue
                square = float(np.square(chunk, out=scratch[: chunk.size]).sum())
            low, high = min(low, float(chunk.min())), max(high, float(chunk.max()))
            total += float(chunk.sum())
            squares += square
    return low, high, total, squares, nan, minus_inf, plus_inf


def l1norm_and_std(values: np.ndarray, mean: float | None) -> tuple[float | None, float | None]:
    """Compute the sum of magnitudes and the standard deviation (divisor n - 1) of the finite values.

    ``mean`` is the mean of the finite values, as ``summarise`` returns it. Both results are None if no value is finite;
    the standard deviation of a single value is None too.
    """
    if mean is None:
        return None, None
    magnitudes = squares = 0.0
    finite = 0
    with np.errstate(over="ignore"):
        for part in _chunks(values):
            chunk = _finite(part)[0]
            magnitudes += float(np.abs(chunk).sum())
            squares += float(np.square(chunk - mean).sum())
            finite += chunk.size
    return magnitudes, math.sqrt(squares / (finite - 1)) if finite > 1 else None


def merged(parts: Iterable[Statistics]) -> Statistics:
    """Merge the statistics that ``summarise`` gave for parts of a tensor; without parts, describe an empty tensor."""
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
    """Count the values ±65504 in a float16 array, which devices write instead of Inf; 0 for any other type."""
    if values.dtype.kind != "f" or values.dtype.itemsize != 2:
        return 0
    flat = values.reshape(-1)
    parts = (flat[start : start + _PART] for start in range(0, flat.size, _PART))
    bits = (np.ascontiguousarray(part, np.float16).view(np.uint16) for part in parts)
    return sum(int(np.count_nonzero((part & 0x7FFF) == 0x7BFF)) for part in bits)


def histogram(values: np.ndarray, low: float, high: float, bins: int) -> np.ndarray:
    """Count the finite values within [low, high] in ``bins`` bins of equal width; return int64 counts.

    A value x belongs to bin ``floor((x - low) / (high - low) * bins)``; high belongs to the last bin. If low == high,
    equal values are counted in the middle bin. A value within rounding error of an edge may be counted on either side.
    """
    counts = np.zeros(bins, np.int64)
    dense = compiled.in_memory_order(values)
    if low < high and dense is not None:
        compiled.count_between(dense, low, high, counts)
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
    """Count the finite values below ``low`` or above ``high``."""
    dense = compiled.in_memory_order(values)
    if dense is not None:
        return compiled.count_outside(dense, low, high)
    outside = 0
    for chunk in _chunks(values):
        beyond = (chunk < low) | (chunk > high)
        if beyond.any():
            outside += int(np.count_nonzero(beyond & np.isfinite(chunk)))
    return outside


def narrowest_span(counts: np.ndarray, low: float, high: float, share: float = 0.99) -> tuple[float, float]:
    """Return the narrowest interval, to one bin, that holds at least ``share`` of the counted values.

    Among equally narrow intervals, the one that excludes about as many values at either end is chosen. One-sided
    values, such as those after a Relu, are clipped at the far end only. ``counts`` comes from ``histogram`` over [low,
    high]. Returns (nan, nan) if all counts are zero.
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
    """Yield non-empty 1-D float64 views of at most CHUNK elements in memory order, each valid until the next."""
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
    """Return mean and L2 norm of values whose squares overflow float64."""
    total = squares = 0.0
    for chunk in _chunks(values):
        part = _finite(chunk)[0] / peak
        total += float(part.sum())
        squares += float(np.square(part).sum())
    return total / finite * peak, math.sqrt(squares) * peak
