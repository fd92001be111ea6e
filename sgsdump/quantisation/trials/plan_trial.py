"""Try quant plans without making models: one graph, one session, every plan a feed.

trial = PlanTrial(model, ranges, config)
outputs = trial.run(frozenset({"conv3"}), feed)      # conv3's domain at INT16, every other at 8 bits
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.executors.onnx_runtime.repeated_graph import WholeGraph
from sgsdump.models.graph import REARRANGING, Graph, mark_of
from sgsdump.models.model import Model
from sgsdump.quantisation.domains import Analysis, analyse
from sgsdump.quantisation.fixed_metadata import read_facts
from sgsdump.quantisation.fixed_model import pictures_of
from sgsdump.quantisation.float_model import deployed
from sgsdump.quantisation.objective import watched_by_output
from sgsdump.quantisation.quant_plan import Choice, QuantPlan, decide, decide_tensors, weight_types
from sgsdump.quantisation.trials.qdq_writer import fake_weight, quantise
from sgsdump.quantisation.trials.switchable_graph import (
    LOW,
    SCALE,
    WEIGHT,
    ZERO_POINT,
    lowest,
    parameter,
    parametrise,
    zero_point,
)
from sgsdump.quantisation.weight_scales import weight_quant, weight_range
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.tensors.types import Range

if TYPE_CHECKING:
    from onnx import NodeProto


@dataclass(frozen=True)
class Domain:
    """Convolutions that can only be raised to INT16 together because their inputs share one domain.

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
        self.analysis: Analysis = analyse(self.proto, pictures)
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
        """What can be raised, in execution order: not the picture's convolution, nor what is INT16 in every plan."""
        settled = self._picture_roots | self.analysis.forced_domains
        return tuple(self._domain(names) for root, names in self._grouped() if root not in settled)

    @cached_property
    def fixed_weights(self) -> int:
        """Number of weights that stay at 8 bits in every plan."""
        return sum(self._domain(names).weights for root, names in self._grouped() if root in self._picture_roots)

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

    def parameters(self, raised: frozenset[str]) -> dict[str, Any]:
        """What feeds a plan into the graph."""
        tensors = decide_tensors(self.analysis, self.ranges, replace(self._choice, tensors=tuple(raised)))
        fed: dict[str, Any] = {}
        for name, quant in tensors.items():
            if name in self._picture_tensors or quant.dtype is None:
                continue
            values = ((LOW, lowest(quant)), (SCALE, np.float32(quant.scale)), (ZERO_POINT, zero_point(quant)))
            named = ((parameter(name, what, self.mark), value) for what, value in values)
            fed |= {key: np.asarray(value) for key, value in named if key in self._fed}
        for node, dtype in weight_types(self.analysis, tensors):
            fed[parameter(node.output[0], WEIGHT, self.mark)] = self._weight(node, dtype)
        return fed

    def _narrow(self) -> set[str]:
        """Tensors that are UINT8 in some plan."""
        domain = self.analysis.domain
        roots = {domain[name] for name in self.analysis.first_inputs} | self._picture_roots
        return {name for name in self.analysis.stored if domain[name] in roots - self.analysis.forced_domains}

    def _moved(self) -> set[str]:
        """Tensors that a node only moves from one of their own domain, picture's left out: they have one scale."""
        graph, domain = self.analysis.graph, self.analysis.domain
        makers = ((name, graph.producer.get(name)) for name in self.analysis.stored)
        return {
            name
            for name, node in makers
            if node is not None
            and node.op_type in REARRANGING
            and node.input[0] in self.analysis.stored
            and domain[node.input[0]] == domain[name] not in self._picture_roots
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
            groups.setdefault(self.analysis.domain[name], []).append(name)
        return list(groups.items())

    def _domain(self, names: list[str]) -> Domain:
        graph: Graph = self.analysis.graph
        nodes = [node for name in names for node in self.analysis.first_inputs[name]]
        weights = sum(int(np.prod(graph.constants[node.input[1]].dims)) for node in nodes)
        return Domain(names[0], tuple(names), tuple(node.output[0] for node in nodes), weights)
