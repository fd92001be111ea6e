"""What calibration keeps of tensors, and of which of them: statistics that merge, so that memory does not grow with the
pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sgsdump.quantisation.ranges.value_histogram import ValueHistogram


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
        return {*self.closer, *self.channels}

    @property
    def closer(self) -> set[str]:
        """Of those of which more is kept than minimum and maximum."""
        return {*self.histograms, *self.moments, *self.softmax}


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
