"""The float model with a switch for each quantised tensor and weight: any subset can be quantised.

    producer -> If(switch) then Clip(Round(x / scale), low, high) * scale else x -> all readers

One graph and one session serve every trial; the switches are inputs. Quantised values are computed in float by the
definition of QuantizeLinear and DequantizeLinear. The rounding of integer kernels is not included.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import onnx
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from sgsdump.executors.onnx_runtime.repeated_graph import WholeGraph
from sgsdump.fixedpoint.quantisation.others.link import QuantisedPair, QuantisedTensor, QuantisedWeight
from sgsdump.models.graph import Graph, mark_of, reading
from sgsdump.models.quantised_model import limits
from sgsdump.tensors.dtypes import is_integer


class SwitchedNetwork:
    """A float model with switches. Raises ModelError if onnxruntime cannot load it.

    tensors, weights  those with a switch.
    left_out          tensors of a type that a float graph cannot round to.
    outputs           float outputs of the model.
    """

    def __init__(self, pair: QuantisedPair):
        graph = Graph(pair.float.proto)
        self._mark = mark_of(pair.float.proto)
        self.tensors = tuple(tensor for tensor in pair.tensors if _can_round(tensor, graph))
        self.left_out = tuple(tensor.name for tensor in pair.tensors if tensor not in self.tensors)
        self.weights = pair.weights
        proto = onnx.ModelProto()
        proto.CopyFrom(pair.float.proto)
        _switch(proto.graph, self, graph)
        self.outputs = [
            info.name for info in proto.graph.output if info.type.tensor_type.elem_type == TensorProto.FLOAT
        ]
        self._graph = WholeGraph(proto)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all switched tensors and weights."""
        return (*(tensor.name for tensor in self.tensors), *(weight.name for weight in self.weights))

    def switch_of(self, name: str) -> str:
        return f"{name}{self._mark}quantised"

    def before(self, name: str) -> str:
        """Return the name of a tensor before its switch."""
        return f"{name}{self._mark}float"

    def run(self, feed: Mapping[str, np.ndarray], quantised: Collection[str]) -> dict[str, np.ndarray]:
        """Return the model's outputs with these tensors and weights quantised and all others float."""
        switches = {self.switch_of(name): np.array(name in quantised) for name in self.names}
        return self._graph.run({**feed, **switches}, self.outputs)


def _can_round(tensor: QuantisedTensor, graph: Graph) -> bool:
    if tensor.quant is None:
        return True
    dtype, is_one = tensor.quant.dtype, np.ndim(tensor.quant.scale) == 0
    return dtype is not None and is_integer(dtype) and (is_one or tensor.name in graph.shapes)


def _switch(graph: GraphProto, network: SwitchedNetwork, known: Graph) -> None:
    """Insert all switches into the graph, in place."""
    inputs, weights = set(known.inputs), {weight.name for weight in network.weights}
    made = {tensor.name for tensor in network.tensors} - inputs
    fed = {name: network.before(name) for name in made}
    read = {tensor.name: f"{network.before(tensor.name)}2" for tensor in network.tensors if tensor.name in inputs}
    read |= {name: network.before(name) for name in weights}
    nodes: list[NodeProto] = []
    switches = {tensor.name: tensor for tensor in network.tensors}
    for weight in network.weights:
        nodes += _of_weight(graph, network, weight)
    nodes += [_of_tensor(network, switches[name], name, read[name], known) for name in known.inputs if name in switches]
    for old in graph.node:
        node = reading(old, read)
        node.output[:] = [fed.get(name, name) for name in node.output]
        nodes.append(node)
        nodes += [_of_tensor(network, switches[name], fed[name], name, known) for name in old.output if name in fed]
    del graph.node[:]
    graph.node.extend(nodes)
    graph.input.extend(
        helper.make_tensor_value_info(network.switch_of(name), TensorProto.BOOL, []) for name in network.names
    )


def _of_weight(graph: GraphProto, network: SwitchedNetwork, weight: QuantisedWeight) -> list[NodeProto]:
    stored = f"{network.before(weight.name)}2"
    graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(weight.values, np.float32), stored))
    nodes = [helper.make_node("Identity", [name], [f"{name}.out"]) for name in (stored, weight.name)]
    return [_choice(network.switch_of(weight.name), network.before(weight.name), nodes[:1], nodes[1:])]


def _of_tensor(network: SwitchedNetwork, tensor: QuantisedTensor, source: str, target: str, known: Graph) -> NodeProto:
    plain = [helper.make_node("Identity", [source], [f"{target}.plain"])]
    prefix = network.switch_of(tensor.name)
    rounded = _dynamic(source, prefix) if tensor.quant is None else _rounded(tensor, source, prefix, known)
    return _choice(network.switch_of(tensor.name), target, rounded, plain)


def _rounded(tensor: QuantisedTensor, source: str, prefix: str, known: Graph) -> list[NodeProto]:
    quant = tensor.quant
    assert quant is not None and quant.dtype is not None, "dynamic ones have a rule of their own"
    low, high = (float(limit - quant.zero_point) for limit in limits(quant.dtype))
    scale = np.asarray(quant.scale, np.float32)
    if scale.ndim and quant.axis is not None:
        rank = len(known.shapes[tensor.name])
        scale = scale.reshape([-1 if axis == quant.axis % rank else 1 for axis in range(rank)])
    numbers = {"scale": scale, "low": np.float32(low), "high": np.float32(high)}
    nodes = [_constant(f"{prefix}.{name}", np.asarray(number)) for name, number in numbers.items()]
    return [
        *nodes,
        helper.make_node("Div", [source, f"{prefix}.scale"], [f"{prefix}.1"]),
        helper.make_node("Round", [f"{prefix}.1"], [f"{prefix}.2"]),
        helper.make_node("Clip", [f"{prefix}.2", f"{prefix}.low", f"{prefix}.high"], [f"{prefix}.3"]),
        helper.make_node("Mul", [f"{prefix}.3", f"{prefix}.scale"], [f"{prefix}.4"]),
    ]


def _dynamic(source: str, prefix: str) -> list[NodeProto]:
    codes = [f"{prefix}.{part}" for part in ("codes", "scale", "zero")]
    return [
        helper.make_node("DynamicQuantizeLinear", [source], codes),
        helper.make_node("DequantizeLinear", codes, [f"{prefix}.real"]),
    ]


def _constant(name: str, array: np.ndarray) -> NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array, name))


def _choice(switch: str, target: str, quantised: list[NodeProto], plain: list[NodeProto]) -> NodeProto:
    branches = [
        helper.make_graph(
            nodes, part, [], [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)]
        )
        for part, nodes in (("quantised", quantised), ("float", plain))
    ]
    return helper.make_node("If", [switch], [target], then_branch=branches[0], else_branch=branches[1])
