"""Errors per channel: a layer can look right while a channel with large values hides that other channels are lost.

A channel's error is its own RMSE, Σ|a-b| / Σ|b| over its values. A channel is lost if this error reaches LOST and its
absolute error exceeds the level of all channels: a quantised tensor has one step for all channels, which affects
channels of small values most. If that step loses at least half of the non-zero channels, they count as lost too.
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
_FLOOR = 1e-7  # share of the largest channel that a float32 sum over all channels can leave in any channel
_MEDIAN = 64  # as in the kernel: least number of channels whose median represents all
_COMMON = 4.0  # factor on the median channel's mean error that any channel may have


def channel_sums(pair: ToSum, layout: str | None) -> ChannelSums | None:
    """Return the accumulator of the channels' sums.

    None if the tensor has no channels or the kernel cannot sum them.
    """
    shape = pair.sample.array.shape
    axis = _axis_of(shape, layout)
    return None if axis is None or not sums_channels(pair, axis) else ChannelSums(shape, axis)


@lru_cache(maxsize=1024)
def _axis_of(shape: tuple[int, ...], layout: str | None) -> int | None:
    """Return the channel axis if it has several channels of several values each."""
    if len(shape) < 2:
        return None
    planes = planes_of(shape, layout)
    axis = planes.axes[1] if planes.axes else len(shape) - 1
    count = shape[axis]
    return None if count < _FEWEST or math.prod(shape) < _FEWEST_VALUES * count else axis


def channels_of(sums: ChannelSums, size: int, step: float = 0.0) -> Channels | None:
    """Return the judgement of the channels from their sums.

    size  number of values of the tensor.
    step  scale of the tensor if it is quantised.

    None if a value is not finite, or if there is no channel to judge.
    """
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
    """Return the run with the most lost channels; among equals the worst run."""
    judged = [run for run in runs if run is not None]
    return max(judged, key=lambda run: (run.lost, run.worst_rmse), default=None)


def _median(errors: Sequence[float]) -> float:
    """Return the median of at most twice _MEDIAN evenly chosen channels."""
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
