"""Sensitivity analysis: the cost of INT8 at each convolution, as own error, inherited error and output error.

The effect of one convolution at 8 bits is measured against the model with every convolution at INT16, where its inputs
are as good as float. The error that remains with one convolution raised is measured against the float model. The error
of a tensor is Σ|a-b| / Σ|b| over all images (the SDK's RMSE). The output error is its mean over the outputs, where a
Softmax is judged by its input (``objective.watched_tensors``). Each image runs two plans per domain, and two more.

A plan runs the network from its domain on, so the time grows with the square of the number of domains. With many
domains, only the first images rank them (``ranked_on``), and the worst domains (HEAD) are measured on all images.

A range that clips the values of its tensor spoils them at INT16 too. If the float model's values on an image exceed the
range, the domain is also tried with a range that contains them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from sgsdump.errors import InputError, ValuesError
from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.executors.onnx_runtime.session import release_unused
from sgsdump.fixedpoint.quantisation.analysis import Analysis, is_convolution, output_rows
from sgsdump.fixedpoint.quantisation.float_model import pictures_of
from sgsdump.fixedpoint.quantisation.objective import (
    ALL_ZERO,
    Score,
    Totals,
    error_of,
    output_error,
    score,
    softmax_axes,
    total,
    watched_tensors,
)
from sgsdump.fixedpoint.quantisation.quant_plan import DECIMALS, weight_quant
from sgsdump.fixedpoint.quantisation.ranges.statistics import NOTHING_BESIDE, SideRanges
from sgsdump.fixedpoint.quantisation.tensor_scales import INT8, INT16
from sgsdump.fixedpoint.quantisation.trials.hardware_rounding import OnHardware
from sgsdump.fixedpoint.quantisation.trials.plan_trial import Domain, PlanTrial
from sgsdump.fixedpoint.quantisation.trials.plan_walk import PlanWalk, Prepared
from sgsdump.models.model import Model
from sgsdump.progress import Advance, unwatched
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.tensors.types import Range

# A range clips if values exceed it by this share of its width.
BEYOND = 0.1
# Next to a channel this loud, 8 bits leave other channels 64 steps, half of them on either side of 0.
LOUD = 4.0
FEWEST_CHANNELS = 4
# Bytes of one image's layers (float32) that are measured together; about four copies are held.
PART_BYTES = 64 << 20
# Domains times ranking images: four images for a network of 50 convolutions, one for 200.
RANKED = 200
# Number of domains that cause most, and of those that remove most, that are measured on all images.
HEAD = 8
Arrays = Mapping[str, np.ndarray]
LabelledPictureFeed = tuple[str, Arrays, Arrays]
"""(label, feed of the float model, the same feed with images as raw bytes)"""


@dataclass(frozen=True)
class LayerSensitivity:
    """The effect of one domain's convolutions on the error.

    own          convolution -> error of its stored tensor with only this domain at 8 bits, against all at INT16.
    inherited    convolution -> error of its stored tensor with only this domain at INT16, against float.
    brings       output error with only this domain at 8 bits, against all at INT16.
    left         output error with only this domain at INT16, against float.
    in_all       convolution -> error of its stored tensor in the base plan, against float.
    held         like ``left``, with ranges that contain the float model's values; None if the ranges already do.
    held_ranges  these ranges, by tensor.
    """

    domain: Domain
    own: Mapping[str, float]
    inherited: Mapping[str, float]
    brings: float
    left: float
    in_all: Mapping[str, float] = field(default_factory=dict)
    held: float | None = None
    held_ranges: Mapping[str, Range] = field(default_factory=dict)

    def scaled(self, share: float) -> LayerSensitivity:
        """Return the sensitivity with output errors times ``share``, which extrapolates from some images to all."""
        if share == 1.0:
            return self
        held = None if self.held is None else self.held * share
        return replace(self, brings=self.brings * share, left=self.left * share, held=held)


@dataclass(frozen=True)
class LoudChannel:
    """A channel whose values reach at least LOUD times as far as those of half of the others."""

    index: int
    count: int
    reach: float
    others: float


@dataclass(frozen=True)
class Contributions:
    """The contributions of a domain's inputs and weights to the output error, against all at INT16.

    inputs     output error with only its inputs at 8 bits.
    weights    output error with only the weights of its convolutions at 8 bits.
    channel    input channel that leaves the others few steps.
    row        output channel whose weights leave the others few steps, if they share one scale.
    one_scale  whether the weights share one scale at every level.
    """

    inputs: float
    weights: float
    channel: LoudChannel | None = None
    row: LoudChannel | None = None
    one_scale: bool = False


@dataclass(frozen=True)
class Measurement:
    """The result of a sensitivity analysis.

    pictures       number of images.
    runs           number of tried plans, over all images.
    logits         judged tensors that replace the Softmax that they feed.
    all_8          sums of the judged tensors against float in the base plan: INT8 except for inputs already at INT16.
    all_16         the same with every convolution at INT16.
    sensitivities  in execution order.
    ranked_on      number of images on which every domain was measured. Output errors measured on these images alone
                   are scaled by the error of the base plan on all images.
    """

    pictures: int
    runs: int
    logits: frozenset[str]
    all_8: Totals
    all_16: Totals
    sensitivities: tuple[LayerSensitivity, ...]
    ranked_on: int = 0

    def held_ranges(self, convolution: str) -> Mapping[str, Range]:
        """Return the ranges that contain the values of a convolution's domain, if the calibration ranges do not."""
        return next(found.held_ranges for found in self.sensitivities if convolution in found.domain.convolutions)


@dataclass(frozen=True, eq=False)
class _Part:
    """Domains that are measured together.

    watched  judged tensors, and tensors that the domains' convolutions store.
    walk     runs plans, and returns the watched tensors.
    lowered  plan -> domain that alone has 8 bits.
    raised   plan -> domain that is raised above the base plan.
    """

    domains: tuple[Domain, ...]
    watched: frozenset[str]
    walk: PlanWalk
    lowered: Mapping[frozenset[str], str]
    raised: Mapping[frozenset[str], str]

    def plans(self, base: frozenset[str], domains: Container[str]) -> list[frozenset[str]]:
        """Return the base plan, and the plans of these domains."""
        wanted = (plan for found in (self.lowered, self.raised) for plan, name in found.items() if name in domains)
        return list(dict.fromkeys([base, *wanted]))


@dataclass(frozen=True, eq=False)
class _Task:
    """The measured domains of a part, by name; ``prepared``: every convolution at INT16, then the other plans."""

    number: int
    domains: Mapping[str, Domain]
    prepared: Sequence[Prepared]


@dataclass
class _Scores:
    """Scores of each image; scores of a domain by its name."""

    wide: list[Score] = field(default_factory=list)
    narrow: list[Score] = field(default_factory=list)
    as_is: dict[int, list[Score]] = field(default_factory=lambda: defaultdict(list))
    down: dict[str, list[Score]] = field(default_factory=lambda: defaultdict(list))
    up: dict[str, list[Score]] = field(default_factory=lambda: defaultdict(list))
    held: dict[str, list[Score]] = field(default_factory=lambda: defaultdict(list))
    held_ranges: dict[str, dict[str, Range]] = field(default_factory=dict)
    runs: int = 0


class SensitivityAnalysis:
    """Measures the sensitivity of a float model's outputs to INT8 at each convolution.

    side    results of calibration besides the ranges; plans round like the chip does.
    base    first inputs that already have INT16; further inputs are raised in addition.
    judged  tensors that the outputs are judged by.
    layers  convolution -> tensor that its operator stores (after a fused Relu or Add).
    runs    number of plans on each image.

    Stored tensors are kept for several plans at a time. If they take more than PART_BYTES, the domains are measured in
    parts.
    """

    def __init__(
        self,
        model: Model,
        ranges: Mapping[str, Range],
        config: InputConfig,
        per_channel: bool = False,
        base: Iterable[str] = (),
        side: SideRanges = NOTHING_BESIDE,
    ):
        self._pictures = pictures_of(model, config, ranges)
        self.trial = PlanTrial(model, ranges, config, per_channel, hardware=OnHardware(side))
        graph = self.trial.analysis.graph
        self.judged = [name for name in watched_tensors(graph.proto) if name in graph.producer]
        self.layers = stored_layers(self.trial.analysis)
        self._axes = softmax_axes(graph.proto)
        self._inputs = {name for domain in self.trial.domains for name in domain.inputs if name in graph.producer}
        self._float = SegmentRunner(model, keep_sessions=True)
        self._every = frozenset(domain.name for domain in self.trial.domains)
        wide = frozenset(base)
        self._base = frozenset(domain.name for domain in self.trial.domains if wide.intersection(domain.inputs))
        self._parts = [self._part(domains) for domains in self._divided()]
        self.runs = sum(1 + len(part.plans(self._base, self._every)) for part in self._parts)

    @property
    def ranked_on(self) -> int:
        """The number of first images on which every domain is measured."""
        return max(1, RANKED // max(1, len(self.trial.domains)))

    def most_runs(self, pictures: int) -> int:
        """Return the largest number of plans that are run on this many images."""
        ranked = min(pictures, self.ranked_on)
        head = min(4 * HEAD, 2 * len(self.trial.domains))
        return ranked * self.runs + (pictures - ranked) * (head + 2 * len(self._parts))

    def _check_outputs(self) -> None:
        """Raise ValuesError if the ranges already show that no error can be measured, before a long run."""
        ends = [(r.low, r.high) for name in self.judged if (r := self.trial.ranges.get(name)) is not None]
        if len(ends) == len(self.judged) > 0 and not np.round(ends, DECIMALS).any():
            raise ValuesError(ALL_ZERO)

    def _divided(self) -> list[list[Domain]]:
        """Return the domains in parts whose stored tensors take at most PART_BYTES; a part has at least one domain."""
        parts: list[list[Domain]] = [[]]
        size = 0
        for domain in self.trial.domains:
            more = sum(_bytes_of(self.trial.analysis.graph.shapes.get(name, ())) for name in self._stored(domain))
            if parts[-1] and size + more > PART_BYTES:
                parts.append([])
                size = 0
            parts[-1].append(domain)
            size += more
        return parts

    def _part(self, domains: Sequence[Domain]) -> _Part:
        layers = [name for domain in domains for name in self._stored(domain)]
        watched = list(dict.fromkeys([*self.judged, *layers]))
        names = [domain.name for domain in domains]
        return _Part(
            tuple(domains),
            frozenset(watched),
            PlanWalk(self.trial, watched),
            {self._every - {name}: name for name in names},
            {self._base | {name}: name for name in names if name not in self._base},
        )

    def measure(self, feeds: Iterable[LabelledPictureFeed], advance: Advance = unwatched) -> Measurement:
        """Measure the sensitivity of every domain; ``advance`` is called with the number of tried plans.

        Raises InputError without images, and ValuesError if the outputs cannot be compared.
        """
        self._check_outputs()
        scores, head, count = _Scores(), self._every, 0
        tasks = self._tasks(head)
        with threadpool_limits(limits=1, user_api="blas"):
            for count, (_, feed, raw) in enumerate(feeds, 1):
                if count == self.ranked_on + 1:
                    head = self._head(scores)
                    tasks = self._tasks(head)
                for task in tasks:
                    self._measure_part(task, (feed, self._fixed_feed(feed, raw)), scores, advance)
                    release_unused()
        if not scores.wide:
            raise InputError("there is no image to measure on")
        ranked, share = min(count, self.ranked_on), 1.0
        if head != self._every:
            advance(self.most_runs(count))
            part = output_error(total(scores.narrow[:ranked]).sums)
            share = output_error(total(scores.narrow).sums) / part if part else 1.0
        in_all = {name: sums for part in scores.as_is.values() for name, sums in total(part).sums.items()}
        return Measurement(
            len(scores.wide),
            scores.runs,
            frozenset(self.judged) - set(self.trial.analysis.graph.outputs),
            total(scores.narrow).sums,
            total(scores.wide).sums,
            tuple(
                self._sensitivity(domain, scores, in_all).scaled(1.0 if domain.name in head else share)
                for domain in self.trial.domains
            ),
            ranked,
        )

    def _tasks(self, domains: Collection[str]) -> list[_Task]:
        """Return the tasks for these domains; always with the first part, which runs the base plan."""
        tasks = []
        for number, part in enumerate(self._parts):
            chosen = {domain.name: domain for domain in part.domains if domain.name in domains}
            if chosen or not number:
                plans = part.plans(self._base, chosen)
                tasks.append(_Task(number, chosen, [*part.walk.ordered([self._every]), *part.walk.ordered(plans)]))
        return tasks

    def _head(self, scores: _Scores) -> frozenset[str]:
        """Return the domains that cause most of the output error, and those that remove most; all if unknown."""
        names, judged = [domain.name for domain in self.trial.domains], self.judged

        def error(found: Mapping[str, list[Score]], name: str) -> float:
            sums = total(found[name]).sums
            return output_error({n: sums[n] for n in judged})

        try:
            brings = {name: error(scores.down, name) for name in names}
            left = {name: min(error(scores.up, name), error(scores.held, name)) for name in names}
        except ValuesError:
            return self._every
        most = sorted(names, key=lambda name: -brings[name])[:HEAD]
        return frozenset([*most, *sorted(names, key=lambda name: left[name])[:HEAD]])

    def _measure_part(self, task: _Task, feeds: tuple[Arrays, Arrays], scores: _Scores, advance: Advance) -> None:
        """Measure one part on one image; ``feeds``: of the float and of the fixed model."""
        number, prepared, domains = task.number, task.prepared, task.domains
        part, judged = self._parts[number], self.judged
        inputs = self._inputs.intersection(name for domain in domains.values() for name in domain.inputs)
        real, ends = self._float_values(feeds[0], part.watched, inputs)
        visit = part.walk.visit(feeds[1])
        ((_, best),) = visit.run(prepared[:1])
        scores.runs += 1
        if not number:
            scores.wide.append(self._score(best, real, judged))
        layers = dict.fromkeys(name for domain in part.domains for name in self._stored(domain))
        for plan, values in visit.run(prepared[1:], partial(self._needed, part)):
            scores.runs += 1
            # With one or two domains, a plan has several of these roles.
            if plan == self._base:
                if not number:
                    scores.narrow.append(self._score(values, real, judged))
                scores.as_is[number].append(self._score(values, real, layers))
                for name in self._base & domains.keys():
                    scores.up[name].append(self._score(values, real, [*judged, *self._stored(domains[name])]))
            if plan in part.lowered:
                name = part.lowered[plan]
                scores.down[name].append(self._score(values, best, [*judged, *self._stored(domains[name])]))
            if plan in part.raised:
                name = part.raised[plan]
                scores.up[name].append(self._score(values, real, [*judged, *self._stored(domains[name])]))
            advance(scores.runs)
        clipped = self._clipped(domains.values(), ends)
        for name, ranges in clipped.items():
            wide = part.walk.prepared(self._base | {name}, {**self.trial.ranges, **ranges})
            scores.held[name].append(self._score(visit.outputs(wide, judged), real, judged))
            before = scores.held_ranges.setdefault(name, dict(ranges))
            for n, r in ranges.items():
                before[n] = Range.of(min(r.low, before[n].low), max(r.high, before[n].high))
        for name in domains.keys() - clipped.keys():
            scores.held[name].append(Score(1, {n: scores.up[name][-1].sums[n] for n in judged}))

    def _needed(self, part: _Part, plan: frozenset[str]) -> Collection[str]:
        """Return the tensors that are scored in a plan."""
        if plan == self._base:
            return part.watched
        names = {name for found in (part.lowered, part.raised) if (name := found.get(plan)) is not None}
        return {*self.judged, *(n for domain in part.domains if domain.name in names for n in self._stored(domain))}

    def _clipped(
        self, domains: Iterable[Domain], ends: Mapping[str, tuple[float, float]]
    ) -> dict[str, dict[str, Range]]:
        """Return, by domain, ranges that contain the values of one image, if the ranges of the trial do not.

        ``ends``: lowest and highest values of the float model's tensors on this image.
        """
        trial, clipped = self.trial, {}
        for domain in domains:
            root = trial.analysis.domain[domain.name]
            for name in (name for name in domain.inputs if name in ends and name in trial.ranges):
                measured = trial.ranges[name].at(INT16)
                low, high = ends[name]
                room = BEYOND * max(measured.high - measured.low, 0.0)
                if math.isfinite(low - high) and (low < measured.low - room or high > measured.high + room):
                    wide = Range.of(min(low, measured.low), max(high, measured.high))
                    members = [n for n in trial.analysis.stored if trial.analysis.domain[n] == root]
                    clipped[domain.name] = dict.fromkeys(members, wide)
        return clipped

    def try_plan(self, raised: Iterable[str], feeds: Iterable[LabelledPictureFeed]) -> Totals:
        """Return the sums of the judged tensors against float, with only these domains at INT16."""
        walk = self._parts[0].walk
        plan = walk.ordered([frozenset(raised)])
        scores = []
        with threadpool_limits(limits=1, user_api="blas"):
            for _, feed, raw in feeds:
                ((_, values),) = walk.visit(self._fixed_feed(feed, raw)).run(plan, lambda plan: self.judged)
                real, _ = self._float_values(feed, frozenset(self.judged), frozenset())
                scores.append(self._score(values, real, self.judged))
        return total(scores).sums

    def contributions(self, convolution: str, feeds: Iterable[LabelledPictureFeed]) -> Contributions:
        """Measure the contributions of the inputs and of the weights of a convolution's domain separately."""
        trial, walk, judged = self.trial, self._parts[0].walk, self.judged
        domain = next(domain for domain in trial.domains if convolution in domain.convolutions)
        narrow = self._every - {domain.name}
        in_16, in_8 = (dict.fromkeys(domain.convolutions, dtype) for dtype in (INT16, INT8))
        plans = [
            walk.prepared(self._every),
            walk.prepared(narrow, weights=in_16),
            walk.prepared(self._every, weights=in_8),
        ]
        scores: tuple[list[Score], list[Score]] = ([], [])
        node = next(n for n in trial.analysis.first_inputs[domain.inputs[0]])
        axis = 1 if node.op_type in ("Conv", "ConvTranspose") else -1
        reaches = np.zeros(0)
        with threadpool_limits(limits=1, user_api="blas"):
            for _, feed, raw in feeds:
                visit = walk.visit(self._fixed_feed(feed, raw))
                best, *contributions = (visit.outputs(plan, judged) for plan in plans)
                for found, values in zip(scores, contributions):
                    found.append(self._score(values, best, judged))
                values, _ = self._float_values(feed, frozenset(domain.inputs[:1]), frozenset())
                reaches = _further(reaches, values.get(domain.inputs[0]), axis)
        inputs, of_weights = (output_error(total(found).sums) for found in scores)
        rows = np.abs(output_rows(trial.analysis.graph, node)).max(axis=1)
        row = loud_channel(rows) if trial.shares_scale(node) else None
        one_scale = weight_quant(trial.analysis.graph, node, INT8, None, per_channel=True).axis is None
        return Contributions(inputs, of_weights, loud_channel(reaches), row, one_scale)

    def _stored(self, domain: Domain) -> list[str]:
        return [self.layers[name] for name in domain.convolutions]

    def _fixed_feed(self, feed: Arrays, raw: Arrays) -> Arrays:
        """Return raw bytes for quantised images, and the float model's feed for other inputs."""
        return {name: raw[name] if name in self._pictures else feed[name] for name in feed}

    def _float_values(
        self, feed: Arrays, names: frozenset[str], inputs: Collection[str]
    ) -> tuple[dict[str, np.ndarray], dict[str, tuple[float, float]]]:
        """Return the float model's tensors ``names``, and the lowest and highest value of ``inputs``."""
        values, ends = {}, {}
        for layer in self._float.run(feed, only=names.union(inputs)):
            if layer.name in names:
                values[layer.name] = layer.array
            if layer.name in inputs and layer.array.size:
                ends[layer.name] = float(layer.array.min()), float(layer.array.max())
        return values, ends

    def _score(self, values: Arrays, against: Arrays, names: Collection[str]) -> Score:
        for name in names:
            if values[name].shape != against[name].shape:
                raise ValuesError(
                    f"the shape of output {name!r} depends on the computed values "
                    f"({list(values[name].shape)} in one run, {list(against[name].shape)} in "
                    "another). Use the model without post-processing"
                )
        return score(values, {name: against[name] for name in names}, axes=self._axes)

    def _sensitivity(self, domain: Domain, scores: _Scores, as_is: Totals) -> LayerSensitivity:
        lowered, raised = (total(found[domain.name]).sums for found in (scores.down, scores.up))
        held_ranges = scores.held_ranges.get(domain.name, {})
        held = total(scores.held[domain.name]).sums if held_ranges else None
        own = {name: error_of(lowered[self.layers[name]]) for name in domain.convolutions}
        inherited = {name: error_of(raised[self.layers[name]]) for name in domain.convolutions}
        left = output_error({n: raised[n] for n in self.judged})
        of_outputs = {n: lowered[n] for n in self.judged}
        # With all at INT16, a Sigmoid far below 0 may be exactly 0, and a relative error is undefined.
        brings = output_error(of_outputs) if any(sums.b1 for sums in of_outputs.values()) else 0.0
        in_all = {name: error_of(as_is[self.layers[name]]) for name in domain.convolutions if as_is}
        left_held = None if held is None else output_error(held)
        return LayerSensitivity(domain, own, inherited, brings, left, in_all, left_held, held_ranges)


def _further(reaches: np.ndarray, values: np.ndarray | None, axis: int) -> np.ndarray:
    """Return the reach of the channels including these values; None (an input of the network) changes nothing."""
    if values is None or values.ndim < 2 or not values.size:
        return reaches
    found = np.abs(np.moveaxis(values, axis, 0)).reshape(values.shape[axis], -1).max(axis=1)
    return np.maximum(reaches, found) if reaches.shape == found.shape else found


def loud_channel(reaches: np.ndarray) -> LoudChannel | None:
    """Return the channel that reaches furthest, if it reaches LOUD times as far as half of the others."""
    if reaches.size < FEWEST_CHANNELS or not np.isfinite(reaches).all():
        return None
    index = int(reaches.argmax())
    others = float(np.median(np.delete(reaches, index)))
    loud = 0 < LOUD * others <= reaches[index]
    return LoudChannel(index, reaches.size, float(reaches[index]), others) if loud else None


def _bytes_of(shape: Sequence[int | None]) -> int:
    return 4 * math.prod(size or 1 for size in shape)


def stored_layers(analysis: Analysis) -> dict[str, str]:
    """Return, by a convolution's output, the output of the operator that computes it."""
    return {
        node.output[0]: op.outputs[0]
        for op in analysis.operators
        for node in op.nodes
        if is_convolution(analysis.graph, node)
    }
