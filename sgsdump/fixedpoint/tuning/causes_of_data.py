"""Causes in the calibration data: normalisation of the images, given ranges, and the images themselves.

The first BatchNormalizations of a model show whether the data are like the training data, because they keep the mean
and the variance of each channel from training. Values from 0 to 255 instead of 0 to 1 are about a hundred standard
deviations off. A smaller distance may come from another kind of image or from another normalisation. A wrong
normalisation is reported if a common normalisation fits, and that of the images does not.

Limits: swapping RGB and BGR moves the means less than other images do. A model without BatchNormalization, or with it
folded into its weights, shows nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sgsdump.comparison.finding import Finding
from sgsdump.comparison.range_change import apart
from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.fixedpoint.quantisation.diagnosis.subject import Subject, calibrated
from sgsdump.fixedpoint.quantisation.float_model import Picture, difference_of, pictures_of, renormalised
from sgsdump.fixedpoint.quantisation.objective import output_error
from sgsdump.fixedpoint.quantisation.quant_file import WIDE_TIMES
from sgsdump.fixedpoint.quantisation.tensor_scales import INT16
from sgsdump.fixedpoint.tuning.advice import holds
from sgsdump.fixedpoint.tuning.examined import (
    BRIGHTNESS,
    BY_FIXED,
    BY_PREPROCESS,
    CLIPPED,
    CONTRAST,
    EXPLAINS,
    FAR,
    FARTHER,
    FEWEST_PICTURES,
    FIRST_FEW,
    FLAT,
    FLAT_PART,
    GREYS,
    LEFT,
    MANY,
    MEANS,
    MOST_ODD,
    NEAR,
    NORMALISATION,
    ODD,
    ODD_TIMES,
    ORDER,
    STDS,
    STILL,
    UNLIKE,
    UNTRAINED,
    VERY_FAR,
    WIDE,
    Examined,
    Reach,
    RootCause,
    float_feeds,
    normalised_as,
    share_outside,
    with_swapped_channels,
)
from sgsdump.models.feeds.assumed_config import MOST_LEVELS
from sgsdump.models.feeds.by_content import PicturePairs
from sgsdump.models.feeds.feeds import ChosenFeeds, LabelledFeed
from sgsdump.models.fixed_facts import read_facts
from sgsdump.models.graph import Graph
from sgsdump.models.model import Model
from sgsdump.models.passes.converted import RunningStatistics
from sgsdump.models.passes.extract import extract
from sgsdump.progress import Progress
from sgsdump.tensors.types import Range

# Common normalisations, (mean, std) in grey levels, red first: 0 to 255, 0 to 1, -1 to 1, ImageNet, and the means of
# Caffe.
USUAL = (
    ((0.0,) * 3, (1.0,) * 3),
    ((0.0,) * 3, (255.0,) * 3),
    ((127.5,) * 3, (127.5,) * 3),
    ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
    ((123.0, 117.0, 104.0), (1.0,) * 3),
)


def normalisation(examined: Examined) -> RootCause | None:
    """Return the cause that input_config.ini disagrees with the fixed model or with the preprocess file.

    They may disagree on the normalisation, or on the colour order.
    """
    model, stored = examined.subject.float_model, examined.stored
    pairs = [
        (examined.told, examined.subject.config, BY_FIXED),
        (examined.subject.config, examined.preprocessed, BY_PREPROCESS),
    ]
    for told, done, by in pairs:
        if told is None or done is None:
            continue
        if by == BY_PREPROCESS and examined.good:  # only a warning, because the outputs are good
            continue
        entries = {entry.name: entry for entry in done.inputs}
        pictures = pictures_of(model, told, stored), pictures_of(model, done, stored)
        for entry in told.inputs:
            name = entry.name
            if not all(name in side for side in pictures):
                continue
            says, does = (side[name] for side in pictures)
            pair = examined.pairs.make(0)
            real, raw = pair.feed[name], pair.raw[name]
            if {entry.training_format, entries[name].training_format} == {"RGB", "BGR"}:
                # Pixels found by measuring the preprocess file are already in the order of input_config.ini.
                far = difference_of(name, real, raw, says), difference_of(name, real, np.flip(raw, does.axis), does)
                levels, reason = max(each.levels for each in far), ORDER
            else:
                levels, reason = difference_of(name, real, raw, says).levels, NORMALISATION
                if _same(says, does) and (by == BY_FIXED or levels <= MOST_LEVELS):
                    continue
            figures = {"levels": levels, **normalised_as("told", says), **normalised_as("done", does)}
            facts = {"reason": reason, "input": name, "by": by}
            facts |= {"order": entries[name].training_format} if reason == ORDER else {}
            return RootCause(Finding("cause", name, "", figures, "measured", (name,), facts))
    return None


def _same(one: Picture, other: Picture) -> bool:
    return np.allclose(one.mean, other.mean, atol=0.5) and np.allclose(one.std, other.std, rtol=0.01)


def of_given_ranges(examined: Examined, reach: Reach, progress: Progress) -> RootCause | None:
    """Return the cause that given ranges clip the values of these images, or are too wide for them."""
    subject = examined.subject
    given = {name: bounds for name, bounds in examined.given.items() if name in reach.names}
    if not given or holds(examined.outputs.sums, examined.limits):  # the ranges are not the cause
        return None
    beyond = reach.beyond(given)
    wide = [
        name
        for name, bounds in given.items()
        if _width(bounds) > WIDE_TIMES * _width(reach.ranges[name]) > 0 and name not in beyond
    ]
    if not beyond and not wide:
        return None
    cured = calibrated(subject.float_model, examined.feeds, subject.config, examined.level, progress)
    after = output_error(examined.judged(cured, examined.pairs).sums)
    if not after <= LEFT * examined.error:
        return None
    figures = {"error": examined.error, "error_after": after, "of": float(len(given))}
    pictures = pictures_of(subject.float_model, subject.config, given)
    many = [name for name in (beyond, wide) if len(name) >= max(2, MANY * len(given))]
    if many or any(name in pictures for name in (*beyond, *wide)):
        explained = _explained(examined, given, pictures, figures)
        if explained is not None:
            return replace(explained, cured=cured, pairs=examined.pairs)
    names = tuple(beyond or wide)
    figures["layers"] = float(len(names))
    if beyond:
        figures["outside"] = share_outside(subject.float_model, float_feeds(examined.few), given, beyond)
        reason = UNLIKE if beyond in many or any(name in pictures for name in beyond) else CLIPPED
        worst = max(beyond, key=lambda name: apart(_ends(given[name]), _ends(reach.ranges[name])))
    else:
        ratios = {name: _width(given[name]) / _width(reach.ranges[name]) for name in wide}
        figures["times"] = float(np.median(list(ratios.values())))
        reason, worst = WIDE, max(wide, key=lambda name: ratios[name])
    if reason is not UNLIKE:
        need, has = reach.ranges[worst], given[worst]
        figures |= {"low": has.low, "high": has.high, "needed_low": need.low, "needed_high": need.high}
    facts = {"reason": reason, "input": worst}
    finding = Finding("cause", worst, examined.operator_of(worst), figures, "measured", names, facts)
    return RootCause(finding, cured, examined.pairs)


def _explained(
    examined: Examined, given: Mapping[str, Range], pictures: Mapping[str, Picture], figures: Mapping[str, float]
) -> RootCause | None:
    """Return the cause that the given ranges were calibrated with another channel order or another normalisation.

    Tried are swapped channels, and the mean and std that follow from the given range of the image.
    """
    if not pictures:
        return None
    feeds = float_feeds(examined.pairs)
    as_is = _distance(examined, feeds, given)
    axes = {name: picture.axis for name, picture in pictures.items() if len(picture.mean) == 3}
    if axes:
        turned = [(label, with_swapped_channels(feed, axes)) for label, feed in feeds]
        if _distance(examined, turned, given) <= EXPLAINS * as_is:
            name = next(iter(axes))
            facts = {"reason": ORDER, "input": name, "by": "ranges"}
            return RootCause(Finding("cause", name, "", figures, "measured", (name,), facts))
    for name, told in pictures.items():
        other = _normalised_as(told, given[name])
        if other is None:
            continue
        changed = [(label, {**feed, name: renormalised(feed[name], told, other)}) for label, feed in feeds]
        if _distance(examined, changed, given) <= EXPLAINS * as_is:
            numbers = {**figures, **normalised_as("told", told), **normalised_as("done", other)}
            facts = {"reason": NORMALISATION, "input": name, "by": "ranges"}
            return RootCause(Finding("cause", name, "", numbers, "measured", (name,), facts))
    return None


def _distance(examined: Examined, feeds: Sequence[LabelledFeed], given: Mapping[str, Range]) -> float:
    """Return the distance of the ranges of these feeds from the given ranges: the mean logarithm of their ratios."""
    reach = examined.reach(feeds)
    needed = reach.ranges if reach is not None else {}
    far = [
        apart(_ends(given[name]), _ends(need)) for name, need in needed.items() if name in given and _width(need) > 0
    ]
    return float(np.mean(np.log(np.minimum(far, 1e6)))) if far else 0.0


def _normalised_as(told: Picture, bounds: Range) -> Picture | None:
    """Return the normalisation with which bytes from 0 to 255 fill this range; None if it is not plausible.

    A calibration range always contains 0.
    """
    width = _width(bounds)
    if not width:
        return None
    std = GREYS / width
    mean = -bounds.low * std
    same = abs(std / float(np.mean(told.std)) - 1) < 0.05 and abs(mean - float(np.mean(told.mean))) < 5
    if same or not (MEANS[0] <= mean <= MEANS[1] and STDS[0] <= std <= STDS[1]):
        return None
    count = len(told.mean)
    return replace(told, mean=(mean,) * count, std=(std,) * count)


def _ends(bounds: Range) -> tuple[float, float]:
    return bounds.low, bounds.high


def _width(bounds: Range) -> float:
    return bounds.high - bounds.low


def flat_pictures(examined: Examined, reach: Reach) -> RootCause | None:
    """Return the cause that the images use few grey levels, so that values of other images exceed the ranges."""
    subject = examined.subject
    pictures = pictures_of(subject.float_model, subject.config, reach.names)
    for name, picture in pictures.items():
        lows, highs = _levels(examined.pairs, name)
        low, high = min(lows), max(highs)
        if high - low > FLAT_PART * GREYS:
            continue
        changed = [
            (label, {**feed, name: _stretched(feed[name], picture, low, high)})
            for label, feed in float_feeds(examined.few)
        ]
        full, given = examined.reach(changed), examined.given
        beyond = full.beyond(given) if full is not None else []
        if not beyond:
            continue
        outside = share_outside(subject.float_model, changed, given, beyond)
        figures = {"low": low, "high": high, "layers": float(len(beyond)), "of": float(len(given)), "outside": outside}
        facts = {"reason": FLAT, "input": name}
        return RootCause(Finding("cause", name, "", figures, "measured", tuple(beyond), facts))
    return None


def _levels(pairs: PicturePairs, name: str) -> tuple[list[float], list[float]]:
    """Return the darkest and the brightest grey level of each image."""
    raw = [pairs.make(index).raw[name] for index in range(len(pairs))]
    return [float(array.min()) for array in raw], [float(array.max()) for array in raw]


def _stretched(array: np.ndarray, picture: Picture, low: float, high: float) -> np.ndarray:
    """Return the image with its grey levels spread from 0 to 255; a constant image becomes a ramp."""
    levels = picture.levels(array)
    if high > low:
        levels = (levels - low) * (GREYS / (high - low))
    else:
        ramp = np.linspace(0, GREYS, levels.shape[picture.plane[1]])
        levels = np.broadcast_to(ramp if picture.axis == 1 else ramp[:, None], levels.shape)
    return ((levels - picture.along(picture.mean)) / picture.along(picture.std)).astype(array.dtype)


def odd_picture(examined: Examined, reach: Reach, progress: Progress) -> RootCause | None:
    """Return the cause that a few images make most ranges several times as wide as the other images need."""
    widths = reach.high - reach.low
    if len(widths) < FEWEST_PICTURES:
        return None
    usual = np.median(widths, axis=0)
    times = np.median(widths[:, usual > 0] / usual[usual > 0], axis=1) if (usual > 0).any() else np.ones(len(widths))
    odd = [index for index in range(len(widths)) if times[index] >= ODD_TIMES]
    if not odd or len(odd) > max(1, MOST_ODD * len(widths)):
        return None
    subject = examined.subject
    others = [index for index in range(len(widths)) if index not in odd]
    rest = replace(examined.pairs, chosen=tuple(others))
    kept = ChosenFeeds(examined.feeds, others)
    cured = calibrated(subject.float_model, kept, subject.config, examined.level, progress)
    outputs = examined.judged(cured, rest)
    before, after = output_error(examined.outputs.sums_on(rest.labels)), output_error(outputs.sums)
    wide = [_count_16(each) for each in (subject, cured)]
    helps = after <= LEFT * before or (wide[1] < wide[0] and outputs.good(examined.limits))
    if not helps:
        return None
    figures = {"error": before, "error_after": after, "times": float(max(times[odd])), "of": float(len(widths))}
    figures |= {"wide": float(wide[0]), "wide_after": float(wide[1])}
    names = tuple(reach.labels[index] for index in sorted(odd, key=lambda index: -times[index]))
    facts = {"reason": ODD, "input": names[0]}
    return RootCause(Finding("cause", names[0], "", figures, "measured", names, facts), cured, rest)


def _count_16(subject: Subject) -> int:
    facts = read_facts(subject.fixed_model)
    return sum(weights.dtype == INT16 for weights in facts.weights.values()) if facts else 0


def hardly_moved(examined: Examined) -> RootCause:
    """Return the cause that these images barely affect any output beyond the limits."""
    past = {name: f for name, f in examined.outputs.outputs.items() if not f.good(examined.limits)}
    first = max(past, key=lambda name: past[name].rmse)
    figures = {"seen": past[first].seen or 0.0, "reaches": past[first].span, "largest_error": past[first].largest}
    facts = {"reason": STILL, "input": first}
    return RootCause(Finding("cause", first, examined.operator_of(first), figures, "measured", tuple(past), facts))


@dataclass(frozen=True)
class _Apart:
    """The distance of the data from the training data.

    distance    mean logarithm of two ratios: that of the spreads, and 1 plus the offset of the mean in standard
                deviations.
    deviations  root mean square over the channels of the first layer: offset of the mean in standard deviations.
    times       median over the channels of the first layer: ratio of the spreads.
    """

    distance: float
    deviations: float
    times: float


def unlike_training(examined: Examined) -> RootCause | None:
    """Return the cause that the data differ from the training data, judged by the first BatchNormalizations."""
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
    """An image input, and the common normalisation that brings the data closest to the training data.

    usual  brightness and contrast of the images are typical, so another kind of image does not explain the distance.
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
    """Return the closest common normalisation, or None without image inputs."""
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
    """Return the distance from the training data, or None if no layer has a channel that varies."""
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
    """Return mean and variance of each channel of these tensors over all feeds, float64 [C] each."""
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
