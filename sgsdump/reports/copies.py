"""Layers that hold the values of an earlier one in another order or shape, to be drawn once."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from sgsdump.comparison.distribution import Distribution

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
    """Copies found so far: ``of`` has the place of each, and that of the first layer with the same values."""

    def __init__(self) -> None:
        self._first: dict[Hashable, int] = {}
        self.of: dict[int, int] = {}

    def add(self, place: int, op_type: str, values: Hashable) -> bool:
        """Whether the layer at this place is a copy; ``values`` is all that would be drawn of it."""
        original = self._first.setdefault(values, place)
        if original == place or not moves(op_type):
            return False
        self.of[place] = original
        return True


def drawn_values(layer: Distribution) -> Hashable:
    """What tells the histogram of one tensor from that of another; of no finite values nothing is known."""
    stats = layer.stats
    figures = stats.count, stats.nan, stats.inf, stats.min, stats.max, layer.limits, layer.counts.tobytes()
    return figures if stats.finite else (layer.index, layer.name)


def also_of(copies: Mapping[int, int]) -> dict[int, list[int]]:
    """The other way round: place -> places of its copies."""
    also: dict[int, list[int]] = {}
    for copy, original in copies.items():
        also.setdefault(original, []).append(copy)
    return also
