"""Fold BatchNormalization into the convolution before it: the same function with one node less.

y = gamma * (conv(x) - mean) / sqrt(var + epsilon) + beta, so weights are scaled per output channel by
gamma / sqrt(var + epsilon) and the bias follows. The folded convolution puts out the BatchNormalization's tensor;
the convolution's own tensor disappears.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sgsdump.models.graph import Graph, attribute, drop_unused_constants

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


def fold_batchnorm(proto: ModelProto) -> ModelProto:
    """A copy of the model in which every foldable BatchNormalization is gone; the others stay as they are."""
    from onnx import ModelProto

    result = ModelProto()
    result.CopyFrom(proto)
    # A BatchNormalization behind another (Caffe's Scale behind its BatchNorm) can be folded when the first is gone.
    while _fold_round(result):
        pass
    drop_unused_constants(result)
    return result


def _fold_round(result: ModelProto) -> bool:
    """Fold in place what is right behind a convolution; whether anything was."""
    from onnx import numpy_helper

    graph = Graph(result)
    folded = False
    for norm in graph.nodes:
        conv = graph.producer.get(norm.input[0]) if norm.op_type == "BatchNormalization" else None
        if conv is None or not _foldable(graph, conv, norm):
            continue
        weight, bias = _folded(graph, conv, norm)
        names = [_own_name(graph, conv.input[1], norm), _free_name(graph, f"{norm.output[0]}#bias")]
        for name, array in zip(names, (weight, bias)):
            tensor = numpy_helper.from_array(np.ascontiguousarray(array), name)
            (graph.constants[name] if name in graph.constants else result.graph.initializer.add()).CopyFrom(tensor)
        conv.input[1:] = names
        conv.output[0] = norm.output[0]
        result.graph.node.remove(norm)
        folded = True
    return folded


def _own_name(graph: Graph, weight: str, norm: NodeProto) -> str:
    """Folded weights keep their name unless another node reads the unfolded ones."""
    return weight if len(graph.consumers[weight]) == 1 else _free_name(graph, f"{weight}#folded:{norm.output[0]}")


def _free_name(graph: Graph, name: str) -> str:
    """The name, with as many ' after it as make it one that the graph has not."""
    while name in graph.constants or name in graph.producer or name in graph.inputs:
        name += "'"
    return name


def _foldable(graph: Graph, conv: NodeProto, norm: NodeProto) -> bool:
    if conv.op_type not in ("Conv", "ConvTranspose") or graph.sole_consumer(conv.output[0]) is not norm:
        return False
    if conv.op_type == "ConvTranspose" and attribute(conv, "group", 1) != 1:
        return False
    constant = [*conv.input[1:], *norm.input[1:]]
    return all(name in graph.constants for name in constant if name) and not any(norm.output[1:])


def _folded(graph: Graph, conv: NodeProto, norm: NodeProto) -> tuple[np.ndarray, np.ndarray]:
    gamma, beta, mean, var = (graph.value(name).astype(np.float64) for name in norm.input[1:5])
    gain = gamma / np.sqrt(var + attribute(norm, "epsilon", 1e-5))
    weight = graph.value(conv.input[1])
    axis = 1 if conv.op_type == "ConvTranspose" else 0
    per_channel = gain.reshape([-1 if i == axis else 1 for i in range(weight.ndim)])
    has_bias = len(conv.input) > 2 and conv.input[2]
    bias = graph.value(conv.input[2]).astype(np.float64) if has_bias else 0.0
    return (weight * per_channel).astype(weight.dtype), ((bias - mean) * gain + beta).astype(weight.dtype)
