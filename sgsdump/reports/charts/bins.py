"""Bins of histograms, and layers with equal values, which are drawn once.

A histogram has fewer bins for few values. Few different values would look like a comb, so pairs of neighbouring bins
are joined as long as the columns stand apart.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping

import numpy as np

from sgsdump.comparison.binned import Binned, of_edges, shift_to
from sgsdump.comparison.details import Details
from sgsdump.comparison.distribution import Distribution

FEWEST = 16
# Share of the values that may be in columns without neighbours, or that may be missing in gaps of one or two bins.
COMB = 0.1
LONGEST_GAP = 2


def enough(values: float, most: int) -> int:
    """Return the number of bins for a number of values."""
    return min(most, max(FEWEST, math.ceil(4 * math.sqrt(values))))


def is_comb(counts: np.ndarray) -> bool:
    """Return whether many of the values are in isolated columns, or narrow gaps separate the columns.

    A few outliers are not a comb, nor are two peaks with an empty range between them.

    >>> is_comb(np.array([5, 0, 5, 0, 5, 0, 5])), is_comb(np.array([40, 30, 20, 10, 0, 0, 1]))
    (True, False)
    """
    used = np.concatenate([[False], counts > 0, [False]])
    alone = used[1:-1] & ~used[:-2] & ~used[2:]
    total = counts.sum()
    if np.count_nonzero(alone) > 2 and counts[alone].sum() > COMB * total:
        return True
    columns = np.flatnonzero(counts)
    gaps = np.diff(columns) - 1
    narrow = (gaps > 0) & (gaps <= LONGEST_GAP)
    missing = np.minimum(counts[columns[:-1]], counts[columns[1:]])[narrow] * gaps[narrow]
    return bool(missing.sum() > COMB * total)


def joined(counts: np.ndarray, most: int) -> np.ndarray:
    """Return the counts of bins of equal width, joined by powers of two into at most ``most`` bins."""
    limit = enough(float(counts.sum()), most)
    while len(counts) % 2 == 0 and (len(counts) > limit or (len(counts) > FEWEST and is_comb(counts))):
        counts = counts.reshape(-1, 2).sum(axis=1)
    return counts


def of_details(details: Details, most: int) -> Binned:
    """Return the counts of ``Details`` by value (sample, benchmark, error), in at most ``most`` bins."""
    bins = of_edges(details.edges, np.stack([details.sample, details.benchmark, details.error_by_value]))
    if not bins.rows.shape[1]:
        return bins
    bins = bins.coarser(bins.exponent + shift_to(bins.first, bins.last, enough(float(details.benchmark.sum()), most)))
    while bins.rows.shape[1] > FEWEST and any(is_comb(row) for row in bins.rows[:2]):
        bins = bins.coarser(bins.exponent + 1)
    return bins


def of_errors(details: Details, most: int) -> Binned:
    """Return the counts of sample - benchmark, in at most ``most`` bins."""
    bins = of_edges(details.error_edges, details.errors[None])
    limit = enough(float(details.errors.sum()), most)
    return bins.coarser(bins.exponent + shift_to(bins.first, bins.last, limit)) if bins.rows.shape[1] else bins


# Operators that move values without changing them (ONNX, Caffe, SDK), in lower case without underscores.
MOVING = frozenset(
    "transpose permute reshape flatten squeeze unsqueeze expanddims identity dropout cast "
    "depthtospace spacetodepth shufflechannel viewcopy view contiguous".split()
)


def moves(op_type: str) -> bool:
    """Return whether an operator only moves values.

    >>> moves("TRANSPOSE"), moves("ExpandDims"), moves("Relu")
    (True, True, False)
    """
    return op_type.replace("_", "").lower() in MOVING


class Copies:
    """Layers that are copies; ``of`` maps the index of a copy to the index of the first layer with the same values."""

    def __init__(self) -> None:
        self._first: dict[Hashable, int] = {}
        self.of: dict[int, int] = {}

    def add(self, index: int, op_type: str, values: Hashable) -> bool:
        """Add a layer and return whether it is a copy; ``values`` is a key of everything that its image shows."""
        original = self._first.setdefault(values, index)
        if original == index or not moves(op_type):
            return False
        self.of[index] = original
        return True


def drawn_values(layer: Distribution) -> Hashable:
    """Return a key that is equal for layers with equal histograms; unique for layers without finite values."""
    stats = layer.stats
    figures = stats.count, stats.nan, stats.inf, stats.min, stats.max, layer.limits, layer.counts.tobytes()
    return figures if stats.finite else (layer.index, layer.name)


def also_of(copies: Mapping[int, int]) -> dict[int, list[int]]:
    """Return the inverse mapping: index -> indices of its copies."""
    also: dict[int, list[int]] = {}
    for copy, original in copies.items():
        also.setdefault(original, []).append(copy)
    return also
