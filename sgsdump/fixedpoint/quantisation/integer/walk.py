"""Write a quant plan as ONNX with the hardware's integer arithmetic.

Every stored tensor ``X`` is ``X#stored`` (uint8 or int16), computed by the rule of its operator. A graph output ``X``
is the float32 value of its integers. An image input takes the raw bytes of the image, like the SDK's fixed model:

    q = byte / (std * scale) + zero point - mean / (std * scale), in 1/1024 steps, the offset rounded half up

The SDK's colour matrix works in steps of 1/1024. parse_net prints it as as16ConvertMartix: 1024 * gain on the diagonal,
256 + offset in the last three columns. Exact on the probe c_dw_L5, whose image range level L5 has narrowed (1034 and
255), and on ten networks whose images lack the darkest or brightest bytes: from 1 to 255 the offset is -1.5, and
becomes -1. In all other networks it is the identity.

Operators that only move values (Reshape, Concat, Split, nearest upsampling, Pad ...) copy integers unchanged.
Source: docs/formats/fixed_arithmetic.md#moving-data. Exact.

Inside a fused chain, each operator but the last is brought to INT16 over its own range. A ReLU or Clip directly after a
convolution is not an operator of its own but a limit of the convolution's output.

``Walk.approximate`` lists operators without a hardware rule. A function of one tensor other than Sigmoid and TanH is a
table with ideal rounding. Any other operator is computed in float32 between dequantised inputs and a requantised
output.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.errors import ConfigError
from sgsdump.fixedpoint.quantisation.analysis import is_convolution, sdk_name
from sgsdump.fixedpoint.quantisation.integer import nv12, rule_of
from sgsdump.fixedpoint.quantisation.integer.emitter import (
    DOUBLE,
    S16_MAX,
    Call,
    Emitter,
    Integers,
    Rule,
    StoredConvolution,
    Unrounded,
    Weighting,
    at_scale,
    half_away,
    half_up,
    reach,
    requantise,
    step,
)
from sgsdump.fixedpoint.quantisation.integer.moving import first_sliced, padding
from sgsdump.fixedpoint.quantisation.quant_plan import as_read
from sgsdump.fixedpoint.quantisation.sim_operators import Given, given_operators
from sgsdump.fixedpoint.quantisation.tensor_scales import INT16, SOFTMAX_QUANT, UINT8, int16_quant
from sgsdump.fixedpoint.quantisation.type_rules import POOLED, Operator, is_average, is_threshold
from sgsdump.fixedpoint.sdk.semantics import slices_first_axis
from sgsdump.models.external_data import WeightFile
from sgsdump.models.fixed_facts import DumpedOperator, FixedFacts, Origin, StoredTensor, write_facts
from sgsdump.models.graph import (
    REARRANGING,
    Graph,
    dtype_of,
    has_weights_outside,
    in_model_order,
    mark_of,
    needs,
    reading,
)
from sgsdump.models.passes.lift import opset_of
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

    from sgsdump.fixedpoint.quantisation.float_model import Picture
    from sgsdump.fixedpoint.quantisation.quant_plan import QuantPlan

# onnxruntime moves integers of any type with these; others move float32, which holds the integers too.
ANY_TYPE = REARRANGING | {"Concat", "Slice", "Gather"}


@dataclass(frozen=True)
class Substitute:
    """The substitute ``done`` for the hardware rule of an operator of this type."""

    op_type: str
    done: str


@dataclass(frozen=True, eq=False)
class Written:
    """The written model.

    approximate  by output of an operator, the substitute for a hardware rule.
    in_float     outputs that are computed from real values.
    outside      the weights of ``proto``, if those of the float model are stored outside.
    """

    proto: ModelProto
    approximate: Mapping[str, Substitute]
    in_float: frozenset[str]
    outside: WeightFile | None = None


def write_integers(
    graph: Graph,
    plan: QuantPlan,
    ranges: Mapping[str, Range],
    pictures: Mapping[str, Picture],
    keep_integer: frozenset[str],
    origin: Origin,
    given: Given | None = None,
) -> Written:
    """Return the fixed model of a float model whose nodes are ``plan.operators``.

    ranges        calibration range of every float tensor, including those inside fused chains.
    keep_integer  graph outputs that stay integers (dequantizations=FALSE).
    origin        what the plan was made from, stored in the model's metadata; its ``channels`` give the range of each
                  channel by convolution output, and the whole range is used otherwise.
    given         known facts of one of the SDK's own fixed models; they replace computed ones.
    """
    proto = graph.proto
    outside = WeightFile() if has_weights_outside(proto) else None
    emitter = Emitter(opset_of(proto), mark_of(proto), outside)
    walk = Walk(graph, plan, ranges, origin.channels, emitter, given or Given())
    for name in graph.inputs:
        if name in plan.tensors:
            walk.input(name, pictures.get(name))
    for operator in plan.operators:
        walk.operator(operator)
    walk.outputs(keep_integer)
    result = walk.emit.assemble(proto, plan.tensors, keep_integer)
    write_facts(walk.facts(pictures, origin, {tensor.name for tensor in result.graph.initializer}), result)
    return Written(result, walk.approximate, frozenset(walk.in_float), outside)


@dataclass(eq=False)
class Walk:
    """The model as far as it is written.

    values        by tensor, its integers in the graph: stored tensors, and those inside a chain of operators.
    reals         by tensor, its name as float32 in the graph.
    convolutions  by output, what each convolution stores.
    """

    graph: Graph
    plan: QuantPlan
    ranges: Mapping[str, Range]
    channels: Mapping[str, Range]
    emit: Emitter
    given: Given
    values: dict[str, Integers] = field(default_factory=dict)
    reals: dict[str, str] = field(default_factory=dict)
    approximate: dict[str, Substitute] = field(default_factory=dict)
    in_float: set[str] = field(default_factory=set)
    convolutions: dict[str, StoredConvolution] = field(default_factory=dict)

    def input(self, name: str, picture: Picture | None) -> None:
        """Add an input.

        The bytes of an image stay as they are if its mean, std and range allow. Another input is divided by the float32
        scale in double precision and truncated toward zero.
        """
        quant, self.emit.scope = self.plan.tensors[name], name
        if picture is None:
            self.values[name] = self._cut(name, quant)
        else:
            shape = self.graph.shapes.get(name, ())
            sizes = [shape[axis] for axis in picture.plane] if len(shape) == 4 else []
            lengths = [size for size in sizes if size is not None]
            if picture.nv12 and len(lengths) == 2:
                source = nv12.steps(self.emit, name, picture, quant, lengths)
            else:
                source = steps_of_bytes(self.emit, name, picture, quant)
            self.values[name] = self.emit.store(source, quant, self.emit.stored(name))

    def _cut(self, name: str, quant: Quant) -> Integers:
        """Truncate a RAWDATA input, the only tensor that may hold -32768: the simulators convert it, not the chip."""
        emit, lowest = self.emit, self.emit.constant(np.float64(np.iinfo(quant.dtype).min))
        highest = emit.constant(np.float64(np.iinfo(quant.dtype).max))
        steps = emit.add("Div", [emit.cast(name, DOUBLE), emit.constant(np.float64(step(quant)))])
        if quant.zero_point:
            steps = emit.add("Add", [steps, emit.constant(np.float64(quant.zero_point))])
        clipped = emit.add("Clip", [steps, lowest, highest])
        return emit.stored_as(clipped, quant, emit.stored(name))

    def operator(self, operator: Operator) -> None:
        self.emit.scope = operator.outputs[0] if operator.outputs else ""
        if not operator.outputs or operator.outputs[0] not in self.plan.tensors:
            for node in operator.nodes:
                self._plain(node)
        elif operator.moves_values or operator.head.op_type == "Concat":
            self._move(operator)
        else:
            self._chain(operator)

    def outputs(self, keep_integer: frozenset[str]) -> None:
        for name in self.graph.outputs:
            if name not in keep_integer:
                self._real(name)

    def facts(self, pictures: Mapping[str, Picture], origin: Origin, constants: Container[str]) -> FixedFacts:
        """Return the facts of the fixed model; ``constants``: the names of its constants."""
        turned = in_model_order(self.graph)
        tensors = {
            name: StoredTensor(
                quant.dtype,
                float(quant.scale),
                quant.zero_point,
                self.emit.stored(name),
                None,
                name in pictures,
                name in turned,
            )
            for name, quant in self.plan.tensors.items()
            if name in self.values and quant.dtype is not None
        }
        return FixedFacts(
            tensors,
            {
                stored_convolution.kernel: stored_convolution.weights
                for stored_convolution in self.convolutions.values()
            },
            {name: stored_convolution.kernel for name, stored_convolution in self.convolutions.items()},
            given_operators(self.given.operators, self.graph, self.convolutions, constants)
            or tuple(self._dumped(operator, constants) for operator in self.plan.operators),
            origin,
            {stored_convolution.rows: stored_convolution.bias for stored_convolution in self.convolutions.values()},
        )

    def _dumped(self, operator: Operator, constants: Container[str]) -> DumpedOperator:
        """Return an operator as the simulators dump it.

        It has the type of its last part, or a convolution's own type if only limits follow. The SDK's dumps omit the
        constants of further operators in a fused chain.
        """
        head, last = operator.head, operator.last
        if len(operator.nodes) == 2 and is_convolution(self.graph, head) and last.op_type in ("Relu", "Clip"):
            last = head
        stored = self.convolutions.get(head.output[0])
        kept = (name for name in head.input if name in self.graph.constants and name in constants)
        names = (stored.kernel, stored.rows) if stored else tuple(kept)
        types = sdk_name(self.graph, head), sdk_name(self.graph, last)
        return DumpedOperator(*types, operator.inputs, names, operator.outputs)

    def _move(self, operator: Operator) -> None:
        """Move values; inputs of another scale first get the MUL by 1.0 that the SDK's converter inserts."""
        node, name, quant = operator.head, operator.outputs[0], self.plan.tensors[operator.outputs[0]]
        names = node.input if node.op_type == "Concat" else node.input[:1]
        if any(name not in self.values for name in names):
            self._keep(self._in_float(node, quant, name), quant, name)
            return
        if node.op_type == "Split":
            self._split(node)
            return
        together = self.plan.assembled.get(name, quant)
        values = tuple(
            at_scale(self.emit, at_scale(self.emit, self._read(source), together), quant) for source in names
        )
        rule = rule_of(node.op_type) if node.op_type in POOLED else None
        if rule is not None:
            outcome = rule.compute(Call(self.emit, self.graph, node, name, values, quant, self._bounds(name, quant)))
            assert outcome is not None, "a pool of maxima has a rule"
            self._keep(outcome, quant, name)
            return
        if node.op_type == "Pad":
            node = padding(self.emit, self.graph, node, values[0].quant)
        if slices_first_axis(self.graph, node):
            self.values[name] = first_sliced(self.emit, self.graph, node, values[0])
            return
        stored = {name for name in operator.outputs if name in self.plan.tensors}
        self._copy(node, values, [self.emit.stored(name) if name in stored else "" for name in node.output])
        for name in stored:
            assert quant.dtype is not None, "a plan knows every type"
            self.values[name] = Integers(self.emit.stored(name), quant.dtype, quant)

    def _split(self, node: NodeProto) -> None:
        """Split; pieces have the input's scale and are requantised afterwards if their domain differs."""
        names, quants = [name for name in node.output if name], self.plan.tensors
        value = self._read(node.input[0])
        if all(quants[name] == quants[names[0]] for name in names if name in quants):
            value = at_scale(self.emit, value, quants[names[0]])
        assert value.quant.dtype is not None, "what is stored has a type"
        same = {name: name in quants and quants[name] == value.quant for name in names}
        pieces = {name: self.emit.stored(name) if same[name] else self.emit.fresh("piece") for name in names}
        self._copy(node, (value,), [pieces.get(name, "") for name in node.output])
        for name in names:
            piece = Integers(pieces[name], value.quant.dtype, value.quant)
            if name in quants:
                self._keep(piece if same[name] else requantise(self.emit, piece, quants[name]), quants[name], name)

    def _copy(self, node: NodeProto, values: tuple[Integers, ...], outputs: list[str]) -> None:
        """Copy a node onto stored integers: ``values`` replace its first inputs, in order.

        ``outputs``: the names of the stored outputs, "" for an output without readers.
        """
        copy = type(node)()
        copy.CopyFrom(node)
        direct = node.op_type in ANY_TYPE
        copy.input[: len(values)] = [value.name if direct else self.emit.floats(value) for value in values]
        names = [name if direct or not name else self.emit.fresh("moved") for name in outputs]
        del copy.output[:]
        copy.output.extend(names)
        self.emit.nodes.append(copy)
        if not direct:
            for name, output in zip(names, outputs, strict=True):
                if output:
                    self.emit.stored_as(name, values[0].quant, output)

    def _chain(self, operator: Operator) -> None:
        *inner, last = _steps(self.graph, operator)
        for link, following in pairwise([*inner, last]):
            # The scale between two operators is INT16 over the tensor's own range, extended as the next operator
            # requires.
            bounds, rule = self._inner_range(link.name), rule_of(following.node.op_type)
            bounds = Range.of(bounds.low, max(bounds.high, rule.reach if rule else 0.0))
            quant = int16_quant(bounds.low, bounds.high)
            outcome = link.limited(self._compute(link.node, quant, link.name, bounds=bounds), quant)
            # The output of a pool keeps the scale of its input.
            self.values[link.name] = self.emit.inner(outcome, quant) if isinstance(outcome, Unrounded) else outcome
        name = operator.outputs[0]
        quant = self.plan.tensors[name]
        if not inner and self._limits_an_output(last.node):
            self._keep(self._convolved_again(last, quant), quant, name)
            return
        low, high = last.limits(quant)
        whole = quant.dtype == UINT8 and low <= 0 and high == np.inf
        outcome = self._compute(last.node, quant, name, self.emit.stored(name) if whole else "")
        self._keep(last.limited(outcome, quant), quant, name)

    def _limits_an_output(self, node: NodeProto) -> bool:
        """Return whether a node is the Relu and only reader of a convolution that is also an output of the model."""
        source = node.input[0] if node.op_type in ("Relu", "Clip") and _ends(self.graph, node, True) else ""
        made = self.graph.producer.get(source)
        alone = source in self.graph.outputs and len(self.graph.consumers[source]) == 1
        return alone and made is not None and made.op_type == "Conv" and source in self.convolutions

    def _convolved_again(self, step: _Step, quant: Quant) -> Integers | Unrounded:
        """Compute the Relu of a convolution that is an output from the accumulator, not from the stored output."""
        source, ends = step.node.input[0], _ends(self.graph, step.node, True)
        conv = self.graph.producer[source]
        node = type(conv)()
        node.CopyFrom(conv)
        node.output[0] = step.name
        channels = {step.name: self.channels[source]} if source in self.channels else {}
        whole = self.ranges.get(source) or reach(quant)
        weighting = Weighting(self.plan.weights[source], channels, whole, "", lambda stored: None)
        rule = rule_of(node.op_type)
        assert rule is not None and ends is not None, "a convolution has a rule, and a Relu ends"
        operands = (self._read(node.input[0]),)
        call = Call(
            self.emit, self.graph, node, step.name, operands, quant, self._bounds(step.name, quant), None, weighting
        )
        outcome = rule.compute(call)
        assert outcome is not None, "it was computed once already"
        return replace(step, low=ends[0], high=ends[1]).limited(outcome, quant)

    def _inner_range(self, name: str) -> Range:
        if name in self.plan.bounds:
            return self.plan.bounds[name]
        if name not in self.ranges:
            scaled = self._scaled_range(name)
            if scaled is not None:
                return scaled
            raise ConfigError(f"no range for {name!r}, an internal tensor of an operator. Calibrate the model again")
        return self.ranges[name].at(INT16)

    def _scaled_range(self, name: str) -> Range | None:
        """Return the range of a tensor times a number, if only the tensor has a range.

        The SDK omits the coefficients of a Caffe Eltwise, so its files have no range of such a product.
        """
        node = self.graph.producer[name]
        constants = [each for each in node.input if each in self.graph.constants and node.op_type == "Mul"]
        sources = [each for each in node.input if each in self.ranges]
        if len(constants) != 1 or len(sources) != 1 or self.graph.value(constants[0]).size != 1:
            return None
        factor, measured = float(self.graph.value(constants[0]).reshape(-1)[0]), self.ranges[sources[0]].at(INT16)
        ends = (measured.low * factor, measured.high * factor)
        return Range.of(min(ends), max(ends))

    def _compute(
        self, node: NodeProto, quant: Quant, name: str, stored: str = "", bounds: Range | None = None
    ) -> Integers | Unrounded:
        """Compute one node by its rule, or in float32.

        stored  see ``Weighting``.
        bounds  range of the output, if not the calibrated one.
        """
        rule = rule_of(node.op_type)
        constant = self._spread(node, rule.constants) if rule else None
        operands = self._operands(node, rule, constant)
        if rule is None or operands is None:
            return self._in_float(node, quant, name)
        if is_average(self.graph, node) and quant.dtype == UINT8:
            operands = tuple(at_scale(self.emit, operand, quant) for operand in operands)
        outcome = rule.compute(
            Call(
                self.emit,
                self.graph,
                node,
                name,
                operands,
                quant,
                bounds or self._bounds(name, quant),
                None if constant is None else self.graph.value(constant),
                self._weighting(node, quant, stored),
                self.plan.bounds.get(node.input[0]) or self.ranges.get(node.input[0]),
            )
        )
        if outcome is None:
            return self._in_float(node, quant, name)
        if instead := rule.instead(node):
            self.approximate[name] = Substitute(node.op_type, instead)
        return outcome

    def _weighting(self, node: NodeProto, quant: Quant, stored: str) -> Weighting | None:
        name = node.output[0]
        if name not in self.plan.weights or node.input[0] not in self.values:
            return None
        whole = self.ranges.get(name) or reach(quant)

        def keep(stored_convolution: StoredConvolution) -> None:
            self.convolutions[name] = stored_convolution

        numbers = self.given.numbers.get(name)
        return Weighting(self.plan.weights[name], self.channels, whole, stored, keep, numbers)

    def _bounds(self, name: str, quant: Quant) -> Range:
        """Return the range that a tensor is computed for: its domain's if stored, its own inside a chain."""
        return self.plan.bounds.get(name) or self.ranges.get(name) or reach(quant)

    def _spread(self, node: NodeProto, slots: tuple[int, ...]) -> str | None:
        """Return the constant input that a node multiplies by or adds, if it is broadcast over the tensor.

        A constant as large as the tensor is an operand (Caffe's BatchNorm and Scale after a fully connected operator,
        or on maps of one pixel).
        """
        names = [node.input[slot] for slot in slots]
        constants = [name for name in names if name in self.graph.constants and self._is_float(name)]
        if len(constants) != 1:
            return None
        shape = self.graph.shapes.get(next(name for name in node.input if name != constants[0]), ())
        size = math.prod(self.graph.constants[constants[0]].dims)
        sizes = [length for length in shape[1:] if length is not None]
        whole = size > 1 and len(sizes) == len(shape) - 1 and math.prod(sizes) == size
        return None if whole else constants[0]

    def _operands(self, node: NodeProto, rule: Rule | None, constant: str | None) -> tuple[Integers, ...] | None:
        """Return a node's inputs as integers, without the broadcast ``constant``; None if one is not available.

        Other constants get the scale of their own range.
        """
        names = [name for name in node.input if name and name != constant][: rule.operands if rule else 1]
        if rule and any(self._is_infinite(node, name) for name in (*names, constant or "")):
            return None
        operands = []
        for name in names:
            if name in self.values:
                operands.append(self._read(name))
            elif name in self.graph.constants and self._is_float(name):
                operands.append(self._constant(name))
            else:
                return None
        return tuple(operands)

    def _read(self, name: str) -> Integers:
        """Return a tensor with the scale that its readers use."""
        value = self.values[name]
        return replace(value, quant=as_read(self.plan, name)) if value.quant == SOFTMAX_QUANT else value

    def _is_float(self, constant: str) -> bool:
        dtype = dtype_of(self.graph.constants[constant].data_type)
        return dtype is not None and dtype.kind == "f"

    def _is_infinite(self, node: NodeProto, name: str) -> bool:
        """Return whether a constant holds infinity and no sum saturates; a Softmax mask with a range saturates."""
        constant = name in self.graph.constants and self._is_float(name)
        if not constant or (name in self.ranges and node.op_type in ("Add", "Sub")):
            return False
        return not np.isfinite(self.graph.value(name)).all()

    def _constant(self, name: str) -> Integers:
        values = self.graph.value(name).astype(np.float64)
        # Without a calibration range, its own in the six decimals of the SDK's file of ranges.
        low, high = (float(f"{end:.6f}") for end in (values.min(), values.max()))
        bounds = self.ranges.get(name) or Range.of(low, high)
        quant = int16_quant(bounds.low, bounds.high)
        stored = np.clip(half_away(values / quant.scale), -S16_MAX, S16_MAX)
        return Integers(self.emit.constant(stored), DOUBLE, quant)

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
        """Compute the node from real values, in steps of its output."""
        is_same = node.op_type == "Cast" and node.input[0] in self.values  # floats of another width
        if name not in self.graph.from_shapes and not is_same:  # from shapes: a constant in hardware
            self.approximate[name] = Substitute(node.op_type, "computed in float32")
            self.in_float.add(name)
        computed = self.emit.fresh("float")
        made = name if name in node.output else next(filter(None, node.output))
        self._plain(node, {made: computed})
        return self._nearest(computed, quant)

    def _nearest(self, source: str, quant: Quant) -> Unrounded:
        wide = self.emit.cast(source, DOUBLE)
        return Unrounded(self.emit.add("Div", [wide, self.emit.constant(np.float64(step(quant)))]), quant.zero_point)

    def _plain(self, node: NodeProto, renamed: Mapping[str, str] | None = None) -> None:
        """Add the node unchanged, on real values."""
        copy = reading(node, {name: self._real(name) for name in sorted(needs(node))})
        for index, name in enumerate(copy.output):
            copy.output[index] = (renamed or {}).get(name, name)
        self.reals.update((name, name) for name in copy.output)
        self.emit.nodes.append(copy)

    def _real(self, name: str) -> str:
        """Return the name of a tensor's float32 values: the tensor's own, except for inputs of the model."""
        if name in self.values and name not in self.reals:
            real = self.emit.named(name, "real") if name in self.graph.inputs else name
            self.reals[name] = self.emit.real(self.values[name], real)
        return self.reals.get(name, name)


@dataclass(frozen=True)
class _Step:
    """One computing node, the name of its output, and limits of the real values.

    The name is that of the activation if the activation only sets limits.
    """

    node: NodeProto
    name: str
    low: float = -np.inf
    high: float = np.inf

    def limits(self, quant: Quant) -> tuple[float, float]:
        """Return the lowest and the highest stored value."""
        low, high = (end / step(quant) + quant.zero_point for end in (self.low, self.high))
        return float(np.ceil(low - 0.5)), float(np.floor(high + 0.5))

    def limited(self, outcome: Integers | Unrounded, quant: Quant) -> Integers | Unrounded:
        if not isinstance(outcome, Unrounded):
            return outcome
        low, high = self.limits(quant)
        return replace(outcome, lowest=max(outcome.lowest, low), highest=min(outcome.highest, high))


def _steps(graph: Graph, operator: Operator) -> list[_Step]:
    """Return the computing nodes of a chain."""
    compared = {node.output[0]: node for node in operator.nodes if is_threshold(graph, node)}
    steps = [
        _Step(compared.get(next(iter(node.input), ""), node), node.output[0])
        for node in operator.nodes
        if node.output[0] not in compared
    ]
    if len(steps) < 2 or not is_convolution(graph, operator.head):
        return steps
    activation = operator.nodes[1]
    # An activation that makes an output of the graph stays an operator of its own.
    ends = None if activation.output[0] in graph.outputs else _ends(graph, activation, len(steps) == 2)
    return steps if ends is None else [_Step(operator.head, activation.output[0], *ends), *steps[2:]]


def _ends(graph: Graph, node: NodeProto, last: bool) -> tuple[float, float] | None:
    if node.op_type == "Relu":
        return 0.0, np.inf
    if node.op_type != "Clip" or not last:
        return None
    ends = []
    for name, otherwise in zip((*node.input[1:3], "", "")[:2], (-np.inf, np.inf), strict=True):
        if name and name not in graph.constants:
            return None
        ends.append(float(graph.value(name).reshape(-1)[0]) if name else otherwise)
    return ends[0], ends[1]


def steps_of_bytes(emit: Emitter, name: str, picture: Picture, quant: Quant) -> Unrounded:
    """Return input ``name`` (bytes) in steps of ``quant``, before rounding."""
    mean, std = np.asarray(picture.mean, np.float64), np.asarray(picture.std, np.float64)
    gain = np.round(1024 / (std * quant.scale)) / 1024
    offset = half_up(quant.zero_point - mean / (std * quant.scale))
    source = emit.cast(name, DOUBLE)
    if (gain != 1).any() or (offset != 0).any():
        source = emit.add("Mul", [source, emit.constant(picture.along(gain))])
        source = emit.add("Add", [source, emit.constant(picture.along(offset))])
    return Unrounded(source)
