"""How a layer's values are drawn: in how many bins, and once for all layers that hold the same.

A histogram has fewer bins for few values, and for few different ones, which would be a comb: bins are joined with their
neighbours, by twos, as long as the columns stand apart.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping

import numpy as np

from sgsdump.comparison.binned import Binned, of_edges, shift_to
from sgsdump.comparison.details import Details
from sgsdump.comparison.distribution import Distribution

FEWEST = 16
# Of the values: what may stand in columns without neighbours, or is missing in gaps of a bin or two.
COMB = 0.1
LONGEST_GAP = 2


def enough(values: float, most: int) -> int:
    """How many bins are enough for so many values."""
    return min(most, max(FEWEST, math.ceil(4 * math.sqrt(values))))


def is_comb(counts: np.ndarray) -> bool:
    """True where columns that stand apart hold many of the values, or narrow gaps cut through them.

    An outlier here and there does not make a comb, nor do two humps with nothing between them.

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
    """Counts in bins of equal width as they are to be drawn: in ``most`` bins, or fewer; a power of two is joined."""
    limit = enough(float(counts.sum()), most)
    while len(counts) % 2 == 0 and (len(counts) > limit or (len(counts) > FEWEST and is_comb(counts))):
        counts = counts.reshape(-1, 2).sum(axis=1)
    return counts


def of_details(details: Details, most: int) -> Binned:
    """The counts of ``Details`` by value (sample, benchmark, error), in ``most`` bins or fewer."""
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


# Operators that move values and change none, as ONNX, Caffe and the SDK call them; without case and underscores.
MOVING = frozenset(
    "transpose permute reshape flatten squeeze unsqueeze expanddims identity dropout cast "
    "depthtospace spacetodepth shufflechannel viewcopy view contiguous".split()
)


def moves(op_type: str) -> bool:
    """Whether an operator only moves values.

    >>> moves("TRANSPOSE"), moves("ExpandDims"), moves("Relu")
    (True, True, False)
    """
    return op_type.replace("_", "").lower() in MOVING


class Copies:
    """Copies so far: ``of`` maps the index of each layer to that of the first one with the same values."""

    def __init__(self) -> None:
        self._first: dict[Hashable, int] = {}
        self.of: dict[int, int] = {}

    def add(self, index: int, op_type: str, values: Hashable) -> bool:
        """Whether the layer at this index is a copy; ``values`` is all that would be drawn of it."""
        original = self._first.setdefault(values, index)
        if original == index or not moves(op_type):
            return False
        self.of[index] = original
        return True


def drawn_values(layer: Distribution) -> Hashable:
    """A key that layers with the same histogram share; without finite values no two do."""
    stats = layer.stats
    figures = stats.count, stats.nan, stats.inf, stats.min, stats.max, layer.limits, layer.counts.tobytes()
    return figures if stats.finite else (layer.index, layer.name)


def also_of(copies: Mapping[int, int]) -> dict[int, list[int]]:
    """The other way round: index -> indices of its copies."""
    also: dict[int, list[int]] = {}
    for copy, original in copies.items():
        also.setdefault(original, []).append(copy)
    return also
