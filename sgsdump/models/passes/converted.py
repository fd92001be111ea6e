"""Operators that the SDK's converter writes as others, with its names for what lies between.

BatchNormalization: a factor and an offset per channel, ``b_MUL_output = x * b_scale`` and ``b = b_MUL_output +
b_offset``; it is never folded into a convolution. Constants per channel minus a tensor: the tensor times -1, plus the
constants. A division by a constant: a product. A mean along one axis: a sum, and that times 1 / n. An
Identity is left out. Seen in the SDK's float dumps of such networks.

What BatchNormalizations say of the training data (``running_statistics``) is read before they are written as others.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.models.graph import (
    BROUGHT_BACK,
    FLAT,
    REARRANGING,
    RESHAPED,
    Graph,
    attribute,
    captured,
    drop_unused_constants,
    in_model_order,
    needs,
    opset_of,
    with_nodes,
)
from sgsdump.tensors.stages import KEY

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

SUMMED = "_reduceSum_output"  # the end of the sum of a mean along one axis, as the converter writes it
_SUM_READS_AXES = 13  # the opset from which the axes of ReduceSum are an input; a model keeps its own until lifted
WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
# What has a type of its own, whatever a fully connected operator reads it as.
OWN_TYPE = ("Sigmoid", "Softmax", "ReduceMean", "Concat")


@dataclass(frozen=True, eq=False)
class RunningStatistics:
    """Of one BatchNormalization, float64 [C]; ``spread`` is the standard deviation that it divides by, with epsilon.

    source  the tensor that it reads, channels on axis 1.
    output  what it puts out, and is called by.
    """

    source: str
    output: str
    mean: np.ndarray
    spread: np.ndarray
    epsilon: float


def running_statistics(graph: Graph) -> tuple[RunningStatistics, ...]:
    """Of each in execution order; none of those that are as they began, mean 0 and variance 1. Raises ModelError for
    damaged weights."""
    found = []
    for node in graph.nodes:
        if node.op_type != "BatchNormalization" or not all(name in graph.constants for name in node.input[3:5]):
            continue
        mean, variance = (graph.value(name).astype(np.float64).reshape(-1) for name in node.input[3:5])
        epsilon = float(attribute(node, "epsilon", 1e-5))
        if (mean.any() or not (variance == 1).all()) and (variance >= 0).all():
            spread = np.sqrt(variance + epsilon)
            found.append(RunningStatistics(node.input[0], node.output[0], mean, spread, epsilon))
    return tuple(found)


def as_converted(proto: ModelProto) -> ModelProto:
    """A copy of the model (nodes in an order they can run in) with these operators as the converter writes them; one
    whose parameters are not constants stays."""
    from onnx import ModelProto

    proto = without_identities(proto)
    result = ModelProto()
    result.CopyFrom(proto)
    graph = Graph(proto)
    writer = _Writer(graph, result)
    del result.graph.node[:]
    turned = in_model_order(graph)
    for node in _read(graph):
        copies = [*writer.brought_back(node, turned), *(writer.written(node) or [node])]
        result.graph.node.extend(copies)
    drop_unused_constants(result)
    return result


def without_identities(proto: ModelProto) -> ModelProto:
    """The model whose nodes read what an Identity reads, as the converter writes it. An Identity stays if it is an
    output, if a body of a node reads it, or if it stands for a layer of a Caffe model."""
    graph = Graph(proto)
    captures = {name for node in graph.nodes for name in captured(node)}
    kept = {*graph.outputs, *captures}
    sources: dict[str, str] = {}
    for node in graph.nodes:
        if node.op_type == "Identity" and not node.domain and node.output[0] not in kept:
            sources[node.output[0]] = sources.get(node.input[0], node.input[0])
    if not sources or _is_caffe(proto):
        return proto
    result = with_nodes(proto, [node for node in proto.graph.node if node.output[0] not in sources])
    for node in result.graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = sources.get(name, name)
    return result


def _is_caffe(proto: ModelProto) -> bool:
    return any(prop.key == KEY for prop in proto.metadata_props)


def _read(graph: Graph) -> list[NodeProto]:
    """The nodes that an output of the graph depends on, in order: the converter leaves out the others."""
    needed = set(graph.outputs)
    kept = []
    for node in reversed(graph.nodes):
        if needed.intersection(node.output):
            needed |= needs(node)
            kept.append(node)
    return kept[::-1]


class _Writer:
    def __init__(self, graph: Graph, result: ModelProto) -> None:
        self._graph, self._result = graph, result
        self._taken = {*graph.inputs, *graph.producer, *graph.constants}
        self._reshaped: dict[tuple[str, str], str] = {}
        self._caffe = _is_caffe(result)

    def written(self, node: NodeProto) -> list[NodeProto]:
        """The nodes in place of one; none where it stays."""
        graph = self._graph
        constants = [name in graph.constants for name in node.input]
        if node.op_type == "BatchNormalization" and all(constants[1:5]) and not any(node.output[1:]):
            return self._normalisation(node)
        if node.op_type == "ReduceMean":
            return self._mean(node)
        if node.op_type == "Sub" and constants == [True, False] and graph.value(node.input[0]).size > 1:
            return self._subtraction(node)
        if node.op_type == "Div" and constants == [False, True] and graph.value(node.input[1]).dtype.kind == "f":
            return self._division(node)
        return []

    def brought_back(self, node: NodeProto, turned: Container[str]) -> list[NodeProto]:
        """What comes before a convolution whose input is in the model's order of axes, and before a fully connected
        operator whose input is INT16 whatever reads it, a Concat, or read by others as well: a move of its own, which
        the operator then reads. Of a Caffe network each InnerProduct has one of its own. A product of other than two
        dimensions, which the converter refuses, has one here where others compute with what it reads."""
        from onnx import helper

        if node.op_type not in WEIGHTED or node.input[1] not in self._graph.constants:
            return []
        source = node.input[0]
        if node.op_type in ("Conv", "ConvTranspose"):
            if source not in turned:
                return []
            moved = self._free(f"{node.output[0]}{BROUGHT_BACK}")
            move = helper.make_node("Identity", [source], [moved], name=moved)
        else:
            made = self._graph.producer.get(source)
            wide = source in (*self._graph.inputs, *self._graph.outputs) or (made and made.op_type in OWN_TYPE)
            shared = len(self._graph.consumers.get(source, ())) > 1
            flat = len(self._graph.shapes.get(source, ())) == 2
            if not (flat and (wide or shared)) and not (not flat and self._is_residual(source)):
                return []
            own = self._caffe and not (made and made.op_type in FLAT)
            reader = source, node.name if own else ""
            if reader in self._reshaped:
                node.input[0] = self._reshaped[reader]
                return []
            moved = self._reshaped[reader] = self._free(f"{source}{RESHAPED}")
            move = helper.make_node("Identity", [source], [moved], name=moved)
            if flat:
                move = helper.make_node("Flatten", [source], [moved], name=moved, axis=1)
        node.input[0] = moved
        return [move]

    def _is_residual(self, source: str) -> bool:
        """Whether a tensor of other than two dimensions is computed, and read by products with constants and by what
        computes with it, but by no other convolution."""
        graph = self._graph
        made = graph.producer.get(source)
        if made is None or made.op_type in REARRANGING or source in graph.outputs or source not in graph.shapes:
            return False
        readers = graph.consumers.get(source, ())
        weighted = [each for each in readers if each.op_type in WEIGHTED and each.input[1] in graph.constants]
        computing = [each for each in readers if each not in weighted and each.op_type not in REARRANGING]
        return bool(computing) and {each.op_type for each in weighted} == {"MatMul"}

    def _normalisation(self, node: NodeProto) -> list[NodeProto]:
        """factor = gamma / sqrt(variance + epsilon), offset = beta - mean * factor, in double precision, and kept as
        float32 (of Caffe's BatchNorm the sum is float32)."""
        shape = self._graph.shapes.get(node.input[0])
        if shape is None or len(shape) < 2:
            return []
        gamma, beta, mean, variance = (self._graph.value(name).astype(np.float64) for name in node.input[1:5])
        spread = [1, -1, *[1] * (len(shape) - 2)]
        factor = gamma / np.sqrt(variance + float(np.float32(attribute(node, "epsilon", 1e-5))))
        offset = beta - mean * factor
        return self._line(node, node.input[0], "_MUL_output", (factor.reshape(spread), offset.reshape(spread)))

    def _division(self, node: NodeProto) -> list[NodeProto]:
        from onnx import helper

        divisor = self._graph.value(node.input[1]).astype(np.float32)
        if not divisor.all():
            return []
        factor = self._constant("division_to_multiplication_inpu1_tensor_0", np.float32(1) / divisor)
        return [helper.make_node("Mul", [node.input[0], factor], [node.output[0]], name=node.name)]

    def _mean(self, node: NodeProto) -> list[NodeProto]:
        """Over one axis: the sum, and that times 1 / n; over both spatial axes it is a pool and stays."""
        from onnx import helper

        shape, axes = self._graph.shapes.get(node.input[0], ()), attribute(node, "axes")
        if axes is None or len(axes) != 1 or not shape or shape[axes[0]] is None:
            return []
        total = self._free(f"{node.output[0]}{SUMMED}")
        factor = self._constant("division_to_multiplication_inpu1_tensor_0", np.array([1 / shape[axes[0]]]))
        reads, form = [node.input[0]], {"keepdims": attribute(node, "keepdims", 1)}
        if opset_of(self._result) < _SUM_READS_AXES:
            form["axes"] = axes
        else:
            reads.append(self._constant(f"{node.output[0]}_axis", np.array(axes, np.int64)))
        return [
            helper.make_node("ReduceSum", reads, [total], name=total, **form),
            helper.make_node("Mul", [total, factor], [node.output[0]], name=node.name),
        ]

    def _subtraction(self, node: NodeProto) -> list[NodeProto]:
        constant, name = node.input
        return self._line(node, name, "/Mul0Output", (np.array(-1.0), constant))

    def _line(
        self, node: NodeProto, source: str, between: str, line: tuple[np.ndarray, np.ndarray | str]
    ) -> list[NodeProto]:
        """source * factor + offset, where ``line`` is both, an offset perhaps by the name it has already."""
        from onnx import helper

        name = node.output[0]
        # The converter names what it adds after the node, and a node without a name after the list of its outputs.
        stem = node.name or str(list(node.output))
        product = self._free((source if between.startswith("/") else stem) + between)
        factor, offset = line
        factor_name = self._constant(f"{stem}_scale", factor)
        offset_name = offset if isinstance(offset, str) else self._constant(f"{stem}_offset", offset)
        return [
            helper.make_node("Mul", [source, factor_name], [product], name=product),
            helper.make_node("Add", [product, offset_name], [name], name=node.name),
        ]

    def _constant(self, name: str, values: np.ndarray) -> str:
        from onnx import numpy_helper

        name = self._free(name)
        self._result.graph.initializer.append(
            numpy_helper.from_array(values if values.dtype == np.int64 else np.asarray(values, np.float32), name)
        )
        return name

    def _free(self, name: str) -> str:
        while name in self._taken:
            name += "'"
        self._taken.add(name)
        return name
