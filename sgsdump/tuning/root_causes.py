"""What is to be put right before any INT16: the data that a network was calibrated on, its normalisation, ranges, an
operator that no bits of convolutions cure, and weights that share one scale.

Each is proved by putting it right: the fixed model made anew must at least halve the outputs' error, or need fewer
convolutions at 16 bits. What is only thought to be at fault is no cause, so a sound network has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.comparison.finding import Finding
from sgsdump.comparison.range_change import apart
from sgsdump.errors import SgsdumpError
from sgsdump.models.graph import Graph
from sgsdump.progress import SILENT, Progress
from sgsdump.quantisation.analysis import SDK_NAMES, Analysis, output_rows
from sgsdump.quantisation.calibration import LEVELS, selection
from sgsdump.quantisation.diagnosis.compared_pictures import PicturePairs
from sgsdump.quantisation.diagnosis.reach import (
    Reach,
    measure_reach,
    rounded_at,
    share_outside,
    with_swapped_channels,
)
from sgsdump.quantisation.diagnosis.subject import Subject, calibrated
from sgsdump.quantisation.fixed_facts import read_facts
from sgsdump.quantisation.fixed_model import make_fixed
from sgsdump.quantisation.float_model import deployed
from sgsdump.quantisation.objective import output_error, score, total, watched_tensors
from sgsdump.quantisation.pictures import Picture, difference_of, pictures_of
from sgsdump.quantisation.scales import INT16
from sgsdump.quantisation.trials.integer_outputs import FloatOutputs, PlanOutputs, outputs_of
from sgsdump.tensors.types import Range
from sgsdump.tuning.advice import holds
from sgsdump.tuning.measured_advice import MeasuredAdvice, fixed_with, labelled
from sgsdump.tuning.sensitivity_analysis import loud_channel

if TYPE_CHECKING:
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.models.feeds.feeds import Feeds, LabelledFeed
    from sgsdump.sidecars.input_config import InputConfig

WEIGHTS, ODD, UNLIKE, WIDE, CLIPPED = "weights per tensor", "odd picture", "unlike pictures", "wide ranges", "clipped"
FLAT, OPERATOR, NORMALISATION, ORDER = "flat pictures", "operator", "normalisation", "channel order"
REASONS = (WEIGHTS, ODD, UNLIKE, WIDE, CLIPPED, FLAT, OPERATOR, NORMALISATION, ORDER)

# Putting the cause right leaves at most this part of the outputs' error.
LEFT = 0.5
# An odd picture's tensors are so many times as wide as the others' in the median, and at most this part is odd.
ODD_TIMES, MOST_ODD = 3.0, 0.1
FEWEST_PICTURES = 4
# Calibration pictures that use at most this part of the grey levels of a byte.
FLAT_PART = 0.25
# Ranges are of other pictures where this part of the tensors goes beyond them, or is so many times narrower.
MANY, WIDE_TIMES = 0.25, 4.0
# Of one explanation of given ranges, beside the pictures as they are: it leaves this part of the distance.
EXPLAINS = 0.5
# An INT16 tensor of fewer steps to the spread of its values than UINT8 has to a range of its own is looked at.
FEW_STEPS = 40.0
MOST_OPERATORS = 8
GREYS = 255.0


@dataclass(frozen=True, eq=False)
class Examined:
    """A subject that was judged.

    level   a calibration of it has, or would have.
    told    the input_config.ini that the user gave; ``preprocessed``: as the preprocess file has it, where that is
            known.
    """

    subject: Subject
    feeds: Feeds
    pairs: PicturePairs
    few: PicturePairs
    outputs: PlanOutputs
    advice: MeasuredAdvice | None
    limits: Thresholds
    level: str
    preprocessed: InputConfig | None

    @property
    def good(self) -> bool:
        return self.outputs.good(self.limits)

    @property
    def error(self) -> float:
        return output_error(self.outputs.sums)

    @property
    def stored(self) -> set[str]:
        """The tensors that the fixed model keeps as integers."""
        facts = read_facts(self.subject.fixed_model)
        return set(facts.tensors) if facts else set()


@dataclass(frozen=True, eq=False)
class RootCause:
    """cured  the subject with it put right, to be judged on ``pairs``; None where that is not done here."""

    finding: Finding
    cured: Subject | None = None
    pairs: PicturePairs | None = None


class _Chosen:
    """Some of the runs."""

    def __init__(self, feeds: Feeds, indices: Sequence[int]):
        self._feeds, self._indices = feeds, indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> LabelledFeed:
        return self._feeds[self._indices[index]]


def root_cause(examined: Examined, progress: Progress = SILENT) -> RootCause | None:
    """The first that holds. Raises what calibrating and running the models raise."""
    if not examined.outputs.outputs:
        return None
    shown = _normalisation(examined)
    if shown is not None:
        return shown
    reach = _reach(examined)
    if reach is None:
        return None
    if examined.subject.made is None:
        found = _of_given_ranges(examined, reach, progress)
    else:
        found = _flat_pictures(examined, reach) or _odd_picture(examined, reach, progress)
    if found is not None or examined.good or examined.advice is None:
        return found
    return _operator(examined, examined.advice) or _weights(examined, examined.advice)


def _reach(examined: Examined) -> Reach | None:
    analysis = _analysis(examined)
    if analysis is None:
        return None
    selected = selection(analysis, LEVELS["L1"])
    names = examined.stored - set(selected.masks)
    feeds = (examined.feeds[index] for index in examined.pairs.indices)
    reach = measure_reach(examined.subject.float_model, feeds, names, selected)
    return reach if reach.names else None


def _analysis(examined: Examined) -> Analysis | None:
    return None if examined.advice is None else examined.advice.measured.analysis


def _judged(examined: Examined, fixed: Subject, pairs: PicturePairs) -> PlanOutputs:
    model = examined.subject.float_model
    names = watched_tensors(deployed(model))
    return outputs_of(model, [fixed.fixed_model.proto], labelled(pairs), names)[0]


# -- normalisation


def _normalisation(examined: Examined) -> RootCause | None:
    """What the preprocess file makes is another picture, or of another order, than input_config says."""
    subject, done = examined.subject, examined.preprocessed
    if done is None:
        return None
    orders = {entry.name: entry.training_format for entry in done.inputs}
    told_pictures, done_pictures = (pictures_of(subject.float_model, c, examined.stored) for c in (subject.config, done))
    for entry in subject.config.inputs:
        told, found = told_pictures.get(entry.name), done_pictures.get(entry.name)
        if told is None or found is None:
            continue
        pair = examined.pairs.make(0)
        real, raw = pair.feed[entry.name], pair.raw[entry.name]
        if {entry.training_format, orders[entry.name]} == {"RGB", "BGR"}:
            levels, reason = difference_of(entry.name, real, np.flip(raw, told.axis), found).levels, ORDER
        else:
            difference = difference_of(entry.name, real, raw, told)
            same = np.allclose(told.mean, found.mean, atol=0.5) and np.allclose(told.std, found.std, rtol=0.01)
            if difference.agrees and same:
                continue
            levels, reason = difference.levels, NORMALISATION
        figures = {"levels": levels, **_numbers("told", told), **_numbers("done", found)}
        facts = {"reason": reason, "input": entry.name, "by": "preprocess"}
        return RootCause(Finding("cause", entry.name, "", figures, "measured", (entry.name,), facts))
    return None


def _numbers(word: str, picture: Picture) -> dict[str, float]:
    means = {f"mean_{word}_{index}": float(value) for index, value in enumerate(picture.mean)}
    return means | {f"std_{word}_{index}": float(value) for index, value in enumerate(picture.std)}


# -- ranges that were calibrated before


def _of_given_ranges(examined: Examined, reach: Reach, progress: Progress) -> RootCause | None:
    """Beside what these pictures need, ranges that clip or that are too wide."""
    subject = examined.subject
    given = {name: subject.ranges[name].at(INT16) for name in reach.names if name in subject.ranges}
    if not given or holds(examined.outputs.sums, examined.limits):  # not by what given ranges reach
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
    after = output_error(_judged(examined, cured, examined.pairs).sums)
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
        figures["outside"] = share_outside(subject.float_model, labelled_floats(examined.few), given, beyond)
        reason = UNLIKE if beyond in many else CLIPPED
        worst = max(beyond, key=lambda name: apart(_ends(given[name]), _ends(reach.ranges[name])))
    else:
        ratios = {name: _width(given[name]) / _width(reach.ranges[name]) for name in wide}
        figures["times"] = float(np.median(list(ratios.values())))
        reason, worst = WIDE, max(wide, key=lambda name: ratios[name])
    if reason is not UNLIKE:
        need, has = reach.ranges[worst], given[worst]
        figures |= {"low": has.low, "high": has.high, "needed_low": need.low, "needed_high": need.high}
    facts = {"reason": reason, "input": worst}
    finding = Finding("cause", worst, _operator_of(examined, worst), figures, "measured", names, facts)
    return RootCause(finding, cured, examined.pairs)


def labelled_floats(pairs: PicturePairs) -> list[LabelledFeed]:
    return [(label, dict(feed)) for label, feed, _ in labelled(pairs)]


def _explained(
    examined: Examined, given: Mapping[str, Range], pictures: Mapping[str, Picture], figures: Mapping[str, float]
) -> RootCause | None:
    """Whether other normalisations of these pictures give the ranges that were calibrated: channels in the opposite
    order, or the mean and std that the picture's own range tells."""
    if not pictures:
        return None
    feeds = labelled_floats(examined.pairs)
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
        changed = [(label, feed | {name: _renormalised(feed[name], told, other)}) for label, feed in feeds]
        if _distance(examined, changed, given) <= EXPLAINS * as_is:
            numbers = {**figures, **_numbers("told", told), **_numbers("done", other)}
            facts = {"reason": NORMALISATION, "input": name, "by": "ranges"}
            return RootCause(Finding("cause", name, "", numbers, "measured", (name,), facts))
    return None


def _distance(examined: Examined, feeds: Sequence[LabelledFeed], given: Mapping[str, Range]) -> float:
    """How far the ranges of these feeds are from the given ones: the mean logarithm of how many times."""
    analysis = _analysis(examined)
    assert analysis is not None, "there is a reach"
    selected = selection(analysis, LEVELS["L1"])
    needed = measure_reach(examined.subject.float_model, feeds, given.keys(), selected).ranges
    far = [apart(_ends(given[name]), _ends(need)) for name, need in needed.items() if _width(need) > 0]
    return float(np.mean(np.log(np.minimum(far, 1e6)))) if far else 0.0


def _normalised_as(told: Picture, bounds: Range) -> Picture | None:
    """The mean and std by which bytes from 0 to 255 fill this range, where a picture can have been made so."""
    width = _width(bounds)
    if not width:
        return None
    std = GREYS / width
    mean = -bounds.low * std
    same = abs(std / float(np.mean(told.std)) - 1) < 0.05 and abs(mean - float(np.mean(told.mean))) < 5
    if same or not (-1.0 <= mean <= GREYS and 0.5 <= std <= 1.1 * GREYS):
        return None
    count = len(told.mean)
    return replace(told, mean=(mean,) * count, std=(std,) * count)


def _renormalised(array: np.ndarray, told: Picture, other: Picture) -> np.ndarray:
    levels = array * told.along(told.std) + told.along(told.mean)
    return ((levels - other.along(other.mean)) / other.along(other.std)).astype(array.dtype)


def _ends(bounds: Range) -> tuple[float, float]:
    return bounds.low, bounds.high


def _width(bounds: Range) -> float:
    return bounds.high - bounds.low


# -- the pictures it was calibrated on


def _flat_pictures(examined: Examined, reach: Reach) -> RootCause | None:
    """Pictures that use few of the grey levels: what others need lies outside."""
    subject = examined.subject
    pictures = pictures_of(subject.float_model, subject.config, reach.names)
    for name, picture in pictures.items():
        lows, highs = _levels(examined.pairs, name)
        low, high = min(lows), max(highs)
        if high - low > FLAT_PART * GREYS:
            continue
        changed = [(label, feed | {name: _stretched(feed[name], picture, low, high)}) for label, feed in
                   labelled_floats(examined.few)]  # fmt: skip
        analysis = _analysis(examined)
        assert analysis is not None, "there is a reach"
        full = measure_reach(subject.float_model, changed, reach.names, selection(analysis, LEVELS["L1"]))
        given = {n: subject.ranges[n].at(INT16) for n in reach.names if n in subject.ranges}
        beyond = full.beyond(given)
        if not beyond:
            continue
        outside = share_outside(subject.float_model, changed, given, beyond)
        figures = {"low": low, "high": high, "layers": float(len(beyond)), "of": float(len(given)), "outside": outside}
        facts = {"reason": FLAT, "input": name}
        return RootCause(Finding("cause", name, "", figures, "measured", tuple(beyond), facts))
    return None


def _levels(pairs: PicturePairs, name: str) -> tuple[list[float], list[float]]:
    """The darkest and the brightest grey level of each picture."""
    raw = [pairs.make(index).raw[name] for index in range(len(pairs))]
    return [float(array.min()) for array in raw], [float(array.max()) for array in raw]


def _stretched(array: np.ndarray, picture: Picture, low: float, high: float) -> np.ndarray:
    """The picture with its grey levels spread from 0 to 255; of one that is all alike, a ramp of them."""
    levels = array * picture.along(picture.std) + picture.along(picture.mean)
    if high > low:
        levels = (levels - low) * (GREYS / (high - low))
    else:
        ramp = np.linspace(0, GREYS, levels.shape[picture.plane[1]])
        levels = np.broadcast_to(ramp if picture.axis == 1 else ramp[:, None], levels.shape)
    return ((levels - picture.along(picture.mean)) / picture.along(picture.std)).astype(array.dtype)


def _odd_picture(examined: Examined, reach: Reach, progress: Progress) -> RootCause | None:
    """Few pictures that make the ranges of most tensors several times as wide as all others need."""
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
    cured = calibrated(subject.float_model, _Chosen(examined.feeds, others), subject.config, examined.level, progress)
    outputs = _judged(examined, cured, rest)
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


# -- an operator


def _operator(examined: Examined, advice: MeasuredAdvice) -> RootCause | None:
    """A tensor whose rounding to 16 bits alone brings most of what is left with every convolution at 16 bits; also one
    that is computed on the way, within an operator."""
    best = advice.all_16 or advice.promise
    left = best.error if best is not None else examined.error
    if not left >= LEFT * examined.error:
        return None
    subject, graph = examined.subject, Graph(deployed(examined.subject.float_model))
    facts = read_facts(subject.fixed_model)
    stored = facts.tensors if facts else {}
    steps = {
        name: max(abs(bounds.at(INT16).low), abs(bounds.at(INT16).high)) / np.iinfo(INT16).max
        for name, bounds in subject.ranges.items()
        if name in graph.producer and bounds.uncut is None and (name not in stored or stored[name].dtype == INT16)
    }
    model = replace(subject.float_model, proto=deployed(subject.float_model))
    feeds = labelled_floats(examined.few)
    coarse = _coarse(model, feeds, steps)
    judged = [name for name in watched_tensors(model.proto) if name in graph.producer]
    real = FloatOutputs(model, judged)
    for name in coarse[:MOST_OPERATORS]:
        rounded = FloatOutputs(rounded_at(model, name, steps[name]), judged)
        scores = [score(rounded.run(label, feed), dict(real.run(label, feed))) for label, feed in feeds]
        sums = total(scores).sums
        alone = output_error(sums)
        if alone >= LEFT * left or not holds(sums, examined.limits):
            figures = {"error": examined.error, "left": left, "alone": alone, "step": steps[name]}
            if name in subject.ranges:
                figures |= {"low": subject.ranges[name].low, "high": subject.ranges[name].high}
            cause = {"reason": OPERATOR, "input": name}
            return RootCause(Finding("cause", name, _operator_of(examined, name), figures, "measured", (name,), cause))
    return None


def _coarse(model, feeds: Sequence[LabelledFeed], steps: Mapping[str, float]) -> list[str]:
    """In execution order the tensors whose step is large beside the spread of their values in half of the channels."""
    from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner

    least: dict[str, float] = {}
    runner = SegmentRunner(model, keep_sessions=True)
    for _, feed in feeds:
        for layer in runner.run(feed, only=set(steps)):
            values = layer.array
            table = np.moveaxis(values, 1, 0).reshape(values.shape[1], -1) if values.ndim > 2 else values.reshape(1, -1)
            spread = float(np.median(table.std(axis=1, dtype=np.float64)))
            least[layer.name] = max(least.get(layer.name, 0.0), spread)
    return [name for name in least if 0 < least[name] < FEW_STEPS * steps[name]]


def _operator_of(examined: Examined, name: str) -> str:
    node = Graph(examined.subject.float_model.proto).producer.get(name)
    return "" if node is None else SDK_NAMES.get(node.op_type, node.op_type.upper())


# -- weights


def _weights(examined: Examined, advice: MeasuredAdvice) -> RootCause | None:
    """Weights of one scale, where one for each output channel is enough, or halves the error."""
    subject = examined.subject
    if subject.per_channel:
        return None
    measured = advice.measured
    proto = fixed_with(measured, measured.raised, per_channel=True)
    cured = replace(
        subject,
        fixed_model=replace(subject.fixed_model, proto=proto),
        per_channel=True,
        weights_per_channel=True,
    )
    outputs = _judged(examined, cured, examined.pairs)
    after = output_error(outputs.sums)
    if not (after <= LEFT * examined.error or outputs.good(examined.limits)):
        return None
    figures = {"error": examined.error, "error_after": after}
    layer, kind, names = _whose_weights(examined, advice, after, figures)
    facts = {"reason": WEIGHTS, "input": layer}
    return RootCause(Finding("cause", layer, kind, figures, "measured", names, facts), cured, examined.pairs)


def _whose_weights(
    examined: Examined, advice: MeasuredAdvice, after: float, figures: dict[str, float]
) -> tuple[str, str, tuple[str, ...]]:
    """The convolution whose weights alone, with a scale for each channel, bring half of the gain; "" where none does."""
    analysis, subject = advice.measured.analysis, examined.subject
    nodes = {node.output[0]: node for nodes in analysis.first_inputs.values() for node in nodes}
    convs = [conv for conv in advice.measured.convolutions if conv.name in nodes]
    rows = {conv.name: np.abs(output_rows(analysis.graph, nodes[conv.name])) for conv in convs}
    reaches = {name: table.max(axis=1) for name, table in rows.items()}
    order = sorted(convs, key=lambda conv: (not conv.reads_picture, -_uneven(reaches[conv.name])))
    pairs = examined.few
    before = output_error(examined.outputs.sums_on(pairs.labels_in(examined.pairs)))
    for conv in order[:3]:
        node = nodes[conv.name]
        own = _per_channel(analysis, node)
        fixed = make_fixed(subject.float_model, {**subject.ranges, node.input[1]: own}, subject.config, side=subject.side)
        trial = replace(subject, fixed_model=replace(subject.fixed_model, proto=fixed.proto))
        error = output_error(_judged(examined, trial, pairs).sums)
        if before - error >= LEFT * (before - after):
            loud = loud_channel(reaches[conv.name])
            if loud is not None:
                figures |= {"row": float(loud.index), "rows": float(loud.count)}
                figures |= {"row_reaches": loud.reach, "row_others": loud.others}
            figures["error_alone"] = error
            return conv.name, conv.op_type, (conv.name,)
    return "", "", ()


def _uneven(reaches: np.ndarray) -> float:
    median = float(np.median(reaches))
    return float(reaches.max() / median) if median > 0 else 0.0


def _per_channel(analysis: Analysis, node) -> Range:
    from sgsdump.quantisation.analysis import output_axis

    values, axis = analysis.graph.value(node.input[1]), output_axis(analysis.graph, node)
    others = tuple(index for index in range(values.ndim) if index != axis)
    return Range(values.min(axis=others).astype(np.float64), values.max(axis=others).astype(np.float64))
