"""Try quant plans without making models: one graph, one session, every plan a feed.

trial = PlanTrial(model, ranges, config)
outputs = trial.run(frozenset({"conv3"}), feed)      # conv3's domain at INT16, every other at 8 bits

A walk runs many plans on one picture, in an order in which neighbours agree as long as possible, and each plan only
from the first stage on where it differs from the one before. Same values as running each plan alone, to the last bit.

walk = PlanWalk(trial, ["boxes", "logits"])
for plan, outputs in walk.run(walk.ordered(plans), feed):
    ...
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.executors.onnx_runtime.repeated_graph import StagedGraph, WholeGraph
from sgsdump.models.graph import REARRANGING, Graph, mark_of
from sgsdump.models.model import Model
from sgsdump.quantisation.analysis import Analysis, analyse
from sgsdump.quantisation.fixed_facts import read_facts
from sgsdump.quantisation.float_model import deployed
from sgsdump.quantisation.objective import watched_by_output
from sgsdump.quantisation.pictures import pictures_of
from sgsdump.quantisation.quant_plan import (
    Choice,
    QuantPlan,
    decide,
    decide_tensors,
    weight_quant,
    weight_range,
    weight_types,
)
from sgsdump.quantisation.scales import INT8
from sgsdump.quantisation.tensor_arrays import RaisedInputs
from sgsdump.quantisation.trials.qdq_graph import (
    LOW,
    SCALE,
    WEIGHT,
    ZERO_POINT,
    fake_weight,
    lowest,
    parameter,
    parametrise,
    quantise,
    zero_point,
)
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.tensors.types import Range

if TYPE_CHECKING:
    from onnx import NodeProto

Plan = frozenset[str]
"""Names of the domains at INT16; all others are at 8 bits."""
# Each stage costs some 0.1 ms of its own; more of them save less and less.
MAX_STAGES = 16


@dataclass(frozen=True)
class Domain:
    """Convolutions that can only be raised to INT16 together because they read one tensor.

    name          the first of ``inputs``: it represents the domain in a plan and in ``tensor_arrays``.
    inputs        first input tensors of the convolutions.
    convolutions  output tensors of the convolution nodes.
    weights       number of weights: their bytes at 8 bits.
    """

    name: str
    inputs: tuple[str, ...]
    convolutions: tuple[str, ...]
    weights: int


class PlanTrial:
    """All plans of one float model.

    domains      what can be raised, in execution order.
    fixed_weights  weights that stay at 8 bits in every plan (the picture's convolution).
    every_plan  the graph that ``parameters`` turn into the fixed model of a plan.
    """

    def __init__(
        self,
        model: Model,
        ranges: Mapping[str, Range],
        config: InputConfig,
        per_channel: bool = False,
        threads: int = 0,
    ):
        self.model, self.ranges, self.config = model, ranges, config
        self.proto = deployed(model)
        self.mark = mark_of(self.proto)
        pictures = pictures_of(model, config, ranges)
        self.analysis: Analysis = analyse(self.proto, pictures if config.inputs else None)
        self._choice = Choice(per_channel=per_channel)
        widest = decide(self.analysis, ranges, replace(self._choice, input_format="ALL_INT16"))
        fixed = quantise(self.proto, widest, pictures)
        facts = read_facts(replace(model, proto=fixed))
        assert facts is not None
        self.every_plan = parametrise(fixed, facts, self._narrow(), self._moved(), self.mark)
        self._fed = {info.name for info in self.every_plan.graph.input}
        self.outputs = list(watched_by_output(self.proto))
        self._threads = threads
        self._weights: dict[tuple[str, np.dtype], Any] = {}
        self._picture_tensors = {name for name, tensor in facts.tensors.items() if tensor.picture}
        self.evaluations = 0

    @cached_property
    def _session(self) -> Any:
        return WholeGraph(self.every_plan, self._threads)

    @cached_property
    def domains(self) -> tuple[Domain, ...]:
        """The domains that can be raised, in execution order: not the picture's, nor what is INT16 in every plan."""
        settled = self._picture_roots | self.analysis.forced_domains
        return tuple(self._domain(names) for root, names in self._grouped() if root not in settled)

    @cached_property
    def settled(self) -> tuple[Domain, ...]:
        """The domains that stay at 8 bits in every plan."""
        return tuple(self._domain(names) for root, names in self._grouped() if root in self._picture_roots)

    @property
    def fixed_weights(self) -> int:
        """Number of weights that stay at 8 bits in every plan."""
        return sum(domain.weights for domain in self.settled)

    @property
    def _picture_roots(self) -> set[str]:
        return self.analysis.picture_domains

    def rate(self, raised: Iterable[str]) -> float:
        """Bytes of the convolutions' weights over their bytes at 16 bits: 0.5 is all 8 bits, 1 all 16. What is INT16 in
        every plan does not count."""
        total = self.fixed_weights + sum(d.weights for d in self.domains)
        wide = sum(d.weights for d in self.domains if d.name in set(raised))
        return (total + wide) / (2 * total) if total else 0.5

    def plan(self, raised: Iterable[str]) -> QuantPlan:
        """The quant plan with these domains at INT16 and every other at 8 bits."""
        return decide(self.analysis, self.ranges, replace(self._choice, tensors=tuple(raised)))

    def run(
        self, raised: Iterable[str], feed: Mapping[str, np.ndarray], outputs: Iterable[str] | None = None
    ) -> dict[str, np.ndarray]:
        """The model's outputs (or other stored tensors) under a plan, for raw bytes of a picture input."""
        self.evaluations += 1
        return self._session.run({**feed, **self.parameters(frozenset(raised))}, list(outputs or self.outputs))

    def parameters(self, raised: frozenset[str], ranges: Mapping[str, Range] | None = None) -> dict[str, Any]:
        """The inputs that make the graph one of this plan; ``ranges`` in place of the trial's own."""
        tensors = decide_tensors(self.analysis, ranges or self.ranges, replace(self._choice, tensors=tuple(raised)))
        fed: dict[str, Any] = {}
        for name, quant in tensors.items():
            if name in self._picture_tensors or quant.dtype is None:
                continue
            values = ((LOW, lowest(quant)), (SCALE, np.float32(quant.scale)), (ZERO_POINT, zero_point(quant)))
            named = ((parameter(name, part, self.mark), value) for part, value in values)
            fed |= {key: np.asarray(value) for key, value in named if key in self._fed}
        for node, dtype in weight_types(self.analysis, tensors):
            fed[parameter(node.output[0], WEIGHT, self.mark)] = self._weight(node, dtype)
        return fed

    def weight_parameters(self, domain: Domain) -> list[str]:
        """The names of those parameters that are a domain's weights."""
        return [parameter(name, WEIGHT, self.mark) for name in domain.convolutions]

    def shares_scale(self, node: NodeProto) -> bool:
        """Whether a convolution's 8-bit weights have one scale for all output channels."""
        calibrated = weight_range(node, self.ranges)
        return weight_quant(self.analysis.graph, node, INT8, calibrated, self._choice.per_channel).axis is None

    def _narrow(self) -> set[str]:
        """Tensors that are UINT8 in some plan."""
        domain = self.analysis.domain
        roots = {domain[name] for name in self.analysis.first_inputs} | self._picture_roots
        return {name for name in self.analysis.stored if domain[name] in roots - self.analysis.forced_domains}

    def _moved(self) -> set[str]:
        """Tensors that a node only moves from one of their own domain, picture's left out: they have one scale."""
        graph, domain, together = self.analysis.graph, self.analysis.domain, self.analysis.together
        makers = ((name, graph.producer.get(name)) for name in self.analysis.stored)
        return {
            name
            for name, node in makers
            if node is not None
            and node.op_type in REARRANGING
            and node.input[0] in self.analysis.stored
            and together[node.input[0]] == together[name]
            and domain[name] not in self._picture_roots
        }

    def _weight(self, node: NodeProto, dtype: np.dtype) -> Any:
        """Made once: the ranges of weights stay."""
        key = (node.output[0], dtype)
        if key not in self._weights:
            graph = self.analysis.graph
            quant = weight_quant(graph, node, dtype, weight_range(node, self.ranges), self._choice.per_channel)
            self._weights[key] = WholeGraph.hold(fake_weight(graph.value(node.input[1]), quant))
        return self._weights[key]

    def _grouped(self) -> list[tuple[str, list[str]]]:
        groups: dict[str, list[str]] = {}
        for name in self.analysis.first_inputs:
            groups.setdefault(self.analysis.switch(name), []).append(name)
        return list(groups.items())

    def _domain(self, names: list[str]) -> Domain:
        graph: Graph = self.analysis.graph
        nodes = [node for name in names for node in self.analysis.first_inputs[name]]
        weights = sum(int(np.prod(graph.constants[node.input[1]].dims)) for node in nodes)
        return Domain(names[0], tuple(names), tuple(node.output[0] for node in nodes), weights)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A plan, what it feeds, and for each stage the identities of what that stage reads of it."""

    plan: Plan
    fed: Mapping[str, Any]
    marks: tuple[tuple[int, ...], ...]


class PlanWalk:
    """Plans of one ``PlanTrial``; ``outputs`` are names of real tensors of the fixed model.

    Several threads may run feeds side by side; ``ordered`` is for one thread.
    """

    def __init__(self, trial: PlanTrial, outputs: Sequence[str]):
        self._trial = trial
        self._known: dict[tuple[str, bytes], Any] = {}
        self._last: Prepared | None = None
        fed = {*trial.parameters(frozenset()), *trial.analysis.graph.inputs}
        self._graph = StagedGraph(trial.every_plan, _cuts(trial), fed, outputs)

    def ordered(self, plans: Iterable[Plan]) -> list[Prepared]:
        """The plans, each once, as a walk over the tree of their common beginnings, on from where the last ended."""
        prepared = [self.prepared(plan) for plan in dict.fromkeys(plans)]
        last = self._last.marks if self._last else ()
        walk = sorted(prepared, key=lambda p: [(m != before, m) for m, before in zip_longest(p.marks, last)])
        self._last = walk[-1] if walk else self._last
        return walk

    def run(
        self, prepared: Sequence[Prepared], feed: Mapping[str, np.ndarray]
    ) -> Iterator[tuple[Plan, dict[str, np.ndarray]]]:
        """Each plan with its outputs on one feed (raw bytes of a picture)."""
        yield from self.visit(feed).run(prepared)

    def visit(self, feed: Mapping[str, np.ndarray]) -> Visit:
        """For plans that come one by one, on one feed (raw bytes of a picture)."""
        return Visit(self._graph, feed)

    def prepared(self, plan: Plan, ranges: Mapping[str, Range] | None = None) -> Prepared:
        """A plan with the ranges that the trial has now, or with these."""
        fed = {name: self._held(name, value) for name, value in self._trial.parameters(plan, ranges).items()}
        return Prepared(plan, fed, self._marks(fed))

    def mixed(self, prepared: Prepared, other: Prepared, names: Iterable[str]) -> Prepared:
        """A plan with these parameters of another."""
        fed = {**prepared.fed, **{name: other.fed[name] for name in names}}
        return Prepared(prepared.plan, fed, self._marks(fed))

    def _marks(self, fed: Mapping[str, Any]) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(id(fed[name]) for name in reads if name in fed) for reads in self._graph.reads)

    def _held(self, name: str, value: Any) -> Any:
        """One object for each value of a parameter, so that equal values are the same object."""
        if not isinstance(value, (np.ndarray, np.generic)):
            return value
        key = (name, value.tobytes())
        if key not in self._known:
            self._known[key] = self._graph.hold(value)
        return self._known[key]


class Visit:
    """One picture's run of plan after plan; what each stage found when it began is kept for the next plan."""

    def __init__(self, graph: StagedGraph, feed: Mapping[str, np.ndarray]):
        self._graph = graph
        self._picture = {name: graph.hold(array) for name, array in feed.items()}
        self._entered: list[dict[str, Any]] = []
        self._entries = graph.entries()
        self._before: Prepared | None = None

    @property
    def held_bytes(self) -> int:
        """The values kept for the next plan."""
        return self._graph.bytes_of(value for stage in self._entered for value in stage.values())

    def run(
        self, prepared: Iterable[Prepared], names: Callable[[Plan], Collection[str]] | None = None
    ) -> Iterator[tuple[Plan, dict[str, np.ndarray]]]:
        """Each plan with its outputs: those that ``names`` says of it, or all."""
        for now in prepared:
            yield now.plan, self.outputs(now, names(now.plan) if names else None)

    def outputs(self, now: Prepared, names: Collection[str] | None = None) -> dict[str, np.ndarray]:
        """The wanted tensors under a plan (``names``: only these of them), run from the first stage on where it differs
        from the plan before."""
        graph, entered, last = self._graph, self._entered, len(now.marks) - 1
        start = 0 if self._before is None else min(_agreeing(self._before.marks, now.marks), last)
        self._before = None  # an error on the way leaves nothing to go on from
        del entered[start + 1 :]
        carried = entered[start] if entered else {}
        for stage in range(start, last + 1):
            if stage == len(entered):
                entered.append(carried)
            reads = {name: now.fed[name] for name in graph.reads[stage] if name in now.fed}
            computed = graph.run(stage, {**carried, **reads, **self._picture}, self._entries[stage])
            onwards = graph.carries[stage + 1] if stage < last else None
            carried = {n: v for n, v in {**carried, **computed}.items() if onwards is None or n in onwards}
        self._before = now
        return graph.arrays(carried, names)


def _agreeing(a: Sequence[tuple[int, ...]], b: Sequence[tuple[int, ...]]) -> int:
    """The first stage at which two plans differ."""
    return next((stage for stage, (first, second) in enumerate(zip(a, b)) if first != second), len(b))


def _cuts(trial: PlanTrial) -> list[int]:
    """Numbers of the nodes where some domain's parameters are read first, at most MAX_STAGES - 1 of them."""
    together = trial.analysis.together
    owner: dict[str, str] = {}
    for chosen in trial.domains:
        root = together[chosen.name]
        members = [name for name in trial.analysis.stored if together[name] == root]
        owner |= {parameter(n, part, trial.mark): chosen.name for n in members for part in (LOW, SCALE, ZERO_POINT)}
        owner |= {parameter(name, WEIGHT, trial.mark): chosen.name for name in chosen.convolutions}
    first: dict[str, int] = {}
    for index, node in enumerate(trial.every_plan.graph.node):
        for name in node.input:
            if name in owner:
                first.setdefault(owner[name], index)
    places = sorted(set(first.values()) - {0})
    step = -(-len(places) // (MAX_STAGES - 1)) if places else 1
    return places[::step]


def words_of(trial: PlanTrial, plan: Plan) -> tuple[str, ...]:
    """The words of ``tensor_arrays`` that raise a plan's domains."""
    words = RaisedInputs(trial.analysis).words
    inputs = [name for domain in trial.domains if domain.name in plan for name in domain.inputs]
    return tuple(dict.fromkeys(word for name in inputs for word in words[name]))
