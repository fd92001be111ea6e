"""The error of each channel: a layer may look right whose loudest channel hides that the others are lost.

A channel's error is its own RMSE, Σ|a-b| / Σ|b| over its values. One counts as lost from LOST on, where its error is
not merely that of all channels: a quantised tensor has one step for all, which the quiet channels feel most. Where at
least half of the channels that hold something are lost to that step, they count too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from sgsdump.comparison.details import Channels, planes_of
from sgsdump.comparison.sums.summation import judged_channels, sums_channels
from sgsdump.comparison.sums.tiles import ChannelSums, ToSum

LOST = 0.5
_FEWEST, _FEWEST_VALUES = 2, 8
_FLOOR = 1e-7  # of the loudest channel, what a float32 sum over all channels may leave anywhere
_MEDIAN = 64  # of the kernel: channels of which the median is that of all, at least
_COMMON = 4.0  # times the median channel's mean error, what any channel may have


def channel_sums(pair: ToSum, layout: str | None) -> ChannelSums | None:
    """Where the channels' sums go; None where the tensor has no channels of several values, or they cannot be had."""
    shape = pair.sample.array.shape
    axis = _axis_of(shape, layout)
    return None if axis is None or not sums_channels(pair, axis) else ChannelSums(shape, axis)


@lru_cache(maxsize=1024)
def _axis_of(shape: tuple[int, ...], layout: str | None) -> int | None:
    """The axis of several channels of several values each."""
    if len(shape) < 2:
        return None
    planes = planes_of(shape, layout)
    axis = planes.axes[1] if planes.axes else len(shape) - 1
    count = shape[axis]
    return None if count < _FEWEST or math.prod(shape) < _FEWEST_VALUES * count else axis


def channels_of(sums: ChannelSums, size: int, step: float = 0.0) -> Channels | None:
    """What the sums say; ``size`` is the tensor's, ``step`` its scale where it is quantised. None where a value is not
    finite, and where there is no channel to judge."""
    taken = size / (sums.count * sums.skip)  # values of each channel
    judged = judged_channels(sums, _FLOOR, LOST, _COMMON, step * taken)
    if judged is None or isinstance(judged, tuple):
        return judged and Channels(sums.count, *judged)
    errors, values = sums.totals.tolist()
    if not sum(errors) + sum(values) < float("inf"):
        return None
    floor = _FLOOR * max(values)
    live = [index for index, value in enumerate(values) if value > floor]
    return _judged(errors, values, live, taken, step, sums.count)


def merged_channels(runs: Sequence[Channels | None]) -> Channels | None:
    """The run with most lost channels, or the worst one."""
    judged = [run for run in runs if run is not None]
    return max(judged, key=lambda run: (run.lost, run.worst_rmse), default=None)


def _median(errors: Sequence[float]) -> float:
    """Of at most twice _MEDIAN of them, evenly chosen."""
    chosen = sorted(errors[:: max(1, len(errors) // _MEDIAN)])
    return chosen[len(chosen) // 2]


def _judged(
    errors: Sequence[float], values: Sequence[float], live: Sequence[int], taken: float, step: float, count: int
) -> Channels | None:
    if not live:
        return None
    common = max(_COMMON * _median(errors), step * taken)
    ratios = [(errors[index] / values[index], index) for index in live]
    lost = [index for ratio, index in ratios if ratio >= LOST]
    if 2 * len(lost) < len(live):
        lost = [index for index in lost if errors[index] > common]
        own = [(ratio, index) for ratio, index in ratios if errors[index] > common]
    else:
        own = ratios
    worst_rmse, worst = max(own or [min(ratios)])
    return Channels(count, len(lost), worst, worst_rmse)
