"""A quant plan as QDQ ONNX, and one graph of it for every plan.

``quantise`` inserts QuantizeLinear and DequantizeLinear where the hardware stores integers. Every stored tensor ``X``
becomes three: ``X#float`` (what the operator computed), ``X#stored`` (the integers, QuantizeLinear's output) and ``X``
(the float32 they mean, which the next operator reads); operators inside a fused chain exchange plain floats. Weights
are INT8 or INT16 initializers before a DequantizeLinear; biases stay float32. A picture input takes the raw bytes of
the picture, as the SDK's fixed model does.

Why not onnxruntime.quantization: its QDQ writer cannot leave a fused Add's operand unquantised, share one range over
a domain of movers, mix 8 and 16 bits with the SDK's fixed scales, or take a picture's raw bytes; what it would do for
the rest is the thirty lines below.

``parametrise`` makes of that the graph for every plan: scales, zero points and limits are inputs, and so are the
weights, so trying another plan is another feed and no new model. Every stored tensor ``X`` is rounded in int16 with
``X#scale`` and ``X#zero_point``: what UINT8 can hold, int16 holds too. The zero point lies so that the type's largest
integer is that of int16, which then cuts off what is above by itself; one that some plan makes UINT8 is clipped to
``X#low`` first, the least value of its type. An average is rounded down, as the hardware divides. After a Relu there
is nothing below 0, which is in every range; a Relu after a convolution is done by that, in com.microsoft's FusedConv.
What only moves values of one scale is not rounded again. A convolution's weights come in already fake-quantised, as
``CONV#weight`` by the name of the convolution's output.
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
# Of a convolution that is rounded as the hardware does.
BIAS, GAIN, ADDEND = "bias", "gain", "addend"
# What a tensor is multiplied by, or what is added to it, as the hardware has it.
CONSTANT = "constant"
LARGEST = np.iinfo(np.int16).max
# Of a step: less than half by so little that a whole number stays one, and more than any other average comes near.
HALF = np.float32(0.498)


def quantise(
    proto: ModelProto,
    plan: QuantPlan,
    pictures: Mapping[str, Picture],
    keep_integer: frozenset[str] = frozenset(),
    origin: Origin | None = None,
) -> ModelProto:
    """The fixed model of a float model (whose nodes ``plan.operators`` are), as QDQ ONNX.

    keep_integer  graph outputs that leave as integers (dequantizations=FALSE).
    origin        what the plan was made from, to keep beside it in the model's metadata (see ``fixed_facts``).
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
    """The float32 values a stored weight means."""
    scale = np.asarray(quant.scale, np.float32)
    if quant.axis is not None:
        scale = scale.reshape([-1 if i == quant.axis else 1 for i in range(weight.ndim)])
    return store_weight(weight, quant).astype(np.float32) * scale


class _Writer:
    """Collects the nodes and constants of the fixed model while the operators pass by in order."""

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
        """Bytes -> stored integers: q = byte / (std * scale) + zero_point - mean / (std * scale), in 1/1024 steps.

        The SDK's colour matrix works in 1/1024; for its own example it is the identity, so q is the byte.
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
        """As the hardware divides: half a step less before it is rounded."""
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
        """The dequantised weight's name; its integers go in as an initializer."""
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
        """A fused operator puts out under the name of its last part that is not an activation (the SDK's way)."""
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
    """What the graph of every plan does as the hardware does, by output.

    accumulating  convolutions whose accumulator is rounded, with their output channels.
    far           Sigmoids of values beyond their table.
    constants     what multiplies by a constant or adds one that the hardware rounds, with the place of that.
    """

    accumulating: Mapping[str, int] = field(default_factory=dict)
    far: Collection[str] = ()
    constants: Mapping[str, int] = field(default_factory=dict)


def parameter(name: str, part: str, mark: str = "#") -> str:
    """The input that sets ``what`` of a tensor or convolution; ``mark``: the float model's (``mark_of``)."""
    return f"{name}{mark}{part}"


def parametrise(
    fixed: ModelProto,
    facts: FixedFacts,
    narrow: Collection[str],
    moved: Collection[str],
    mark: str = "#",
    hardware: Hardware = Hardware(),
) -> ModelProto:
    """The graph for every plan of a model, from its fixed model with all convolutions at INT16.

    narrow  tensors that are UINT8 in some plan.
    moved   tensors whose values a node only moves from one that has the same scale in every plan.
    mark    the float model's (``mark_of``).
    hardware  what is done as there.

    Picture inputs keep their constants, as their type never changes.
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
    """A Sigmoid up to where its table ends, and from there on a straight line, as the hardware draws it
    (``integer/curves.py``); returns the last of the nodes."""
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
    """A convolution in whole steps of its accumulator, and what a step becomes; returns the last of the nodes.
    ``made``: the convolution's name, and its channels."""
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
    """Those of a BatchNormalization that only multiplies and adds, which it does to the same bits as Mul and Add."""
    from onnx import numpy_helper

    names = [parameter("", f"{part}{channels}", mark) for part in ("zeros", "ones")]
    if names[0] not in {tensor.name for tensor in proto.graph.initializer}:
        for each, value in zip(names, (0, 1)):
            proto.graph.initializer.append(numpy_helper.from_array(np.full(channels, value, np.float32), each))
    return names


def _normalised(
    add: NodeProto, nodes: list[NodeProto], facts: FixedFacts, graph: Graph, proto: ModelProto, mark: str
) -> NodeProto:
    """A Mul and this Add by a constant of each of a convolution's channels, as a BatchNormalization is written, in one
    pass and to the same bits; anything else as it is. ``graph``: the fixed model's."""
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
    """The convolution that does the work of the following Relu too."""
    from onnx import helper

    fused = helper.make_node("FusedConv", list(conv.input), list(relu.output), conv.name, domain=CONTRIB)
    fused.attribute.extend(conv.attribute)
    fused.attribute.append(helper.make_attribute("activation", "Relu"))
    return fused


def _made_by(node: NodeProto, convolutions: Collection[str], mark: str) -> str:
    """The convolution a node is: its output's own name, or without the mark of what is stored afterwards."""
    output = node.output[0].removesuffix(f"{mark}float")
    return output if output in convolutions else node.output[0]


def _hold(quantise: NodeProto, name: str, nodes: list[NodeProto], positive: Collection[str], mark: str) -> None:
    """Add the Clip before a QuantizeLinear of what may be below 0."""
    from onnx import helper

    source, within = quantise.input[0], parameter(name, "within", mark)
    if source in positive:
        return
    quantise.input[0] = within
    nodes.append(helper.make_node("Clip", [source, parameter(name, LOW, mark)], [within], name=within))


def _half_step(name: str, nodes: list[NodeProto], mark: str) -> str:
    """Half a step of a tensor, of the scale that is fed."""
    from onnx import helper

    half = parameter(name, "half", mark)
    nodes.append(
        helper.make_node("Mul", [parameter("", "half", mark), parameter(name, SCALE, mark)], [half], name=half)
    )
    return half


def _add_inputs(proto: ModelProto, tensors: list[str], convolutions: list[str], hardware: Hardware, mark: str) -> None:
    """Those of the parameters that some node reads."""
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
    # What is fed has no default of the type that the tensor had: of what a picture is moved to it is UINT8.
    given = {info.name for info in proto.graph.input}
    for index in reversed(range(len(proto.graph.initializer))):
        if proto.graph.initializer[index].name in given:
            del proto.graph.initializer[index]


def zero_point(quant: Quant) -> np.int16:
    """The zero point in int16 with which the type's largest integer is int16's."""
    assert quant.dtype is not None, "a plan knows every type"
    return np.int16(LARGEST - np.iinfo(quant.dtype).max + quant.zero_point)


def held(quant: Quant, steps: float) -> tuple[np.float32, np.int16]:
    """``lowest`` and ``zero_point`` of an INT16 tensor that is rounded in ``steps`` coarser than its own."""
    count = round(LARGEST * float(quant.scale) / steps)
    return np.float32(-count * steps), np.int16(LARGEST - count)


def lowest(quant: Quant) -> np.float32:
    """The real value that the type's smallest integer means."""
    assert quant.dtype is not None, "a plan knows every type"
    return np.float32((np.iinfo(quant.dtype).min - quant.zero_point) * np.float32(quant.scale))
