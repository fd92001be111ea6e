"""What calibration keeps of a picture's tensors: statistics that merge, so that memory does not grow with the pictures.

One picture's statistics are merged in the pictures' order wherever they were computed, so one process and many give
the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from sgsdump.errors import InputError
from sgsdump.quantisation.ranges.value_histogram import ValueHistogram, count_values


@dataclass(frozen=True)
class Wanted:
    """Which statistics to keep of which tensors, beside every float tensor's minimum and maximum.

    histograms  tensors whose values are counted.
    moments     inputs of convolutions -> the axis of their channels: mean and energy per channel.
    channels    outputs of convolutions -> the axis of their channels: minimum and maximum per channel.
    softmax     inputs of softmaxes -> its axis: how far below their maximum values lie.
    """

    histograms: frozenset[str] = frozenset()
    moments: Mapping[str, int] = field(default_factory=dict)
    channels: Mapping[str, int] = field(default_factory=dict)
    softmax: Mapping[str, int] = field(default_factory=dict)


PLAIN = Wanted()


@dataclass(frozen=True, eq=False)
class Moments:
    """Per channel (float64 [C]): sum and sum of squares of ``count`` values each."""

    sums: np.ndarray
    squares: np.ndarray
    count: int

    def merged(self, other: Moments) -> Moments:
        return Moments(self.sums + other.sums, self.squares + other.squares, self.count + other.count)


@dataclass(frozen=True, eq=False)
class Extremes:
    """Lowest and highest values: arrays of one shape, () for a whole tensor or [C] per channel."""

    low: np.ndarray
    high: np.ndarray

    def merged(self, other: Extremes) -> Extremes:
        return Extremes(np.minimum(self.low, other.low), np.maximum(self.high, other.high))


@dataclass(frozen=True, eq=False)
class Statistics:
    """Statistics by tensor name; all but ``whole`` hold what ``Wanted`` names. ``below``: x - max(x) of a
    softmax's input x."""

    whole: dict[str, Extremes]
    histograms: dict[str, ValueHistogram]
    moments: dict[str, Moments]
    channels: dict[str, Extremes]
    below: dict[str, Extremes]

    def merged(self, other: Statistics) -> Statistics:
        """Both together. Raises InputError for a tensor whose number of channels changes with the picture."""
        return Statistics(
            _both(self.whole, other.whole),
            _both(self.histograms, other.histograms),
            _both(self.moments, other.moments),
            _both(self.channels, other.channels),
            _both(self.below, other.below),
        )


def merge(parts: list[Statistics]) -> Statistics:
    """All together, in their order."""
    return reduce(Statistics.merged, parts)


class Collector:
    """Observes one picture's tensors one by one and keeps their ``statistics``."""

    def __init__(self, wanted: Wanted, label: str):
        self.wanted, self.label = wanted, label
        self.statistics = Statistics({}, {}, {}, {}, {})

    def see(self, name: str, array: np.ndarray) -> None:
        """Raises InputError when the tensor holds NaN or infinity, which have no range."""
        if array.dtype.kind != "f" or not array.size:
            return
        wanted, kept = self.wanted, self.statistics
        low, high = array.min(), array.max()
        if not (np.isfinite(low) and np.isfinite(high)):
            raise InputError(
                f"tensor {name!r} holds NaN or infinity on {self.label}, so it has no range; dump the float model on "
                f"this input and look for the first layer with NaN or Inf"
            )
        kept.whole[name] = Extremes(np.asarray(low, np.float64), np.asarray(high, np.float64))
        if name in wanted.histograms:
            kept.histograms[name] = count_values(array)
        if name in wanted.moments:
            kept.moments[name] = _moments(array, wanted.moments[name])
        if name in wanted.channels:
            rows = _by_channel(array, wanted.channels[name])
            kept.channels[name] = Extremes(rows.min(axis=1).astype(np.float64), rows.max(axis=1).astype(np.float64))
        if name in wanted.softmax:
            below = array - array.max(axis=wanted.softmax[name], keepdims=True)
            kept.below[name] = Extremes(np.asarray(below.min(), np.float64), np.asarray(below.max(), np.float64))


def _both(mine: dict, other: dict) -> dict:
    result = dict(mine)
    for name, statistics in other.items():
        if name not in result:
            result[name] = statistics
            continue
        try:
            result[name] = result[name].merged(statistics)
        except ValueError as error:
            raise InputError(f"tensor {name!r} has another number of channels on another picture: {error}") from error
    return result


def _by_channel(array: np.ndarray, axis: int) -> np.ndarray:
    """[C, values of each]."""
    return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)


def _moments(array: np.ndarray, axis: int) -> Moments:
    rows = np.ascontiguousarray(_by_channel(array, axis), np.float64)
    return Moments(rows.sum(axis=1), np.einsum("ij,ij->i", rows, rows), rows.shape[1])
