"""The way through a quant plan's operators: a stored tensor ``X`` becomes ``X#stored``, made by its operator's rule.

Inside a fused chain the first operator is brought to INT16 over its own range, and so is every further one but the
last.

What has no integer rule is done another way and listed in ``Walk.approximate``: a function of one tensor other than
Sigmoid and TanH is a table with ideal rounding; any other operator is computed in float32 between dequantised inputs
and a requantised output.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.models.graph import Graph, needs, reading
from sgsdump.quantisation.domains import moves_values
from sgsdump.quantisation.fixed_facts import FixedFacts, Origin, StoredTensor, StoredWeights
from sgsdump.quantisation.fusion import Operator
from sgsdump.quantisation.integer.activation import Step, steps_of
from sgsdump.quantisation.integer.convolution.weighted import compute_weighted
from sgsdump.quantisation.integer.curve import CURVES, REACH
from sgsdump.quantisation.integer.dumped import dumped
from sgsdump.quantisation.integer.emitter import DOUBLE, Emitter, Integers, Unrounded
from sgsdump.quantisation.integer.moving import move
from sgsdump.quantisation.integer.picture_bytes import steps_of_bytes
from sgsdump.quantisation.integer.pooling import average_pool, global_average_pool, max_pool
from sgsdump.quantisation.integer.rounding import S16_MAX, half_away, reach, step
from sgsdump.quantisation.integer.rules import PARAMETRIC, RULES, Call, constant_of
from sgsdump.quantisation.integer.scaling import requantise
from sgsdump.quantisation.integer.table import function_of, ideal, is_function, look_up
from sgsdump.quantisation.pictures import Picture
from sgsdump.quantisation.quant_plan import QuantPlan
from sgsdump.quantisation.scales import INT16, UINT8, int16_quant
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range

if TYPE_CHECKING:
    from onnx import NodeProto


@dataclass(eq=False)
class Walk:
    """What has been written so far. ``values``: every stored tensor as it stands in the graph, and those between the
    operators of a chain; ``reals``: tensors that are there as float32, and the names they have as such."""

    graph: Graph
    plan: QuantPlan
    ranges: Mapping[str, Range]
    channels: Mapping[str, Range]
    emit: Emitter
    values: dict[str, Integers] = field(default_factory=dict)
    reals: dict[str, str] = field(default_factory=dict)
    approximate: dict[str, str] = field(default_factory=dict)
    weights: dict[str, StoredWeights] = field(default_factory=dict)
    convolutions: dict[str, str] = field(default_factory=dict)
    biases: dict[str, str] = field(default_factory=dict)
    named: dict[str, tuple[str, str]] = field(default_factory=dict)

    def input(self, name: str, picture: Picture | None) -> None:
        """A picture's bytes as they are, when that is what its mean, std and range mean; any other input rounded."""
        quant, self.emit.scope = self.plan.tensors[name], name
        source = self._nearest(name, quant) if picture is None else steps_of_bytes(self.emit, name, picture, quant)
        self.values[name] = self.emit.store(source, quant, self.emit.stored(name))

    def operator(self, operator: Operator) -> None:
        self.emit.scope = operator.outputs[0] if operator.outputs else ""
        if not operator.outputs or operator.outputs[0] not in self.plan.tensors:
            for node in operator.nodes:
                self._plain(node)
        elif moves_values(operator) or operator.head.op_type == "Concat":
            self._move(operator)
        else:
            self._chain(operator)

    def _move(self, operator: Operator) -> None:
        """Inputs of another scale are requantised first: the MUL by 1.0 that the SDK's converter inserts."""
        node, quant = operator.head, self.plan.tensors[operator.outputs[0]]
        names = node.input if node.op_type == "Concat" else node.input[:1]
        if any(name not in self.values for name in names):
            self._keep(self._in_float(node, quant, operator.outputs[0]), quant, operator.outputs[0])
            return
        values = [self._rescaled(self.values[name], quant) for name in names]
        stored = {name for name in operator.outputs if name in self.plan.tensors}
        if node.op_type in ("MaxPool", "GlobalMaxPool"):
            pooled = max_pool(self.emit, values[0], node)
            self._keep(pooled, quant, operator.outputs[0])
            return
        move(self.emit, node, values, [self.emit.stored(name) if name in stored else "" for name in node.output])
        for name in stored:
            assert quant.dtype is not None, "a plan knows every type"
            self.values[name] = Integers(self.emit.stored(name), quant.dtype, quant)

    def _chain(self, operator: Operator) -> None:
        *inner, last = steps_of(self.graph, operator)
        for made, following in pairwise([*inner, last]):
            quant = self._own_range(made.name, REACH if following.node.op_type in CURVES else 0.0)
            outcome = _limited(self._compute(made.node, quant, made.name), made, quant)
            # What a pool puts out keeps the scale of its input.
            self.values[made.name] = self.emit.inner(outcome, quant) if isinstance(outcome, Unrounded) else outcome
        name = operator.outputs[0]
        quant = self.plan.tensors[name]
        low, high = last.limits(quant)
        whole = quant.dtype == UINT8 and low <= 0 and high == np.inf
        outcome = _limited(self._compute(last.node, quant, name, self.emit.stored(name) if whole else ""), last, quant)
        self._keep(outcome, quant, name)

    def _compute(self, node: NodeProto, quant: Quant, name: str, stored: str = "") -> Integers | Unrounded:
        """One node by its rule, or by the nearest thing to one. ``stored``: see ``convolve``."""
        weighted = node.output[0] in self.plan.weights and node.input[0] in self.values
        if weighted and (convolved := self._convolution(node, quant, stored)) is not None:
            return convolved
        operands = self._operands(node)
        if operands is None:
            return self._in_float(node, quant, name)
        if node.op_type in RULES:
            bounds = self._bounds(name, quant)
            constant = self._spread(node)
            values = None if constant is None else self.graph.value(constant)
            return RULES[node.op_type](Call(self.emit, self.graph, node, tuple(operands), quant, bounds, values))
        if node.op_type in CURVES:
            curve, source = CURVES[node.op_type], operands[0].quant
            bounds = self._bounds(name, quant)
            return look_up(
                self.emit, operands[0], quant, lambda q: curve(q, source, quant, bounds), self.emit.stored(name)
            )
        if node.op_type == "MaxPool":
            return max_pool(self.emit, operands[0], node)
        if node.op_type == "GlobalAveragePool":
            return global_average_pool(self.emit, operands[0])
        if node.op_type == "AveragePool":
            # What goes on as UINT8 is brought there first.
            value = operands[0] if quant.dtype == INT16 else self._rescaled(operands[0], quant)
            if (pooled := average_pool(self.emit, value, node)) is not None:
                return pooled
        if is_function(node, self.graph):
            self.approximate[name] = f"{node.op_type}: a table with ideal rounding"
            function = ideal(function_of(node, self.graph), operands[0].quant, quant)
            return look_up(self.emit, self._broadcast(operands[0], node), quant, function, self.emit.stored(name))
        return self._in_float(node, quant, name)

    def _convolution(self, node: NodeProto, quant: Quant, stored: str) -> Integers | Unrounded | None:
        """None for a fully connected operator whose matrix is not a plain one."""
        name, value = node.output[0], self.values[node.input[0]]
        whole = self.ranges.get(name) or reach(quant)
        made = compute_weighted(
            self.emit, self.graph, node, value, self.plan.weights[name], quant, self.channels, whole, stored
        )
        if made is None:
            return None
        self.weights[made.kernel] = made.weights
        self.convolutions[name] = made.kernel
        self.biases[made.rows] = made.bias
        self.named[name] = (made.kernel, made.rows)
        return made.outcome

    def _bounds(self, name: str, quant: Quant) -> Range:
        """The range that a tensor is computed for: of a stored one its domain's, of one inside a chain its own."""
        return self.plan.bounds.get(name) or self.ranges.get(name) or reach(quant)

    def _spread(self, node: NodeProto) -> str | None:
        """The constant that a node multiplies by or adds, where it is spread over the tensor; one as large as the
        tensor (Caffe's BatchNorm and Scale after a fully connected operator, or on maps of one pixel) is an operand."""
        constant = constant_of(self.graph, node)
        if constant is None:
            return None
        shape = self.graph.shapes.get(next(name for name in node.input if name != constant), ())
        size = math.prod(self.graph.constants[constant].dims)
        sizes = [length for length in shape[1:] if length is not None]
        whole = size > 1 and len(sizes) == len(shape) - 1 and math.prod(sizes) == size
        return None if whole else constant

    def _operands(self, node: NodeProto) -> list[Integers] | None:
        """A node's inputs as integers; None when one of them is none. Constants get the scale of their own range."""
        if node.op_type in RULES and any(self._is_infinite(name) for name in node.input):
            return None
        constant = self._spread(node)
        names = [name for name in node.input if name and name != constant]
        if node.op_type in PARAMETRIC or node.op_type not in RULES:
            names = names[:1]
        operands = []
        for name in names:
            if name in self.values:
                operands.append(self.values[name])
            elif name in self.graph.constants and self.graph.value(name).dtype.kind == "f":
                operands.append(self._constant(name))
            else:
                return None
        return operands

    def _is_infinite(self, name: str) -> bool:
        values = self.graph.value(name) if name in self.graph.constants else np.zeros(())
        return values.dtype.kind == "f" and not np.isfinite(values).all()

    def _broadcast(self, value: Integers, node: NodeProto) -> Integers:
        """The node's first input with as many dimensions as its constants of one element have, where they have more."""
        rank = max((len(self.graph.constants[name].dims) for name in node.input[1:] if name), default=0)
        if not rank:
            return value
        ones = self.emit.constant(np.ones(rank, np.int64))
        return replace(value, name=self.emit.add("Expand", [value.name, ones]))

    def _constant(self, name: str) -> Integers:
        values = self.graph.value(name).astype(np.float64)
        # Without a calibrated range its own, in the six decimals that the SDK's file of ranges has.
        low, high = (float(f"{end:.6f}") for end in (values.min(), values.max()))
        bounds = self.ranges.get(name) or Range.of(low, high)
        quant = int16_quant(bounds.low, bounds.high)
        stored = np.clip(half_away(values / quant.scale), -S16_MAX, S16_MAX)
        return Integers(self.emit.constant(stored), DOUBLE, quant)

    def _rescaled(self, value: Integers, quant: Quant) -> Integers:
        """The values at another scale, between operators that only take their own."""
        if value.quant == quant:
            return value
        assert quant.dtype is not None, "a plan knows every type"
        return self.emit.store(requantise(self.emit, value, quant), quant, self.emit.fresh("requantised"))

    def _keep(self, outcome: Integers | Unrounded, quant: Quant, name: str) -> None:
        stored = self.emit.stored(name)
        if isinstance(outcome, Unrounded):
            self.values[name] = self.emit.store(outcome, quant, stored)
        elif outcome.name == stored:
            self.values[name] = outcome
        elif outcome.quant == quant:
            self.values[name] = self.emit.stored_as(outcome.name, quant, stored)
        else:
            self.values[name] = self.emit.store(requantise(self.emit, outcome, quant), quant, stored)

    def _in_float(self, node: NodeProto, quant: Quant, name: str) -> Unrounded:
        """What the node computes of the real values, in steps of its output."""
        self.approximate[name] = f"{node.op_type}: computed in float32"
        computed = self.emit.fresh("float")
        self._plain(node, {node.output[0]: computed})
        return self._nearest(computed, quant)

    def _nearest(self, source: str, quant: Quant) -> Unrounded:
        wide = self.emit.cast(source, DOUBLE)
        return Unrounded(self.emit.add("Div", [wide, self.emit.constant(np.float64(step(quant)))]), quant.zero_point)

    def _plain(self, node: NodeProto, renamed: Mapping[str, str] | None = None) -> None:
        """The node as it is, on real values."""
        own = reading(node, {name: self._real(name) for name in sorted(needs(node))})
        for index, name in enumerate(own.output):
            own.output[index] = (renamed or {}).get(name, name)
        self.reals.update((name, name) for name in own.output)
        self.emit.nodes.append(own)

    def _real(self, name: str) -> str:
        """The name under which a tensor is there as float32: its own, but for the inputs of the model, which have
        theirs already."""
        if name in self.values and name not in self.reals:
            own = self.emit.named(name, "real") if name in self.graph.inputs else name
            self.reals[name] = self.emit.real(self.values[name], own)
        return self.reals.get(name, name)

    def outputs(self, keep_integer: frozenset[str]) -> None:
        for name in self.graph.outputs:
            if name not in keep_integer:
                self._real(name)

    def _own_range(self, name: str, least: float) -> Quant:
        """The scale between two operators of a chain: INT16 over the tensor's own range, up to ``least`` anyway."""
        bounds = self.ranges[name].at(INT16)
        return int16_quant(bounds.low, max(bounds.high, least))

    def facts(self, pictures: Mapping[str, Picture], origin: Origin | None, constants: set[str]) -> FixedFacts:
        tensors = {
            name: StoredTensor(
                quant.dtype, float(quant.scale), quant.zero_point, self.emit.stored(name), None, name in pictures
            )
            for name, quant in self.plan.tensors.items()
            if name in self.values and quant.dtype is not None
        }
        operators = tuple(dumped(self.graph, operator, self.named, constants) for operator in self.plan.operators)
        return FixedFacts(tensors, self.weights, self.convolutions, operators, origin, self.biases)


def _limited(outcome: Integers | Unrounded, made: Step, quant: Quant) -> Integers | Unrounded:
    low, high = made.limits(quant)
    return replace(outcome, lowest=low, highest=high) if isinstance(outcome, Unrounded) else outcome
