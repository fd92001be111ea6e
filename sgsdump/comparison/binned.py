"""Counts in bins whose width is a power of two and whose edges are integer multiples of the width.

Such bins nest: two neighbours form one bin of the next width. The range thus need not be known in advance, one pass is
enough, and two sets of bins merge without loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

# float32 has 24 bits of precision: finer bins relative to the largest value would separate nothing.
_PRECISION = 24
_FINEST = -200


@dataclass(frozen=True, eq=False)
class Binned:
    """``rows`` (kinds of sums, bins) over bins of width 2**exponent; the first bin begins at first * 2**exponent.

    There are no bins if nothing was counted.
    """

    exponent: int
    first: int
    rows: np.ndarray

    @classmethod
    def nothing(cls, rows: int) -> Binned:
        return cls(_FINEST, 0, np.zeros((rows, 0)))

    @property
    def edges(self) -> tuple[float, float]:
        """Outer edges."""
        width = 2.0**self.exponent
        return self.first * width, (self.first + self.rows.shape[1]) * width

    def coarser(self, exponent: int) -> Binned:
        """Return the same sums in bins of width 2**exponent, which must be at least the current width."""
        shift, count = exponent - self.exponent, self.rows.shape[1]
        if not shift or not count:
            return Binned(exponent, self.first >> shift, self.rows)
        first, last = self.first >> shift, (self.first + count - 1) >> shift
        rows = np.zeros((len(self.rows), last - first + 1))
        starts = [max(((first + i) << shift) - self.first, 0) for i in range(last - first + 1)]
        np.add.reduceat(self.rows, starts, axis=1, out=rows)
        return Binned(exponent, first, rows)

    def plus(self, other: Binned, limit: int) -> Binned:
        """Return the sums of both in at most ``limit`` bins, as narrow as both allow."""
        if not other.rows.shape[1]:
            return self
        if not self.rows.shape[1]:
            return other
        exponent = max(self.exponent, other.exponent)
        ends = [end >> (exponent - binned.exponent) for binned in (self, other) for end in (binned.first, binned.last)]
        exponent += shift_to(min(ends), max(ends), limit)
        coarse, other_coarse = self.coarser(exponent), other.coarser(exponent)
        first, last = min(coarse.first, other_coarse.first), max(coarse.last, other_coarse.last)
        rows = np.zeros((len(self.rows), last - first + 1))
        for binned in (coarse, other_coarse):
            rows[:, binned.first - first : binned.last + 1 - first] += binned.rows
        return Binned(exponent, first, rows)

    @property
    def last(self) -> int:
        return self.first + self.rows.shape[1] - 1


def narrowest_bins(low: float, high: float, limit: int) -> tuple[int, int, int]:
    """Return exponent, first and last bin of the narrowest bins that cover low to high with at most ``limit`` bins."""
    exponent = max(math.frexp(max(abs(low), abs(high)))[1] - _PRECISION, _FINEST)
    first, last = (math.floor(math.ldexp(end, -exponent)) for end in (low, high))
    shift = shift_to(first, last, limit)
    return exponent + shift, first >> shift, last >> shift


def shift_to(first: int, last: int, limit: int) -> int:
    """Return how often neighbouring bins must be joined so that first to last need at most ``limit`` bins."""
    shift = 0
    while (last >> shift) - (first >> shift) >= limit:
        shift += 1
    return shift


def of_edges(edges: tuple[float, float], rows: np.ndarray) -> Binned:
    """Return the ``Binned`` with these outer edges and rows."""
    count = rows.shape[1]
    if not count:
        return Binned.nothing(len(rows))
    width = (edges[1] - edges[0]) / count
    return Binned(math.frexp(width)[1] - 1, round(edges[0] / width), rows)


def indices(values: np.ndarray, exponent: int, first: int) -> np.ndarray:
    """Return the bin of each value, counted from 0."""
    return (np.floor(values * 2.0**-exponent) - first).astype(np.int64)
