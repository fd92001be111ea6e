"""Sensitivity analysis: what each convolution's 8 bits cost: its own error, the one it inherits, the outputs' error.

What one convolution does alone is compared with the model with every convolution at INT16 (its inputs are then as good
as float); what is left of the error when one is raised is compared with the float model. The error of a tensor is
Σ|a-b| / Σ|b| over all pictures (the SDK's RMSE); the output error is its mean over the outputs, where a Softmax is
judged by its input (``objective.watched_tensors``). Two plans a domain and two more are tried on each picture.

A plan runs the network from its domain on, so all plans take as long as the square of the domains' number. Where these
are many, the first pictures alone rank them (``ranked_on``), and the HEAD that cost most are measured on all.

A range that does not hold its tensor's values spoils them at 16 bits too: where the float model's values on a picture
go beyond it, the domain is also tried with a range that holds them.
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

# A range is taken to clip where values go beyond it by this part of its width.
BEYOND = 0.1
# Eight bits leave so loud a channel's neighbours 64 steps, on either side of 0 half of these.
LOUD = 4.0
FEWEST_CHANNELS = 4
# Of one picture's layers, float32, that are measured together; some four copies of them are held.
PART_BYTES = 64 << 20
# Domains times pictures that rank them: on a network of 50 convolutions four pictures, on one of 200 one.
RANKED = 200
# Domains by what they bring, and by what they give back, that are measured on all pictures.
HEAD = 8
Arrays = Mapping[str, np.ndarray]
LabelledPictureFeed = tuple[str, Arrays, Arrays]
"""(label, feed of the float model, the same with pictures as raw bytes)"""


@dataclass(frozen=True)
class LayerSensitivity:
    """The effect of one domain's convolutions on the error.

    own        convolution -> error of what it stores, this domain alone at 8 bits and every other at 16, against all
               at 16 bits.
    inherited  convolution -> error of what it stores, this domain alone at 16 bits and every other at 8, against float.
    brings     output error with this domain alone at 8 bits, against all at 16 bits.
    left       output error with this domain alone at 16 bits, against float.
    in_all     convolution -> error of what it stores with every domain as in the base plan, against float.
    held       as ``left``, with ranges that hold the float model's values; None where the ranges do.
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
        """With the outputs' errors times ``share``: what they are on all pictures, taken from some."""
        if share == 1.0:
            return self
        held = None if self.held is None else self.held * share
        return replace(self, brings=self.brings * share, left=self.left * share, held=held)


@dataclass(frozen=True)
class LoudChannel:
    """A channel whose values reach LOUD times as far as those of half of the others, or further."""

    index: int
    count: int
    reach: float
    others: float


@dataclass(frozen=True)
class Contributions:
    """What a domain's 8 bits bring by their places: the output error with its inputs alone at 8 bits, and with the
    weights of its convolutions alone, against all at 16 bits; the channel of the input that takes the steps from the
    others, and the output channel whose weights do where they have one scale; ``one_scale``: at every level."""

    inputs: float
    weights: float
    channel: LoudChannel | None = None
    row: LoudChannel | None = None
    one_scale: bool = False


@dataclass(frozen=True)
class Measurement:
    """``sensitivities`` in execution order; ``all_8`` and ``all_16`` are the judged tensors' sums against float.

    all_8   of the base plan: every convolution at 8 bits, but for those that it has at 16.

    runs    plans tried, on all pictures together.
    ranked_on  pictures that every domain was measured on; errors of the outputs that were measured on these alone are
            taken in proportion to the error of the base plan on all.
    logits  judged tensors that replace the Softmax they feed.
    """

    pictures: int
    runs: int
    logits: frozenset[str]
    all_8: Totals
    all_16: Totals
    sensitivities: tuple[LayerSensitivity, ...]
    ranked_on: int = 0

    def held_ranges(self, convolution: str) -> Mapping[str, Range]:
        """The ranges that hold the values of a convolution's domain, where those of calibration do not."""
        return next(found.held_ranges for found in self.sensitivities if convolution in found.domain.convolutions)


@dataclass(frozen=True, eq=False)
class _Part:
    """Domains that are measured together, ``walk`` over their plans, which gives ``watched``: the tensors judged and
    what the domains' convolutions store. ``plans`` by what they are for: a domain's name, or "" for the base."""

    domains: tuple[Domain, ...]
    watched: frozenset[str]
    walk: PlanWalk
    lowered: Mapping[frozenset[str], str]
    raised: Mapping[frozenset[str], str]

    def plans(self, base: frozenset[str], domains: Container[str]) -> list[frozenset[str]]:
        """The base, and what is tried of these domains."""
        wanted = (plan for found in (self.lowered, self.raised) for plan, name in found.items() if name in domains)
        return list(dict.fromkeys([base, *wanted]))


@dataclass(frozen=True, eq=False)
class _Task:
    """The domains of a part that are measured, by name: every convolution at 16 bits, then their plans."""

    number: int
    domains: Mapping[str, Domain]
    prepared: Sequence[Prepared]


@dataclass
class _Scores:
    """Picture by picture; those of a domain by its name."""

    wide: list[Score] = field(default_factory=list)
    narrow: list[Score] = field(default_factory=list)
    as_is: dict[int, list[Score]] = field(default_factory=lambda: defaultdict(list))
    down: dict[str, list[Score]] = field(default_factory=lambda: defaultdict(list))
    up: dict[str, list[Score]] = field(default_factory=lambda: defaultdict(list))
    held: dict[str, list[Score]] = field(default_factory=lambda: defaultdict(list))
    held_ranges: dict[str, dict[str, Range]] = field(default_factory=dict)
    runs: int = 0


class SensitivityAnalysis:
    """Measures how sensitive one float model's outputs are to each convolution's 8 bits.

    side    what calibration found beside the ranges. Plans round on the way as the hardware does.
    base    first inputs that have 16 bits already: what is raised is raised above these.
    judged  the tensors that the outputs are judged by.
    layers  convolution -> the tensor its operator stores (after a fused Relu or Add).
    runs    plans tried on each picture.

    What the convolutions store is kept for several plans at a time. Where that is more than PART_BYTES, the domains are
    measured a part after the other.
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
        """How many pictures, the first ones, every domain is measured on."""
        return max(1, RANKED // max(1, len(self.trial.domains)))

    def most_runs(self, pictures: int) -> int:
        """Plans tried on so many pictures, at most."""
        ranked = min(pictures, self.ranked_on)
        head = min(4 * HEAD, 2 * len(self.trial.domains))
        return ranked * self.runs + (pictures - ranked) * (head + 2 * len(self._parts))

    def _check_outputs(self) -> None:
        """Raises ValuesError where the ranges say already that no error can be measured: before anything long."""
        ends = [(r.low, r.high) for name in self.judged if (r := self.trial.ranges.get(name)) is not None]
        if len(ends) == len(self.judged) > 0 and not np.round(ends, DECIMALS).any():
            raise ValuesError(ALL_ZERO)

    def _divided(self) -> list[list[Domain]]:
        """The domains in parts whose layers take at most PART_BYTES, or are one domain's."""
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
        """The sensitivity of every domain; ``advance`` is called with the number of plans tried.

        Raises InputError when there is no picture, ValuesError when the outputs cannot be compared.
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
            raise InputError("there is no picture to measure on")
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
        """What is measured of these domains; the first part always, whose base plan is that of all."""
        tasks = []
        for number, part in enumerate(self._parts):
            chosen = {domain.name: domain for domain in part.domains if domain.name in domains}
            if chosen or not number:
                plans = part.plans(self._base, chosen)
                tasks.append(_Task(number, chosen, [*part.walk.ordered([self._every]), *part.walk.ordered(plans)]))
        return tasks

    def _head(self, scores: _Scores) -> frozenset[str]:
        """The domains that bring most to the outputs' error, and those that give most of it back; all of them where
        that cannot be told from the pictures measured so far."""
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
        """One part on one picture; ``feeds``: of the float and of the fixed model."""
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
            # With one or two domains a plan is several of these at once.
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
        """The tensors that are scored under a plan."""
        if plan == self._base:
            return part.watched
        names = {name for found in (part.lowered, part.raised) if (name := found.get(plan)) is not None}
        return {*self.judged, *(n for domain in part.domains if domain.name in names for n in self._stored(domain))}

    def _clipped(
        self, domains: Iterable[Domain], ends: Mapping[str, tuple[float, float]]
    ) -> dict[str, dict[str, Range]]:
        """Domain -> ranges that hold the values of one picture, where those of the trial do not; ``ends`` of the
        float model's tensors on it."""
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
        """The judged tensors' sums against float with these domains at INT16 and every other at 8 bits."""
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
        """What the 8 bits of a convolution's domain bring, its inputs and its weights apart."""
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
        """Raw bytes for pictures that are quantised; what stays float is fed as the float model is."""
        return {name: raw[name] if name in self._pictures else feed[name] for name in feed}

    def _float_values(
        self, feed: Arrays, names: frozenset[str], inputs: Collection[str]
    ) -> tuple[dict[str, np.ndarray], dict[str, tuple[float, float]]]:
        """The float model's tensors ``names``, and the lowest and highest value of ``inputs``."""
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
                    f"output {name!r} changes its shape with the values (post-processing in the model?): "
                    f"{list(values[name].shape)} and {list(against[name].shape)}; advise on the model without that part"
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
        # With all at 16 bits a Sigmoid far below 0 may be exactly 0: nothing is a part of that.
        brings = output_error(of_outputs) if any(sums.b1 for sums in of_outputs.values()) else 0.0
        in_all = {name: error_of(as_is[self.layers[name]]) for name in domain.convolutions if as_is}
        left_held = None if held is None else output_error(held)
        return LayerSensitivity(domain, own, inherited, brings, left, in_all, left_held, held_ranges)


def _further(reaches: np.ndarray, values: np.ndarray | None, axis: int) -> np.ndarray:
    """How far the channels reach, with these values too; an input of the network, which no layer makes, is left out."""
    if values is None or values.ndim < 2 or not values.size:
        return reaches
    found = np.abs(np.moveaxis(values, axis, 0)).reshape(values.shape[axis], -1).max(axis=1)
    return np.maximum(reaches, found) if reaches.shape == found.shape else found


def loud_channel(reaches: np.ndarray) -> LoudChannel | None:
    """The channel that reaches furthest, where it is LOUD beside half of the others."""
    if reaches.size < FEWEST_CHANNELS or not np.isfinite(reaches).all():
        return None
    index = int(reaches.argmax())
    others = float(np.median(np.delete(reaches, index)))
    loud = 0 < LOUD * others <= reaches[index]
    return LoudChannel(index, reaches.size, float(reaches[index]), others) if loud else None


def _bytes_of(shape: Sequence[int | None]) -> int:
    return 4 * math.prod(size or 1 for size in shape)


def stored_layers(analysis: Analysis) -> dict[str, str]:
    """Convolution's output -> the output of the operator it is computed in."""
    return {
        node.output[0]: op.outputs[0]
        for op in analysis.operators
        for node in op.nodes
        if is_convolution(analysis.graph, node)
    }
