"""What calibration keeps of a picture's tensors: statistics that merge, so that memory does not grow with the pictures.

One picture's statistics are merged in the pictures' order wherever they were computed, so one process and many give
the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple

import numpy as np

from sgsdump.errors import InputError
from sgsdump.quantisation.ranges.value_histogram import ValueHistogram, count_values
from sgsdump.tensors.one_pass.extremes import extremes

# Tensors wait until so much of them is there, and are looked at together: they still lie in the processor's cache.
WAITING_BYTES = 4 << 20


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

    @property
    def names(self) -> set[str]:
        """Of all tensors that something is kept of."""
        return {*self.histograms, *self.moments, *self.channels, *self.softmax}


PLAIN = Wanted()


@dataclass(frozen=True, eq=False)
class Moments:
    """Per channel (float64 [C]): sum and sum of squares of ``count`` values each."""

    sums: np.ndarray
    squares: np.ndarray
    count: int

    def merged(self, other: Moments) -> Moments:
        return Moments(self.sums + other.sums, self.squares + other.squares, self.count + other.count)


class Extremes(NamedTuple):
    """Lowest and highest value of a tensor."""

    low: float
    high: float

    def merged(self, other: Extremes) -> Extremes:
        return Extremes(min(self.low, other.low), max(self.high, other.high))


class ChannelExtremes(NamedTuple):
    """Lowest and highest value of each channel (float64 [C])."""

    low: np.ndarray
    high: np.ndarray

    def merged(self, other: ChannelExtremes) -> ChannelExtremes:
        return ChannelExtremes(np.minimum(self.low, other.low), np.maximum(self.high, other.high))


@dataclass(frozen=True, eq=False)
class Statistics:
    """Statistics by tensor name; all but ``whole`` hold what ``Wanted`` names. ``below``: x - max(x) of a
    softmax's input x."""

    whole: dict[str, Extremes]
    histograms: dict[str, ValueHistogram]
    moments: dict[str, Moments]
    channels: dict[str, ChannelExtremes]
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
    """Observes one picture's tensors one by one and keeps their statistics."""

    def __init__(self, wanted: Wanted, label: str):
        self.wanted, self.label = wanted, label
        self._kept = Statistics({}, {}, {}, {}, {})
        self._waiting: list[tuple[str, np.ndarray]] = []
        self._bytes = 0

    @property
    def statistics(self) -> Statistics:
        """Of all tensors seen so far. Raises as ``see``."""
        self._look()
        return self._kept

    def see(self, name: str, array: np.ndarray) -> None:
        """Raises InputError when this tensor, or one before, holds NaN or infinity, which have no range."""
        if array.dtype.kind != "f" or not array.size:
            return
        self._waiting.append((name, array))
        self._bytes += array.nbytes
        if self._bytes >= WAITING_BYTES:
            self._look()

    def _look(self) -> None:
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        if not waiting:
            return
        tables = [self._rows(name, array) for name, array in waiting]
        low, high = extremes(tables)
        starts = np.cumsum([0, *map(len, tables)])
        lowest, highest = np.minimum.reduceat(low, starts[:-1]), np.maximum.reduceat(high, starts[:-1])
        odd = ~(np.isfinite(lowest) & np.isfinite(highest))
        if odd.any():
            raise InputError(
                f"tensor {waiting[odd.argmax()][0]!r} holds NaN or infinity on {self.label}, so it has no range; dump "
                f"the float model on this input and look for the first layer with NaN or Inf"
            )
        for (name, array), *ends, start, stop in zip(waiting, lowest.tolist(), highest.tolist(), starts, starts[1:]):
            self._kept.whole[name] = Extremes(*ends)
            if name in self.wanted.channels:
                count = array.shape[self.wanted.channels[name]]
                rows = low[start:stop].reshape(-1, count), high[start:stop].reshape(-1, count)
                self._kept.channels[name] = ChannelExtremes(rows[0].min(axis=0), rows[1].max(axis=0))
            self._look_closer(name, array)

    def _rows(self, name: str, array: np.ndarray) -> np.ndarray:
        """A table, where channels matter with rows of one channel each, in order and again and again."""
        axis = self.wanted.channels.get(name)
        if axis is None:
            return array.reshape(1, -1)
        if axis == 1:
            return array.reshape(array.shape[0] * array.shape[1], -1)
        return _by_channel(array, axis)

    def _look_closer(self, name: str, array: np.ndarray) -> None:
        wanted, kept = self.wanted, self._kept
        if name in wanted.histograms:
            kept.histograms[name] = count_values(array)
        if name in wanted.moments:
            kept.moments[name] = _moments(array, wanted.moments[name])
        if name in wanted.softmax:
            below = array - array.max(axis=wanted.softmax[name], keepdims=True)
            kept.below[name] = Extremes(float(below.min()), float(below.max()))


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
