"""Whether the data are those that a network was trained on, as far as its first BatchNormalizations tell: they keep
the mean and the variance of each channel as training had them.

Values from 0 to 255 where 0 to 1 was trained with are some hundred standard deviations off. Where that is less it may
be another kind of picture, or another normalisation: it is told where one that networks are trained with fits, and what
the pictures have does not. The order of the channels (RGB and BGR) moves the means less than other pictures do, and a
network without BatchNormalization, or with it folded into its weights, says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.comparison.finding import Finding
from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.fixedpoint.quantisation.float_model import Picture, pictures_of, renormalised
from sgsdump.fixedpoint.tuning.examined import (
    BRIGHTNESS,
    CONTRAST,
    EXPLAINS,
    FAR,
    FARTHER,
    FIRST_FEW,
    NEAR,
    VERY_FAR,
    Examined,
    RootCause,
    float_feeds,
    normalised_as,
)
from sgsdump.fixedpoint.tuning.reasons import UNTRAINED
from sgsdump.models.graph import Graph
from sgsdump.models.passes.extract import extract

if TYPE_CHECKING:
    from sgsdump.models.feeds.feeds import LabelledFeed
    from sgsdump.models.model import Model
    from sgsdump.models.passes.converted import RunningStatistics

# (mean, std) in grey levels, red first, that networks are trained with: bytes as they are, from 0 to 1, from -1 to 1,
# ImageNet's, and Caffe's means alone.
USUAL = (
    ((0.0,) * 3, (1.0,) * 3),
    ((0.0,) * 3, (255.0,) * 3),
    ((127.5,) * 3, (127.5,) * 3),
    ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
    ((123.0, 117.0, 104.0), (1.0,) * 3),
)


@dataclass(frozen=True)
class _Apart:
    """How far the data are from those of training.

    distance    the mean logarithm of how many times: of the spread, and of the mean in standard deviations, and 1.
    deviations  at the first layer, how far the channels' means are off; their root mean square.
    times       at the first layer, how many times as wide half of the channels are.
    """

    distance: float
    deviations: float
    times: float


def unlike_training(examined: Examined) -> RootCause | None:
    """Data that are not those that the network was trained on, by its first BatchNormalizations."""
    model, feeds = examined.subject.float_model, float_feeds(examined.few)
    made = Graph(model.proto)
    layers = [each for each in model.trained if each.source in made.producer or each.source in made.inputs][:FIRST_FEW]
    apart = _apart(model, layers, feeds)
    if apart is None or apart.distance < FAR:
        return None
    figures = {"deviations": apart.deviations, "times": apart.times, "distance": apart.distance}
    fitting = _fitting(examined, layers, feeds)
    if fitting is not None and fitting.fits(apart):
        name, done = fitting.input, fitting.apart
        figures |= {"deviations_after": done.deviations, "times_after": done.times, "distance_after": done.distance}
        figures |= {**normalised_as("told", fitting.told), **normalised_as("done", fitting.other)}
    elif apart.distance >= VERY_FAR:
        name = ""
    else:
        return None
    first = layers[0].output
    facts = {"reason": UNTRAINED, "input": name}
    return RootCause(Finding("cause", first, "BATCH_NORM", figures, "measured", (first,), facts))


@dataclass(frozen=True)
class _Fitting:
    """A picture input, and the usual normalisation with which the data are nearest to those of training.

    usual  the pictures are about as bright and as lively as most, so that no other kind of picture explains it.
    """

    input: str
    told: Picture
    other: Picture
    apart: _Apart
    usual: bool

    def fits(self, before: _Apart) -> bool:
        return before.distance >= (FAR if self.usual else FARTHER) and self.apart.distance <= min(
            NEAR, EXPLAINS * before.distance
        )


def _fitting(examined: Examined, layers: Sequence[RunningStatistics], feeds: Sequence[LabelledFeed]) -> _Fitting | None:
    """None without pictures."""
    model, config = examined.subject.float_model, examined.subject.config
    bgr = {entry.name for entry in config.inputs if entry.training_format == "BGR"}
    found: list[_Fitting] = []
    for name, told in pictures_of(model, config, feeds[0][1]).items():
        levels = np.concatenate([told.levels(feed[name]).reshape(-1) for _, feed in feeds])
        usual = BRIGHTNESS[0] <= levels.mean() <= BRIGHTNESS[1] and CONTRAST[0] <= levels.std() <= CONTRAST[1]
        for mean, std in USUAL:
            other = replace(told, mean=_of_channels(mean, told, name in bgr), std=_of_channels(std, told, name in bgr))
            changed = [(label, {**feed, name: renormalised(feed[name], told, other)}) for label, feed in feeds]
            apart = _apart(model, layers, changed)
            if apart is not None:
                found.append(_Fitting(name, told, other, apart, usual))
    return min(found, key=lambda each: each.apart.distance, default=None)


def _of_channels(usual: Sequence[float], told: Picture, bgr: bool) -> tuple[float, ...]:
    if len(told.mean) != len(usual):
        return (float(np.mean(usual)),) * len(told.mean)
    return tuple(usual[::-1] if bgr else usual)


def _apart(model: Model, layers: Sequence[RunningStatistics], feeds: Sequence[LabelledFeed]) -> _Apart | None:
    """None where no layer has a channel that lives."""
    seen = _moments(model, {each.source for each in layers}, feeds)
    distances, first = [], None
    for layer in layers:
        if layer.source not in seen or seen[layer.source][0].size != layer.mean.size:
            continue
        mean, variance = seen[layer.source]
        lives = (variance > 0) | (layer.spread**2 > 2 * layer.epsilon)
        if not lives.any():
            continue
        off = np.abs(mean - layer.mean)[lives] / layer.spread[lives]
        times = np.sqrt(variance + layer.epsilon)[lives] / layer.spread[lives]
        distances.append(float(np.mean(np.abs(np.log(times)) + np.log1p(off))))
        first = first or (float(np.sqrt(np.mean(off**2))), float(np.median(times)))
    return None if first is None else _Apart(float(np.mean(distances)), *first)


def _moments(model: Model, names: set[str], feeds: Sequence[LabelledFeed]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Mean and variance of each channel of these tensors over all feeds, float64 [C] each."""
    sums: dict[str, list[Any]] = {}

    def see(name: str, array: np.ndarray) -> None:
        values = np.moveaxis(array.astype(np.float64), 1, 0).reshape(array.shape[1], -1)
        before = sums.get(name, [0.0, 0.0, 0.0])
        now = [float(values.shape[1]), values.sum(axis=1), np.square(values).sum(axis=1)]
        sums[name] = [old + new for old, new in zip(before, now)]

    graph = Graph(model.proto)
    made = sorted(name for name in names if name in graph.producer)
    runner = SegmentRunner(replace(model, proto=extract(model.proto, None, made)), keep_sessions=True) if made else None
    for _, feed in feeds:
        for name in names - set(made):
            see(name, feed[name])
        if runner is not None:
            used = {spec.name: feed[spec.name] for spec in runner.inputs}
            for layer in runner.run(used, only=set(made)):
                see(layer.name, layer.array)
    return {
        name: (total / count, np.maximum(squares / count - np.square(total / count), 0.0))
        for name, (count, total, squares) in sums.items()
    }
