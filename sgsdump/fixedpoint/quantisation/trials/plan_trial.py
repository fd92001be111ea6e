"""Trials of quant plans without new models: one graph, one session, and each plan is a feed.

trial = PlanTrial(model, ranges, config)
outputs = trial.run(frozenset({"conv3"}), feed)      # conv3's domain at INT16, all others at 8 bits
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from operator import is_not
from typing import Any

import numpy as np
from onnx import NodeProto

from sgsdump.executors.onnx_runtime.repeated_graph import WholeGraph
from sgsdump.fixedpoint.quantisation.analysis import Analysis, analyse
from sgsdump.fixedpoint.quantisation.float_model import deployed, pictures_of
from sgsdump.fixedpoint.quantisation.integer.emitter import REACH
from sgsdump.fixedpoint.quantisation.objective import watched_by_output
from sgsdump.fixedpoint.quantisation.quant_plan import (
    Choice,
    PlanScales,
    QuantPlan,
    decide,
    weight_quant,
    weight_range,
    weight_type,
    weight_types,
)
from sgsdump.fixedpoint.quantisation.ranges.statistics import NOTHING_BESIDE
from sgsdump.fixedpoint.quantisation.tensor_arrays import RaisedInputs
from sgsdump.fixedpoint.quantisation.tensor_scales import INT8
from sgsdump.fixedpoint.quantisation.trials.hardware_rounding import Accumulated, OnHardware
from sgsdump.fixedpoint.quantisation.trials.qdq_graph import (
    ADDEND,
    BIAS,
    CONSTANT,
    GAIN,
    LOW,
    SCALE,
    WEIGHT,
    ZERO_POINT,
    Hardware,
    fake_weight,
    held,
    lowest,
    parameter,
    parametrise,
    quantise,
    zero_point,
)
from sgsdump.fixedpoint.quantisation.type_rules import Operator
from sgsdump.models.fixed_facts import FixedFacts, read_facts
from sgsdump.models.graph import REARRANGING, Graph, mark_of
from sgsdump.models.model import Model
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range

Plan = frozenset[str]
"""The names of the domains at INT16; all others are at 8 bits."""


@dataclass(frozen=True)
class Domain:
    """Convolutions that can only be raised to INT16 together because they read one tensor.

    name          first of ``inputs``; represents the domain in a plan and in ``tensor_arrays``.
    inputs        first input tensors of the convolutions.
    convolutions  output tensors of the convolution nodes.
    weights       number of weights: their bytes at 8 bits.
    """

    name: str
    inputs: tuple[str, ...]
    convolutions: tuple[str, ...]
    weights: int


@dataclass(frozen=True, eq=False)
class _Made:
    """The feeds of a plan and their origin.

    tensors      quant of every stored tensor.
    rounded      stored tensors that the hardware rounds more coarsely.
    accumulated  convolutions with the hardware's sums.
    """

    tensors: Mapping[str, Quant]
    rounded: Mapping[str, Quant]
    accumulated: Mapping[str, Accumulated]
    fed: dict[str, Any]


class PlanTrial:
    """All plans of one float model.

    hardware       rounds intermediate values and computes Sigmoids like the hardware (``hardware_rounding``); by
                   default only stored tensors are rounded.

    domains        domains that can be raised, in execution order.
    fixed_weights  number of weights that stay at 8 bits in every plan (the image's convolution).
    every_plan     the graph that ``parameters`` turn into the fixed model of a plan.
    """

    def __init__(
        self,
        model: Model,
        ranges: Mapping[str, Range],
        config: InputConfig,
        per_channel: bool = False,
        threads: int = 0,
        hardware: OnHardware | None = None,
    ):
        self.model, self.ranges, self.config = model, ranges, config
        self.proto = deployed(model)
        self.mark = mark_of(self.proto)
        pictures = pictures_of(model, config, ranges)
        self.analysis: Analysis = analyse(self.proto, pictures if config.inputs else None)
        self._choice = Choice(per_channel=per_channel)
        self._plan_scales = PlanScales(self.analysis)
        widest = decide(self.analysis, ranges, replace(self._choice, input_format="ALL_INT16"))
        fixed = quantise(self.proto, widest, pictures)
        facts = read_facts(replace(model, proto=fixed))
        assert facts is not None
        graph = self.analysis.graph
        self.side = hardware.side if hardware is not None else NOTHING_BESIDE
        self._weight_quants: dict[tuple[str, np.dtype], Quant] = {}
        self._rounding = None if hardware is None else hardware.rounding(graph, ranges, self._weight_quant)
        self._hardware = Hardware()
        self._rounding_operators = [
            operator
            for operator in (self.analysis.operators if self._rounding is not None else ())
            if operator.outputs and not operator.moves_values and operator.head.op_type != "Concat"
        ]
        if self._rounding is not None:
            constants = self._rounding.spread(self.analysis.operators)
            self._hardware = Hardware(self._accumulating(facts, widest), self._far(), constants)
        self.every_plan = parametrise(fixed, facts, self._narrow(), self._moved(), self.mark, self._hardware)
        self._fed = {info.name for info in self.every_plan.graph.input}
        self.outputs = list(watched_by_output(self.proto))
        self._threads = threads
        self._weights: dict[tuple[str, np.dtype, bytes], Any] = {}
        self._convolutions: dict[tuple[str, np.dtype, int], tuple[Accumulated | None, dict[str, Any]]] = {}
        self._scales: dict[tuple[str, int, int], tuple[Quant, Quant | None, dict[str, np.ndarray]]] = {}
        self._rounded_with: dict[str, list[Operator]] = {}
        for operator in self._rounding_operators:
            for name in (*operator.inputs, *operator.outputs):
                self._rounded_with.setdefault(name, []).append(operator)
        self._read_by = {n: [node.output[0] for node in nodes] for n, nodes in self.analysis.first_inputs.items()}
        self._convolution = {
            node.output[0]: (name, node) for name, nodes in self.analysis.first_inputs.items() for node in nodes
        }
        self._made: _Made | None = None
        self._picture_tensors = {name for name, tensor in facts.tensors.items() if tensor.picture}
        self.evaluations = 0

    @cached_property
    def _session(self) -> Any:
        return WholeGraph(self.every_plan, self._threads)

    @cached_property
    def domains(self) -> tuple[Domain, ...]:
        """The domains that can be raised, in execution order, without images' and those that are always INT16."""
        settled = self._picture_roots | self.analysis.forced_domains
        return tuple(self._domain(names) for root, names in self._grouped() if root not in settled)

    @cached_property
    def settled(self) -> tuple[Domain, ...]:
        """The domains that stay at 8 bits in every plan."""
        return tuple(self._domain(names) for root, names in self._grouped() if root in self._picture_roots)

    @property
    def fixed_weights(self) -> int:
        """The number of weights that stay at 8 bits in every plan."""
        return sum(domain.weights for domain in self.settled)

    @property
    def _picture_roots(self) -> set[str]:
        return self.analysis.picture_domains

    def rate(self, raised: Iterable[str]) -> float:
        """Return the bytes of the convolutions' weights as a share of all INT16: 0.5 is all INT8, 1 all INT16.

        Weights that are INT16 in every plan do not count.
        """
        names = set(raised)
        total = self.fixed_weights + sum(d.weights for d in self.domains)
        wide = sum(d.weights for d in self.domains if d.name in names)
        return (total + wide) / (2 * total) if total else 0.5

    def plan(self, raised: Iterable[str]) -> QuantPlan:
        """Return the quant plan with these domains at INT16 and all others at 8 bits."""
        return decide(self.analysis, self.ranges, replace(self._choice, tensors=tuple(raised)))

    def run(
        self, raised: Iterable[str], feed: Mapping[str, np.ndarray], outputs: Iterable[str] | None = None
    ) -> dict[str, np.ndarray]:
        """Return the model's outputs (or other stored tensors) under a plan; an image input takes raw bytes."""
        self.evaluations += 1
        return self._session.run({**feed, **self.parameters(frozenset(raised))}, list(outputs or self.outputs))

    def parameters(
        self,
        raised: frozenset[str],
        ranges: Mapping[str, Range] | None = None,
        weights: Mapping[str, np.dtype] = {},
    ) -> dict[str, Any]:
        """Return the inputs that turn the graph into this plan.

        ranges   replace the trial's own.
        weights  types of the weights of some convolutions, by output, in place of the plan's.
        """
        tensors = self._plan_scales.of(replace(self._choice, tensors=tuple(raised)), ranges or self.ranges)
        made = None if weights or self._made is None else self._made_on(self._made, tensors)
        if made is None:
            made = self._made_whole(tensors, weights)
        if not weights:
            self._made = made
        return made.fed

    def _made_whole(self, tensors: Mapping[str, Quant], weights: Mapping[str, np.dtype]) -> _Made:
        rounded, accumulated, constants = self._rounded(self._rounding_operators, tensors)
        fed = self._constants(constants)
        for name, quant in tensors.items():
            fed.update(self._scaled(name, quant, rounded.get(name)))
        for node, dtype in weight_types(self.analysis, tensors):
            fed.update(self._weighted(node, weights.get(node.output[0], dtype), accumulated.get(node.output[0])))
        return _Made(tensors, rounded, accumulated, fed)

    def _made_on(self, before: _Made, tensors: Mapping[str, Quant]) -> _Made | None:
        """Return the parameters by updating those of the previous plan; None if other parameters are fed."""
        old = before.tensors
        if list(old) != list(tensors):
            return None
        changed = set(compress(tensors, map(is_not, tensors.values(), old.values())))
        operators = {id(op): op for name in changed for op in self._rounded_with.get(name, ())}
        rounded, accumulated, constants = self._rounded(operators.values(), tensors)
        was_rounded, was_accumulated, was_constant = self._rounded(operators.values(), old)
        if was_constant.keys() != constants.keys():
            return None
        whole_rounded = {n: q for n, q in before.rounded.items() if n not in was_rounded} | rounded
        whole_accumulated = {n: a for n, a in before.accumulated.items() if n not in was_accumulated} | accumulated
        fed = before.fed | self._constants(constants)
        pairs = [
            (self._scaled(n, tensors[n], whole_rounded.get(n)), self._scaled(n, old[n], before.rounded.get(n)))
            for n in changed | rounded.keys() | was_rounded.keys()
        ]
        sums = whole_accumulated, before.accumulated
        for output in {*accumulated, *was_accumulated, *(n for name in changed for n in self._read_by.get(name, ()))}:
            source, node = self._convolution[output]
            if source in tensors:
                now, then = (
                    self._weighted(node, weight_type(of[source]), found.get(output))
                    for of, found in zip((tensors, old), sums)
                )
                pairs.append((now, then))
        if any(now.keys() != then.keys() for now, then in pairs):
            return None
        for now, _ in pairs:
            fed.update(now)
        return _Made(tensors, whole_rounded, whole_accumulated, fed)

    def _constants(self, constants: Mapping[str, np.ndarray]) -> dict[str, Any]:
        return {parameter(n, CONSTANT, self.mark): v for n, v in constants.items() if n in self._hardware.constants}

    def _scaled(self, name: str, quant: Quant, coarser: Quant | None) -> dict[str, np.ndarray]:
        """Return the parameters of a tensor, cached per quant object; ``coarser``: with the hardware's steps."""
        if quant.dtype is None or name in self._picture_tensors:
            return {}
        key = (name, id(quant), id(coarser))
        if key not in self._scales:
            scale = float(quant.scale if coarser is None else coarser.scale)
            low, zero = (lowest(quant), zero_point(quant)) if coarser is None else held(quant, scale)
            values = ((LOW, low), (SCALE, np.float32(scale)), (ZERO_POINT, zero))
            named = ((parameter(name, part, self.mark), value) for part, value in values)
            # Keep the quants, so that no other object gets their identity.
            self._scales[key] = quant, coarser, {each: np.asarray(value) for each, value in named if each in self._fed}
        return self._scales[key][2]

    def _rounded(
        self, operators: Iterable[Operator], tensors: Mapping[str, Quant]
    ) -> tuple[dict[str, Quant], dict[str, Accumulated], dict[str, np.ndarray]]:
        """Return the hardware's rounding of these operators.

        It consists of coarser stored tensors, the sums of convolutions, and constant factors and addends, by output.
        """
        coarser: dict[str, Quant] = {}
        constants: dict[str, np.ndarray] = {}
        accumulated: dict[str, Accumulated] = {}
        for operator in operators:
            assert self._rounding is not None
            found = self._rounding.of(operator, tensors)
            if found.quant is not None:
                coarser[operator.outputs[0]] = found.quant
            if found.head is not None:
                accumulated[operator.head.output[0]] = found.head
            if found.constants:
                constants |= found.constants
        return coarser, accumulated, constants

    def _accumulating(self, facts: FixedFacts, widest: QuantPlan) -> dict[str, int]:
        """Return the convolutions whose accumulator is rounded like the hardware's, with their output channels."""
        rounding = self._rounding
        return {
            name: sums.gain.size
            for name, sums in self._rounded(self._rounding_operators, widest.tensors)[1].items()
            if name in facts.convolutions and rounding and rounding.accumulates(self.analysis.graph.producer[name])
        }

    def _far(self) -> set[str]:
        """Return the outputs of Sigmoids whose input exceeds their table."""
        return {
            node.output[0]
            for node in self.analysis.graph.nodes
            if node.op_type == "Sigmoid" and self._reach(node.input[0]) > REACH
        }

    def _reach(self, name: str) -> float:
        bounds = self.ranges.get(name)
        return 0.0 if bounds is None else max(abs(bounds.low), abs(bounds.high))

    def shares_scale(self, node: NodeProto) -> bool:
        """Return whether a convolution's 8-bit weights have one scale for all output channels."""
        calibrated = weight_range(node, self.ranges)
        return weight_quant(self.analysis.graph, node, INT8, calibrated, self._choice.per_channel).axis is None

    def _narrow(self) -> set[str]:
        """Return the tensors that are UINT8 in some plan."""
        domain = self.analysis.domain
        roots = {domain[name] for name in self.analysis.first_inputs} | self._picture_roots
        return {name for name in self.analysis.stored if domain[name] in roots - self.analysis.forced_domains}

    def _moved(self) -> set[str]:
        """Return the tensors that are only moved within their domain, without images': they share one scale."""
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

    def _weighted(self, node: NodeProto, dtype: np.dtype, sums: Accumulated | None) -> dict[str, Any]:
        """Return the parameters of a convolution, cached per type of its weights and per accumulator object."""
        sums = sums if node.output[0] in self._hardware.accumulating else None
        key = (node.output[0], dtype, id(sums))
        if key not in self._convolutions:
            values = {WEIGHT: self._weight(node, dtype, sums)}
            values |= {} if sums is None else {BIAS: sums.zero, GAIN: sums.gain, ADDEND: sums.addend}
            named = {parameter(node.output[0], part, self.mark): value for part, value in values.items()}
            self._convolutions[key] = sums, named  # keep ``sums``, so that no other object gets its identity
        return self._convolutions[key][1]

    def _weight(self, node: NodeProto, dtype: np.dtype, sums: Accumulated | None) -> Any:
        """Return the fake-quantised weights, cached; ``sums``: in the steps of that accumulator."""
        key = (node.output[0], dtype, sums.key if sums else b"")
        if key not in self._weights:
            weight = fake_weight(self.analysis.graph.value(node.input[1]), self._weight_quant(node, dtype))
            if sums is not None:
                weight = sums.in_steps(node, weight)
            self._weights[key] = WholeGraph.hold(weight)
        return self._weights[key]

    def _weight_quant(self, node: NodeProto, dtype: np.dtype) -> Quant:
        key = (node.output[0], dtype)
        if key not in self._weight_quants:
            calibrated = weight_range(node, self.ranges)
            self._weight_quants[key] = weight_quant(
                self.analysis.graph, node, dtype, calibrated, self._choice.per_channel
            )
        return self._weight_quants[key]

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


def words_of(trial: PlanTrial, plan: Plan) -> tuple[str, ...]:
    """Return the words of ``tensor_arrays`` that raise a plan's domains."""
    words = RaisedInputs(trial.analysis).words
    inputs = [name for domain in trial.domains if domain.name in plan for name in domain.inputs]
    return tuple(dict.fromkeys(word for name in inputs for word in words[name]))
