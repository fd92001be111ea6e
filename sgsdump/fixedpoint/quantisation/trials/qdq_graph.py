"""QDQ ONNX of a quant plan, and one graph for all plans.

``quantise`` inserts QuantizeLinear and DequantizeLinear where the hardware stores integers. Every stored tensor ``X``
becomes three: ``X#float`` (the operator's result), ``X#stored`` (the integers from QuantizeLinear) and ``X`` (their
float32 values for the next operator). Operators inside a fused chain exchange plain floats. Weights are INT8 or INT16
initializers before a DequantizeLinear; biases stay float32. An image input takes the raw bytes of the image, like the
SDK's fixed model.

Why not onnxruntime.quantization? Its QDQ writer cannot leave the operand of a fused Add unquantised, share one range
over a domain of moving operators, mix 8 and 16 bits with the SDK's fixed scales, or take raw bytes of an image. The
rest that it would do is the thirty lines below.

``parametrise`` turns this into the graph for all plans. Scales, zero points, limits and weights are inputs, so another
plan is another feed and no new model. Every stored tensor ``X`` is rounded in int16 with ``X#scale`` and
``X#zero_point``, because int16 holds every UINT8 value. The zero point makes the type's largest integer that of int16,
which then saturates by itself. A tensor that is UINT8 in some plan is first clipped to ``X#low``, the lowest value of
its type. An average is rounded down, as the hardware divides. After a Relu no value is below 0, which every range
includes; a Relu after a convolution therefore becomes com.microsoft's FusedConv. Values that only move within one scale
are not rounded again. A convolution's weights are fed fake-quantised as ``CONV#weight``, named after its output.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.fixedpoint.quantisation.analysis import sdk_name
from sgsdump.fixedpoint.quantisation.integer.emitter import REACH, SIGMOID_RISE, SIGMOID_STEP, Emitter, store_weight
from sgsdump.fixedpoint.quantisation.type_rules import AVERAGE_POOLS, SPREAD, Operator
from sgsdump.models.fixed_facts import (
    DumpedOperator,
    FixedFacts,
    Origin,
    StoredTensor,
    StoredWeights,
    write_facts,
)
from sgsdump.models.graph import Graph, drop_unused_constants, mark_of, reading
from sgsdump.models.passes.lift import opset_of
from sgsdump.tensors.tensor import Quant

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

    from sgsdump.fixedpoint.quantisation.float_model import Picture
    from sgsdump.fixedpoint.quantisation.quant_plan import QuantPlan

CONTRIB = "com.microsoft"
LOW, SCALE, ZERO_POINT, WEIGHT = "low", "scale", "zero_point", "weight"
# Parameters of a convolution that is rounded like the hardware's.
BIAS, GAIN, ADDEND = "bias", "gain", "addend"
# A constant factor or addend of a tensor, as the hardware stores it.
CONSTANT = "constant"
LARGEST = np.iinfo(np.int16).max
# Part of a step: slightly less than half, so that an integer stays one, and closer to it than any other average.
HALF = np.float32(0.498)


def quantise(
    proto: ModelProto,
    plan: QuantPlan,
    pictures: Mapping[str, Picture],
    keep_integer: frozenset[str] = frozenset(),
    origin: Origin | None = None,
) -> ModelProto:
    """Return the fixed model of a float model (whose nodes are ``plan.operators``) as QDQ ONNX.

    keep_integer  graph outputs that stay integers (dequantizations=FALSE).
    origin        what the plan was made from, stored in the model's metadata (see ``fixed_facts``).
    """
    writer = _Writer(proto, plan)
    for name in writer.graph.inputs:
        if name in pictures:
            writer.picture(name, pictures[name])
        elif name in plan.tensors:
            writer.reads[name] = writer.emit.named(name, "real")
            writer.store(name, name, writer.reads[name])
    for operator in plan.operators:
        writer.operator(operator)
    result = writer.emit.assemble(proto, plan.tensors, keep_integer)
    if writer.domain == CONTRIB:
        _import_contrib(result)
    write_facts(writer.facts(origin), result)
    return result


def fake_weight(weight: np.ndarray, quant: Quant) -> np.ndarray:
    """Return the float32 values of a stored weight."""
    scale = np.asarray(quant.scale, np.float32)
    if quant.axis is not None:
        scale = scale.reshape([-1 if i == quant.axis else 1 for i in range(weight.ndim)])
    return store_weight(weight, quant).astype(np.float32) * scale


class _Writer:
    """Collects the nodes and constants of the fixed model, operator by operator."""

    def __init__(self, proto: ModelProto, plan: QuantPlan):
        self.domain = "" if opset_of(proto) >= 21 else CONTRIB
        self.graph = Graph(proto)
        self.plan = plan
        self.emit = Emitter(mark=mark_of(proto))
        self.reads: dict[str, str] = {}
        self.tensors: dict[str, StoredTensor] = {}
        self.weights: dict[str, StoredWeights] = {}
        self.convolutions: dict[str, str] = {}

    def picture(self, name: str, picture: Picture) -> None:
        """Add the conversion of bytes to stored integers.

        q = byte / (std * scale) + zero_point - mean / (std * scale), in 1/1024 steps. The SDK's colour matrix works in
        1/1024; in the SDK's own example it is the identity, so q is the byte.
        """
        quant, named = self.plan.tensors[name], self.emit.named
        mean, std = np.asarray(picture.mean, np.float64), np.asarray(picture.std, np.float64)
        gain = np.round(1024 / (std * quant.scale)) / 1024
        offset = np.round(quant.zero_point - mean / (std * quant.scale))
        source = name
        if (gain != 1).any() or (offset != 0).any():
            factor = self.emit.constant(picture.along(gain).astype(np.float32), named(name, "gain"))
            addend = self.emit.constant(picture.along(offset).astype(np.float32), named(name, "offset"))
            scaled = self.add("Mul", [name, factor], named(name, "scaled"))
            source = self.add("Add", [scaled, addend], named(name, "bytes"))
        self.reads[name] = named(name, "real")
        self._quantise(source, Quant(quant.dtype, 1.0, 0), self.emit.stored(name))
        self._dequantise(self.emit.stored(name), quant, self.reads[name])
        self._note(name, quant, self.reads[name], picture=True)

    def operator(self, operator: Operator) -> None:
        for node in operator.nodes:
            copy = reading(node, self.reads)
            if copy.output[0] in self.plan.weights:
                copy.input[1] = self._weight(node)
            self.emit.nodes.append(copy)
        last = self.emit.nodes[-1]  # storing an output adds nodes after it
        for index, name in enumerate(list(last.output)):
            if name in self.plan.tensors:
                last.output[index] = computed = self.emit.named(name, "float")
                if last.op_type in AVERAGE_POOLS:
                    computed = self._rounded_down(computed, name)
                self.store(name, computed, name)

    def _rounded_down(self, average: str, name: str) -> str:
        """Subtract half a step before rounding, as the hardware divides."""
        half = HALF * np.float32(self.plan.tensors[name].scale)
        below = self.emit.constant(half, self.emit.named(name, "half_step"))
        return self.add("Sub", [average, below], self.emit.named(name, "below"))

    def store(self, name: str, computed: str, real: str) -> None:
        quant = self.plan.tensors[name]
        self._quantise(computed, quant, self.emit.stored(name))
        self._dequantise(self.emit.stored(name), quant, real)
        self._note(name, quant, real)

    def facts(self, origin: Origin | None) -> FixedFacts:
        operators = tuple(self._dumped(operator) for operator in self.plan.operators)
        return FixedFacts(self.tensors, self.weights, self.convolutions, operators, origin)

    def add(self, op_type: str, inputs: list[str], output: str, domain: str = "", **attributes: Any) -> str:
        return self.emit.add(op_type, inputs, output, domain=domain, **attributes)

    def _weight(self, node: NodeProto) -> str:
        """Add a weight's integers as an initializer and return the name of the dequantised weight."""
        quant, source = self.plan.weights[node.output[0]], node.input[1]
        reader = f":{node.output[0]}" if len(self.graph.consumers[source]) > 1 else ""
        name = self.emit.named(source, str(quant.dtype)) + reader
        self.convolutions[node.output[0]] = name
        self.emit.constant(store_weight(self.graph.value(source), quant), name)
        self.weights[name] = StoredWeights.of(source, quant)
        return self._dequantise(name, quant, self.emit.named(name, "real"))

    def _quantise(self, source: str, quant: Quant, target: str) -> None:
        self.add("QuantizeLinear", [source, *self._parameters(target, quant)], target, self.domain)

    def _dequantise(self, source: str, quant: Quant, target: str) -> str:
        axis = {} if quant.axis is None else {"axis": quant.axis}
        return self.add("DequantizeLinear", [source, *self._parameters(target, quant)], target, self.domain, **axis)

    def _parameters(self, target: str, quant: Quant) -> list[str]:
        scale = np.asarray(quant.scale, np.float32)
        zero = np.full(scale.shape, quant.zero_point, quant.dtype)
        return [
            self.emit.constant(array, self.emit.named(target, word))
            for word, array in ((SCALE, scale), (ZERO_POINT, zero))
        ]

    def _note(self, name: str, quant: Quant, real: str, picture: bool = False) -> None:
        assert quant.dtype is not None, "a plan knows every type"
        self.tensors[name] = StoredTensor(
            quant.dtype, float(quant.scale), quant.zero_point, self.emit.stored(name), real, picture
        )

    def _dumped(self, operator: Operator) -> DumpedOperator:
        """Return the operator as dumped: named after its last part that is not an activation, like the SDK."""
        constants = []
        for node in operator.nodes:
            for index, name in enumerate(node.input):
                if name in self.graph.constants:
                    weight = index == 1 and node.output[0] in self.convolutions
                    constants.append(self.convolutions[node.output[0]] if weight else name)
        parts = [node for node in operator.nodes if node.op_type not in ("Relu", "Clip", "LeakyRelu", "PRelu")]
        types = sdk_name(self.graph, operator.head), sdk_name(self.graph, (parts or operator.nodes)[-1])
        return DumpedOperator(*types, operator.inputs, tuple(constants), operator.outputs)


def _import_contrib(proto: ModelProto) -> None:
    if all(opset.domain != CONTRIB for opset in proto.opset_import):
        proto.opset_import.add(domain=CONTRIB, version=1)


@dataclass(frozen=True)
class Hardware:
    """Operators that the graph of all plans computes like the hardware, by output.

    accumulating  convolutions whose accumulator is rounded, with their output channels.
    far           Sigmoids whose input exceeds their table.
    constants     multiplications by and additions of constants that the hardware rounds, with the constant's index.
    """

    accumulating: Mapping[str, int] = field(default_factory=dict)
    far: Collection[str] = ()
    constants: Mapping[str, int] = field(default_factory=dict)


def parameter(name: str, part: str, mark: str = "#") -> str:
    """Return the name of the input that sets ``part`` of a tensor or convolution; ``mark``: see ``mark_of``."""
    return f"{name}{mark}{part}"


def parametrise(
    fixed: ModelProto,
    facts: FixedFacts,
    narrow: Collection[str],
    moved: Collection[str],
    mark: str = "#",
    hardware: Hardware = Hardware(),
) -> ModelProto:
    """Return the graph for all plans of a model, from its fixed model with all convolutions at INT16.

    narrow    tensors that are UINT8 in some plan.
    moved     tensors whose values are only moved from a tensor with the same scale in every plan.
    mark      the float model's (``mark_of``).
    hardware  operators computed like the hardware.

    Image inputs keep their constants, because their type never changes.
    """
    from onnx import ModelProto, numpy_helper

    result = ModelProto()
    result.CopyFrom(fixed)
    stored = {tensor.stored: name for name, tensor in facts.tensors.items() if not tensor.picture}
    below = {parameter(name, "below", mark): name for name in facts.tensors}
    fed = {parameter(weight, "real", mark): conv for conv, weight in facts.convolutions.items()}
    graph = Graph(fixed)
    readers = {name: len(nodes) for name, nodes in graph.consumers.items()}
    nodes: list[NodeProto] = []
    positive: set[str] = set()
    for node in fixed.graph.node:
        output = node.output[0]
        if output in fed:
            continue
        rounds = node.op_type in ("QuantizeLinear", "DequantizeLinear")
        tensor = (stored.get(output) or stored.get(node.input[0])) if rounds else None
        if tensor in moved:
            if output in stored:
                nodes[-1].output[0] = tensor
            continue
        copy = type(node)()
        copy.CopyFrom(node)
        for index, name in enumerate(copy.input):
            if name in fed and index == 1:
                convolution = _made_by(node, facts.convolutions, mark)
                copy.input[index] = parameter(convolution, WEIGHT, mark)
        if output in below:
            copy.input[1] = _half_step(below[output], nodes, mark)
        if stored.get(output) in narrow:
            _hold(copy, stored[output], nodes, positive, mark)
        if tensor:
            copy.input[1:] = [parameter(tensor, SCALE, mark), parameter(tensor, ZERO_POINT, mark)]
        if node.op_type == "Relu":
            positive.add(output)
            if readers.get(node.input[0]) == 1 and _is_conv(nodes, node.input[0]):
                copy = _rectified(nodes.pop(), node)
        convolution = _made_by(node, hardware.accumulating, mark)
        if node.op_type in ("Conv", "ConvTranspose") and convolution in hardware.accumulating:
            copy = _accumulated(copy, (convolution, hardware.accumulating[convolution]), nodes, result, mark)
        if node.op_type == "Sigmoid" and _made_by(node, hardware.far, mark) in hardware.far:
            copy = _drawn_on(copy, nodes, result, mark)
        if (made := _made_by(node, hardware.constants, mark)) in hardware.constants and node.op_type in SPREAD:
            copy.input[hardware.constants[made]] = parameter(made, CONSTANT, mark)
        if node.op_type == "Add" and readers.get(node.input[0]) == 1:
            copy = _normalised(copy, nodes, facts, graph, result, mark)
        nodes.append(copy)
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    if any(n.domain == CONTRIB for n in nodes):
        _import_contrib(result)
    result.graph.initializer.append(numpy_helper.from_array(np.asarray(HALF), parameter("", "half", mark)))
    _add_inputs(result, list(stored.values()), list(facts.convolutions), hardware, mark)
    drop_unused_constants(result)
    return result


def _drawn_on(node: NodeProto, nodes: list[NodeProto], proto: ModelProto, mark: str) -> NodeProto:
    """Replace a Sigmoid by the hardware's: a curve up to the end of its table, then a straight line.

    Returns the last node. See ``integer/curves.py``.
    """
    from onnx import helper, numpy_helper

    source, name = node.input[0], node.output[0]
    ends = [parameter("", f"sigmoid_{part}", mark) for part in ("low", "high", "rise", "least", "most")]
    if ends[0] not in {tensor.name for tensor in proto.graph.initializer}:
        for each, value in zip(ends, (-REACH, REACH, SIGMOID_RISE * SIGMOID_STEP, 0, 1)):
            proto.graph.initializer.append(numpy_helper.from_array(np.asarray(value, np.float32), each))
    parts = ("near", "curve", "beyond", "line", "whole")
    near, curve, beyond, line, whole = (parameter(name, part, mark) for part in parts)
    nodes.append(helper.make_node("Clip", [source, *ends[:2]], [near], name=near))
    nodes.append(helper.make_node("Sigmoid", [near], [curve], name=curve))
    nodes.append(helper.make_node("Sub", [source, near], [beyond], name=beyond))
    nodes.append(helper.make_node("Mul", [beyond, ends[2]], [line], name=line))
    nodes.append(helper.make_node("Add", [curve, line], [whole], name=whole))
    return helper.make_node("Clip", [whole, *ends[3:]], [name], name=parameter(name, "drawn", mark))


def _accumulated(
    conv: NodeProto, made: tuple[str, int], nodes: list[NodeProto], proto: ModelProto, mark: str
) -> NodeProto:
    """Add a convolution in whole steps of its accumulator, and their conversion; return the last node.

    made  the convolution's name and number of channels.
    """
    from onnx import helper

    output, name, channels = conv.output[0], *made
    sums, whole = (parameter(name, part, mark) for part in ("sums", "whole"))
    conv.input[2:] = [parameter(name, BIAS, mark)]
    conv.output[0] = sums
    nodes += [conv, helper.make_node("Round", [sums], [whole], name=whole)]
    reads = [
        whole,
        *(parameter(name, part, mark) for part in (GAIN, ADDEND)),
        *_mean_and_variance(channels, proto, mark),
    ]
    return helper.make_node("BatchNormalization", reads, [output], name=parameter(name, "gained", mark), epsilon=0.0)


def _mean_and_variance(channels: int, proto: ModelProto, mark: str) -> list[str]:
    """Return mean and variance of a BatchNormalization that only multiplies and adds, bit-identical to Mul and Add."""
    from onnx import numpy_helper

    names = [parameter("", f"{part}{channels}", mark) for part in ("zeros", "ones")]
    if names[0] not in {tensor.name for tensor in proto.graph.initializer}:
        for each, value in zip(names, (0, 1)):
            proto.graph.initializer.append(numpy_helper.from_array(np.full(channels, value, np.float32), each))
    return names


def _normalised(
    add: NodeProto, nodes: list[NodeProto], facts: FixedFacts, graph: Graph, proto: ModelProto, mark: str
) -> NodeProto:
    """Merge a Mul and this Add, both by per-channel constants after a convolution, into a BatchNormalization.

    One pass gives the same bits. Anything else is returned unchanged. ``graph``: the fixed model's.
    """
    from onnx import helper, numpy_helper

    conv, mul = nodes[-2:] if len(nodes) > 1 else (add, add)
    kernel = graph.constants.get(facts.convolutions.get(conv.output[0], ""))
    if conv.op_type != "Conv" or mul.op_type != "Mul" or kernel is None or len(kernel.dims) != 4:
        return add
    shape, constants = [1, kernel.dims[0], 1, 1], [graph.constants.get(node.input[1]) for node in (mul, add)]
    if mul.input[0] != conv.output[0] or add.input[0] != mul.output[0]:
        return add
    if any(constant is None or list(constant.dims) != shape for constant in constants):
        return add
    nodes.pop()
    name, reads = add.output[0], [mul.input[0]]
    for node, part in ((mul, "factor"), (add, "addend")):
        reads.append(parameter(name, part, mark))
        values = graph.value(node.input[1]).reshape(-1)
        proto.graph.initializer.append(numpy_helper.from_array(values, reads[-1]))
    reads += _mean_and_variance(shape[1], proto, mark)
    return helper.make_node("BatchNormalization", reads, [name], name=parameter(name, "normalised", mark), epsilon=0.0)


def _is_conv(nodes: list[NodeProto], output: str) -> bool:
    return bool(nodes) and nodes[-1].op_type == "Conv" and nodes[-1].output[0] == output


def _rectified(conv: NodeProto, relu: NodeProto) -> NodeProto:
    """Return the convolution with the following Relu fused in."""
    from onnx import helper

    fused = helper.make_node("FusedConv", list(conv.input), list(relu.output), conv.name, domain=CONTRIB)
    fused.attribute.extend(conv.attribute)
    fused.attribute.append(helper.make_attribute("activation", "Relu"))
    return fused


def _made_by(node: NodeProto, convolutions: Collection[str], mark: str) -> str:
    """Return the convolution that a node is: its output's name, without the mark for values that are stored later."""
    output = node.output[0].removesuffix(f"{mark}float")
    return output if output in convolutions else node.output[0]


def _hold(quantise: NodeProto, name: str, nodes: list[NodeProto], positive: Collection[str], mark: str) -> None:
    """Add the Clip before a QuantizeLinear whose input may be below 0."""
    from onnx import helper

    source, within = quantise.input[0], parameter(name, "within", mark)
    if source in positive:
        return
    quantise.input[0] = within
    nodes.append(helper.make_node("Clip", [source, parameter(name, LOW, mark)], [within], name=within))


def _half_step(name: str, nodes: list[NodeProto], mark: str) -> str:
    """Add half a step of a tensor, for the fed scale, and return its name."""
    from onnx import helper

    half = parameter(name, "half", mark)
    nodes.append(
        helper.make_node("Mul", [parameter("", "half", mark), parameter(name, SCALE, mark)], [half], name=half)
    )
    return half


def _add_inputs(proto: ModelProto, tensors: list[str], convolutions: list[str], hardware: Hardware, mark: str) -> None:
    """Add the parameters that some node reads as inputs."""
    from onnx import TensorProto, helper

    read = {name for node in proto.graph.node for name in node.input}

    def add(name: str, kind: int, shape: tuple | None) -> None:
        if name in read:
            proto.graph.input.append(helper.make_tensor_value_info(name, kind, shape))

    for name in tensors:
        for part in (LOW, SCALE):
            add(parameter(name, part, mark), TensorProto.FLOAT, ())
        add(parameter(name, ZERO_POINT, mark), TensorProto.INT16, ())
    for name in convolutions:
        add(parameter(name, WEIGHT, mark), TensorProto.FLOAT, None)
        for part in (BIAS, GAIN, ADDEND):
            add(parameter(name, part, mark), TensorProto.FLOAT, None)
    for name in hardware.constants:
        add(parameter(name, CONSTANT, mark), TensorProto.FLOAT, None)
    # A fed input must not keep the old initializer: its type differs for tensors moved from an image, which is UINT8.
    given = {info.name for info in proto.graph.input}
    for index in reversed(range(len(proto.graph.initializer))):
        if proto.graph.initializer[index].name in given:
            del proto.graph.initializer[index]


def zero_point(quant: Quant) -> np.int16:
    """Return the zero point in int16 that maps the type's largest integer to int16's."""
    assert quant.dtype is not None, "a plan knows every type"
    return np.int16(LARGEST - np.iinfo(quant.dtype).max + quant.zero_point)


def held(quant: Quant, steps: float) -> tuple[np.float32, np.int16]:
    """Return ``lowest`` and ``zero_point`` of an INT16 tensor rounded in ``steps`` coarser than its own."""
    count = round(LARGEST * float(quant.scale) / steps)
    return np.float32(-count * steps), np.int16(LARGEST - count)


def lowest(quant: Quant) -> np.float32:
    """Return the real value of the type's smallest integer."""
    assert quant.dtype is not None, "a plan knows every type"
    return np.float32((np.iinfo(quant.dtype).min - quant.zero_point) * np.float32(quant.scale))
