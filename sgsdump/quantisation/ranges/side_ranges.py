"""What calibration sees besides each tensor's range, for the integer rules: tensor_chn.txt, softmax_lut_range.txt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sgsdump.quantisation.ranges.statistics import Statistics
from sgsdump.tensors.types import Range


@dataclass(frozen=True, eq=False)
class SideRanges:
    """channels  a convolution's output, before its activation -> the range of each of its channels.
    softmax   a softmax's input -> how far its values lie below their maximum (high is 0).
    """

    channels: Mapping[str, Range] = field(default_factory=dict)
    softmax: Mapping[str, Range] = field(default_factory=dict)


NOTHING_BESIDE = SideRanges()


def side_ranges(statistics: Statistics) -> SideRanges:
    """Of the calibration's own pictures."""
    return SideRanges(
        {name: Range(extremes.low, extremes.high) for name, extremes in statistics.channels.items()},
        {name: Range.of(seen.low, seen.high) for name, seen in statistics.below.items()},
    )


def updated(side: SideRanges, other: SideRanges) -> SideRanges:
    """The ranges of both, those of ``other`` where they name the same tensor."""
    return SideRanges({**side.channels, **other.channels}, {**side.softmax, **other.softmax})


def with_softmax(ranges: Mapping[str, Range], softmax: Mapping[str, Range]) -> dict[str, Range]:
    """The ranges, those of softmaxes' inputs wide enough for what their exponential is taken of."""
    return {
        name: Range.of(min(each.low, softmax[name].low), max(each.high, softmax[name].high))
        if name in softmax
        else each
        for name, each in ranges.items()
    }
