"""In how many bins a histogram is drawn: fewer for few values, and fewer for few different ones, which would be a comb.

Bins are joined with their neighbours, by twos, as long as the columns stand apart.
"""

from __future__ import annotations

import math

import numpy as np

from sgsdump.comparison.binned import Binned, of_edges, shift_to
from sgsdump.comparison.details import Details

FEWEST = 16
# Of the values: what may stand in columns without neighbours, or is missing in gaps of a bin or two.
COMB = 0.1
LONGEST_GAP = 2


def enough(values: float, most: int) -> int:
    """How many bins are enough for so many values."""
    return min(most, max(FEWEST, math.ceil(4 * math.sqrt(values))))


def is_comb(counts: np.ndarray) -> bool:
    """True where columns that stand apart hold many of the values, or narrow gaps cut through them.

    An outlier here and there is no comb, nor are two humps with nothing between them.

    >>> is_comb(np.array([5, 0, 5, 0, 5, 0, 5])), is_comb(np.array([40, 30, 20, 10, 0, 0, 1]))
    (True, False)
    """
    used = np.concatenate([[False], counts > 0, [False]])
    apart = used[1:-1] & ~used[:-2] & ~used[2:]
    total = counts.sum()
    if np.count_nonzero(apart) > 2 and counts[apart].sum() > COMB * total:
        return True
    places = np.flatnonzero(counts)
    gaps = np.diff(places) - 1
    narrow = (gaps > 0) & (gaps <= LONGEST_GAP)
    missing = np.minimum(counts[places[:-1]], counts[places[1:]])[narrow] * gaps[narrow]
    return bool(missing.sum() > COMB * total)


def joined(counts: np.ndarray, most: int) -> np.ndarray:
    """Counts in bins of equal width as they are to be drawn: in ``most`` bins, or fewer; a power of two is joined."""
    limit = enough(float(counts.sum()), most)
    while len(counts) % 2 == 0 and (len(counts) > limit or (len(counts) > FEWEST and is_comb(counts))):
        counts = counts.reshape(-1, 2).sum(axis=1)
    return counts


def of_details(details: Details, most: int) -> Binned:
    """What ``Details`` counts by value (sample, benchmark, error), in ``most`` bins or fewer."""
    bins = of_edges(details.edges, np.stack([details.sample, details.benchmark, details.error_by_value]))
    if not bins.rows.shape[1]:
        return bins
    bins = bins.coarser(bins.exponent + shift_to(bins.first, bins.last, enough(float(details.benchmark.sum()), most)))
    while bins.rows.shape[1] > FEWEST and any(is_comb(row) for row in bins.rows[:2]):
        bins = bins.coarser(bins.exponent + 1)
    return bins


def of_errors(details: Details, most: int) -> Binned:
    """The counts of sample - benchmark, in ``most`` bins or fewer."""
    bins = of_edges(details.error_edges, details.errors[None])
    limit = enough(float(details.errors.sum()), most)
    return bins.coarser(bins.exponent + shift_to(bins.first, bins.last, limit)) if bins.rows.shape[1] else bins
