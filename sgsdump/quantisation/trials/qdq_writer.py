"""Write a quant plan as QDQ ONNX: insert QuantizeLinear and DequantizeLinear where the hardware stores integers.

Every stored tensor ``X`` becomes three: ``X#float`` (what the operator computed), ``X#stored`` (the integers,
QuantizeLinear's output) and ``X`` (the float32 they mean, which the next operator reads); operators inside a fused
chain exchange plain floats. Weights are stored as INT8 or INT16 initializers behind a DequantizeLinear; biases stay
float32. A picture input takes the raw bytes of the picture, as the SDK's fixed model does.

Why not onnxruntime.quantization: its QDQ writer cannot leave a fused Add's operand unquantised, share one range over
a domain of movers, mix 8 and 16 bits with the SDK's fixed scales, or take a picture's raw bytes; what it would do for
the rest is the thirty lines below.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.models.graph import Graph, drop_unused_constants, mark_of, reading
from sgsdump.quantisation.fixed_facts import DumpedOperator, FixedFacts, Origin, StoredTensor, StoredWeights
from sgsdump.quantisation.fixed_metadata import write_facts
from sgsdump.quantisation.fusion import Operator, sdk_name
from sgsdump.quantisation.integer.rounding import store_weight
from sgsdump.quantisation.pictures import Picture
from sgsdump.quantisation.quant_plan import QuantPlan
from sgsdump.tensors.tensor import Quant

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

CONTRIB = "com.microsoft"


def quantise(
    proto: ModelProto,
    plan: QuantPlan,
    pictures: Mapping[str, Picture],
    keep_integer: frozenset[str] = frozenset(),
    origin: Origin | None = None,
) -> ModelProto:
    """The fixed model of a float model (whose nodes ``plan.operators`` are), as QDQ ONNX.

    keep_integer  graph outputs that leave as integers (dequantizations=FALSE).
    origin        what the plan was made from, to keep beside it in the model's metadata (see ``fixed_metadata``).
    """
    from onnx import ModelProto

    result = ModelProto()
    result.CopyFrom(proto)
    writer = _Writer(proto, result, plan)
    for name in Graph(proto).inputs:
        if name in pictures:
            writer.picture(name, pictures[name])
        elif name in plan.tensors:
            writer.read_as(name, writer.named(name, "real"))
            writer.store(name, name, writer.named(name, "real"))
    for operator in plan.operators:
        writer.operator(operator)
    del result.graph.node[:]
    result.graph.node.extend(writer.nodes)
    result.graph.initializer.extend(writer.constants)
    del result.graph.value_info[:]
    _integer_outputs(result, keep_integer & set(plan.tensors), writer)
    drop_unused_constants(result)
    if writer.domain == CONTRIB and not any(o.domain == CONTRIB for o in result.opset_import):
        result.opset_import.add(domain=CONTRIB, version=1)
    write_facts(writer.facts(origin), result)
    return result


def fake_weight(weight: np.ndarray, quant: Quant) -> np.ndarray:
    """The float32 values a stored weight means."""
    return store_weight(weight, quant).astype(np.float32) * _along(quant, weight.ndim, np.float32)


def _along(quant: Quant, ndim: int, dtype: type) -> np.ndarray:
    """The scale shaped to multiply a weight of ``ndim`` dimensions."""
    scale: np.ndarray = np.asarray(quant.scale, dtype)
    return scale if quant.axis is None else scale.reshape([-1 if i == quant.axis else 1 for i in range(ndim)])


class _Writer:
    """Collects the nodes and constants of the fixed model while the operators pass by in order."""

    def __init__(self, source: ModelProto, result: ModelProto, plan: QuantPlan):
        opset = next((o.version for o in source.opset_import if o.domain in ("", "ai.onnx")), 1)
        self.domain = "" if opset >= 21 else CONTRIB
        self.graph = Graph(source)
        self.mark = mark_of(source)
        self.plan = plan
        self.nodes: list[NodeProto] = []
        self.constants: list[Any] = []
        self.reads: dict[str, str] = {}
        self.tensors: dict[str, StoredTensor] = {}
        self.weights: dict[str, StoredWeights] = {}
        self.convolutions: dict[str, str] = {}

    def picture(self, name: str, picture: Picture) -> None:
        """Bytes -> stored integers: q = byte / (std * scale) + zero_point - mean / (std * scale), in 1/1024 steps.

        The SDK's colour matrix works in 1/1024; for its own example it is the identity, so q is the byte.
        """
        quant = self.plan.tensors[name]
        mean, std = np.asarray(picture.mean, np.float64), np.asarray(picture.std, np.float64)
        gain = np.round(1024 / (std * quant.scale)) / 1024
        offset = np.round(quant.zero_point - mean / (std * quant.scale))
        source = name
        if (gain != 1).any() or (offset != 0).any():
            shape = (1, -1, 1, 1)
            factor = self.constant(self.named(name, "gain"), gain.reshape(shape))
            addend = self.constant(self.named(name, "offset"), offset.reshape(shape))
            scaled, source = self.named(name, "scaled"), self.named(name, "bytes")
            self.add("Mul", [name, factor], scaled)
            self.add("Add", [scaled, addend], source)
        self.quantise(source, Quant(quant.dtype, 1.0, 0), self.named(name, "stored"))
        self.dequantise(self.named(name, "stored"), quant, self.named(name, "real"))
        self.read_as(name, self.named(name, "real"))
        self.note(name, quant, self.named(name, "real"), picture=True)

    def operator(self, operator: Operator) -> None:
        for node in operator.nodes:
            copy = reading(node, self.reads)
            if copy.output[0] in self.plan.weights:
                copy.input[1] = self.weight(node)
            self.nodes.append(copy)
        last = self.nodes[-1]  # storing an output adds nodes behind it
        for index, name in enumerate(list(last.output)):
            if name in self.plan.tensors:
                last.output[index] = self.named(name, "float")
                self.store(name, self.named(name, "float"), name)

    def store(self, name: str, computed: str, real: str) -> None:
        quant = self.plan.tensors[name]
        self.quantise(computed, quant, self.named(name, "stored"))
        self.dequantise(self.named(name, "stored"), quant, real)
        self.note(name, quant, real)

    def weight(self, node: NodeProto) -> str:
        """The dequantised weight's name; its integers go in as an initializer."""
        quant = self.plan.weights[node.output[0]]
        reader = f":{node.output[0]}" if self._shared(node.input[1]) else ""
        name = self.named(node.input[1], str(quant.dtype)) + reader
        self.convolutions[node.output[0]] = name
        stored = store_weight(self.graph.value(node.input[1]), quant)
        self.dequantise(self.constant(name, stored), quant, self.named(name, "real"))
        steps = np.asarray(quant.scale, np.float64).tolist()
        scale = tuple(steps) if isinstance(steps, list) else steps
        self.weights[name] = StoredWeights(node.input[1], _dtype(quant), scale, quant.axis)
        return self.named(name, "real")

    def quantise(self, source: str, quant: Quant, target: str) -> None:
        self.add("QuantizeLinear", [source, *self.parameters(target, quant)], target, self.domain)

    def dequantise(self, source: str, quant: Quant, target: str) -> None:
        axis = {} if quant.axis is None else {"axis": quant.axis}
        self.add("DequantizeLinear", [source, *self.parameters(target, quant)], target, self.domain, **axis)

    def parameters(self, target: str, quant: Quant) -> list[str]:
        scale = np.asarray(quant.scale, np.float32)
        zero = np.full(scale.shape, quant.zero_point, quant.dtype)
        parameters = (("scale", scale), ("zero_point", zero))
        return [self.constant(self.named(target, what), array) for what, array in parameters]

    def constant(self, name: str, array: np.ndarray) -> str:
        from onnx import numpy_helper

        array = np.asarray(array)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def add(self, op_type: str, inputs: list[str], output: str, domain: str = "", **attributes: Any) -> None:
        from onnx import helper

        name = self.named(output, op_type)
        self.nodes.append(helper.make_node(op_type, inputs, [output], name=name, domain=domain, **attributes))

    def named(self, name: str, what: str) -> str:
        return f"{name}{self.mark}{what}"

    def read_as(self, name: str, real: str) -> None:
        self.reads[name] = real

    def note(self, name: str, quant: Quant, real: str, picture: bool = False) -> None:
        self.tensors[name] = StoredTensor(
            _dtype(quant), float(quant.scale), quant.zero_point, self.named(name, "stored"), real, picture
        )

    def facts(self, origin: Origin | None) -> FixedFacts:
        operators = tuple(self._dumped(operator) for operator in self.plan.operators)
        return FixedFacts(self.tensors, self.weights, self.convolutions, operators, origin)

    def _dumped(self, operator: Operator) -> DumpedOperator:
        constants = []
        for node in operator.nodes:
            for index, name in enumerate(node.input):
                if name in self.graph.constants:
                    weight = index == 1 and node.output[0] in self.convolutions
                    constants.append(self.convolutions[node.output[0]] if weight else name)
        return DumpedOperator(
            sdk_name(self.graph, operator.head),
            _out_name(self.graph, operator),
            operator.inputs,
            tuple(constants),
            operator.outputs,
        )

    def _shared(self, constant: str) -> bool:
        return len(self.graph.consumers[constant]) > 1


def _dtype(quant: Quant) -> np.dtype:
    assert quant.dtype is not None, "a plan knows every type"
    return quant.dtype


def _out_name(graph: Graph, operator: Operator) -> str:
    """A fused operator puts out under the name of its last part that is not an activation (the SDK's way)."""
    parts = [node for node in operator.nodes if node.op_type not in ("Relu", "Clip", "LeakyRelu", "PRelu")]
    return sdk_name(graph, (parts or list(operator.nodes))[-1])


def _integer_outputs(proto: ModelProto, names: frozenset[str] | set[str], writer: _Writer) -> None:
    from onnx import helper

    for output in proto.graph.output:
        if output.name in names:
            dtype = writer.plan.tensors[output.name].dtype
            output.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(dtype)
            output.name = writer.named(output.name, "stored")
