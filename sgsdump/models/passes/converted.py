"""Conversion of operators to the form and tensor names of the SDK's converter.

BatchNormalization becomes a factor and an offset per channel, ``b_MUL_output = x * b_scale`` and ``b = b_MUL_output +
b_offset``; it is never folded into a convolution. Constants per channel minus a tensor become the tensor times -1, plus
the constants. A division by a constant becomes a product. A mean along one axis becomes a sum, multiplied by 1 / n. An
Identity is removed. Source: the SDK's float dumps of such networks.

Statistics of BatchNormalizations (``running_statistics``) are read before the conversion.
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

SUMMED = "_reduceSum_output"  # name ending of the sum of a mean along one axis in the converter
_SUM_READS_AXES = 13  # first opset in which the axes of ReduceSum are an input; a model keeps its own until lifted
WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
# Operators whose output has its own type, whatever type a fully connected operator reads.
OWN_TYPE = ("Sigmoid", "Softmax", "ReduceMean", "Concat")


@dataclass(frozen=True, eq=False)
class RunningStatistics:
    """Training statistics of one BatchNormalization, float64 [C].

    source  tensor that it reads, channels on axis 1
    output  output tensor, which is also its name
    mean    running mean
    spread  standard deviation that it divides by, including epsilon
    """

    source: str
    output: str
    mean: np.ndarray
    spread: np.ndarray
    epsilon: float


def running_statistics(graph: Graph) -> tuple[RunningStatistics, ...]:
    """Return the statistics in execution order, except initial ones (mean 0, variance 1).

    Raises ModelError for damaged weights.
    """
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
    """Return a copy of the model, in executable order, with these operators in the converter's form.

    An operator whose parameters are not constants stays.
    """
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
    """Return the model without Identities, as the converter writes it.

    An Identity stays if it is an output, if a body of a node reads it, or if it represents a layer of a Caffe model.
    """
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
    """Return the nodes that an output of the graph depends on, in order; the converter omits others."""
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
        """Return the nodes that replace a node, or [] if it stays."""
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
        """Return the converter's additional move before a convolution or fully connected operator; redirect its input.

        A convolution has a move if its input is in the model's order of axes. A fully connected operator has a move if
        its input is a Concat, INT16 in any case, or shared with other operators. In a Caffe network each InnerProduct
        has its own move. The converter refuses a product that is not 2-D; here such a product has a move if other
        operators compute with its input.
        """
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
        """Return whether a computed tensor, not 2-D, feeds constant products and other operators, but no Conv."""
        graph = self._graph
        made = graph.producer.get(source)
        if made is None or made.op_type in REARRANGING or source in graph.outputs or source not in graph.shapes:
            return False
        readers = graph.consumers.get(source, ())
        weighted = [each for each in readers if each.op_type in WEIGHTED and each.input[1] in graph.constants]
        computing = [each for each in readers if each not in weighted and each.op_type not in REARRANGING]
        return bool(computing) and {each.op_type for each in weighted} == {"MatMul"}

    def _normalisation(self, node: NodeProto) -> list[NodeProto]:
        """Return factor = gamma / sqrt(variance + epsilon) and offset = beta - mean * factor as MUL and ADD.

        Computed in double precision and stored as float32 (for Caffe's BatchNorm the sum is float32).
        """
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
        """Convert a mean over one axis to a sum times 1 / n; a mean over both spatial axes is a pool and stays."""
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
        """Return source * factor + offset; ``line`` has both, the offset possibly as the name of an existing tensor."""
        from onnx import helper

        name = node.output[0]
        # The converter names added tensors after the node, or after the list of its outputs if unnamed.
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
