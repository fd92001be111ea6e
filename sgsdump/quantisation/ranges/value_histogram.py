"""How often a tensor takes which values, picture after picture: bins that merge exactly, so no range is needed first.

``2 * SIDE`` bins of equal width cover [-2^exponent, 2^exponent). A larger value doubles that span, again and again,
and neighbouring bins merge in pairs: what is counted is what counting all values at once would have given. Exact
zeros (Relu makes many, and every quantiser keeps them) are counted apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sgsdump.tensors.one_pass import compiled

# 8 to 16 bins to a UINT8 step of the range that the values fill; the SDK's histograms have 8160 bins in all.
SIDE = 4096
# Smaller values than 2^SMALLEST all count as that small: their bins would be narrower than float32 can tell apart.
SMALLEST = -100


@dataclass(frozen=True, eq=False)
class ValueHistogram:
    """``counts``: int64 [2 * SIDE], zeros left out; ``zeros``: how many values are exactly 0."""

    exponent: int
    counts: np.ndarray
    zeros: int

    @property
    def width(self) -> float:
        """Of one bin."""
        return math.ldexp(1.0, self.exponent) / SIDE

    @property
    def total(self) -> int:
        """How many values were counted."""
        return int(self.counts.sum()) + self.zeros

    def filled(self) -> tuple[np.ndarray, np.ndarray]:
        """Middles (float64) and counts of the bins that hold anything."""
        (at,) = np.nonzero(self.counts)
        return (at - SIDE + 0.5) * self.width, self.counts[at]

    def merged(self, other: ValueHistogram) -> ValueHistogram:
        """Both tensors' values counted together."""
        exponent = max(self.exponent, other.exponent)
        counts = _widened(self, exponent) + _widened(other, exponent)
        return ValueHistogram(exponent, counts, self.zeros + other.zeros)


def count_values(array: np.ndarray) -> ValueHistogram:
    """The histogram of finite values of a float array of any shape."""
    values = array.reshape(-1)
    values = values.astype(np.float32) if values.dtype == np.float16 else values
    if compiled.takes(values):
        counts = np.zeros(2 * SIDE, np.int64)
        exponent, zeros = compiled.count_in_bins(values, SMALLEST, counts)
        return ValueHistogram(exponent, counts, zeros)
    top = float(np.abs(values).max()) if values.size else 0.0
    exponent = max(math.frexp(top)[1], SMALLEST) if top else SMALLEST  # frexp(0) is 0: a span of 1
    # A power of two times a float is exact, and so is its floor.
    scale = math.ldexp(SIDE, -exponent)
    at = np.floor(values * values.dtype.type(scale)).astype(np.int32)
    at += SIDE
    counts = np.bincount(at, minlength=2 * SIDE)
    zeros = int(values.size - np.count_nonzero(values))
    counts[SIDE] -= zeros
    return ValueHistogram(exponent, counts, zeros)


def _widened(histogram: ValueHistogram, exponent: int) -> np.ndarray:
    """The counts in bins of the span 2^exponent."""
    doublings = exponent - histogram.exponent
    if not doublings:
        return histogram.counts
    counts = np.zeros_like(histogram.counts)
    np.add.at(counts, (np.arange(-SIDE, SIDE) >> min(doublings, 62)) + SIDE, histogram.counts)
    return counts
