"""BatchNormalization as a Mul and an Add, the way the SDK's Caffe converter writes BatchNorm and Scale layers.

    y = x * gain + offset,   gain = gamma / sqrt(var + epsilon),   offset = beta - mean * gain

var + epsilon is a sum of float32; all else is computed in double precision and kept as float32 at the end.
A Scale directly after a BatchNorm joins it, nothing else does. The product is called after what it multiplies, the
constants after the first layer: ``a_MUL = a * bn_scale``, ``bs = a_MUL + bn_offset``. Source: the SDK's float dumps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sgsdump.models.graph import Graph, attribute, drop_unused_constants
from sgsdump.models.shape_inference import infer_types

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TypeProto


def split_batchnorm(proto: ModelProto) -> ModelProto:
    """A copy of the model without BatchNormalization of constant statistics, where the rank of what it reads is known;
    nodes stay in order."""
    from onnx import ModelProto, helper, numpy_helper

    graph = Graph(proto)
    result = ModelProto()
    result.CopyFrom(proto)
    nodes: list[NodeProto] = []
    done: set[int] = set()
    names = {*graph.producer, *graph.constants, *graph.inputs}
    types = infer_types(proto) if any(_constant(graph, node) for node in graph.nodes) else {}
    for node in graph.nodes:
        if id(node) in done:
            continue
        rank = _rank(types.get(node.input[0])) if _constant(graph, node) else None
        if rank is None:
            nodes.append(node)
            continue
        run = [node]
        following = None if _is_scale(graph, node) else graph.sole_consumer(node.output[0])
        if following is not None and _constant(graph, following) and _is_scale(graph, following):
            run.append(following)
        done.update(map(id, run))
        gain, offset = _combined(graph, run, rank)
        first, last = node.output[0], run[-1].output[0]
        product, scale, shift = (_free(n, names) for n in (f"{node.input[0]}_MUL", f"{first}_scale", f"{first}_offset"))
        result.graph.initializer.append(numpy_helper.from_array(gain, scale))
        result.graph.initializer.append(numpy_helper.from_array(offset, shift))
        nodes.append(helper.make_node("Mul", [node.input[0], scale], [product], name=product))
        nodes.append(helper.make_node("Add", [product, shift], [last], name=last))
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    drop_unused_constants(result)
    return result


def _constant(graph: Graph, node: NodeProto) -> bool:
    """Whether a node is a BatchNormalization that only scales: one output, statistics known."""
    known = node.op_type == "BatchNormalization" and not any(node.output[1:])
    return known and all(name in graph.constants for name in node.input[1:])


def _is_scale(graph: Graph, node: NodeProto) -> bool:
    """Whether a BatchNormalization is a Scale layer: it has no statistics."""
    mean, variance = (graph.value(name) for name in node.input[3:5])
    return attribute(node, "epsilon", 1e-5) == 0 and not mean.any() and bool((variance == 1).all())


def _rank(kind: TypeProto | None) -> int | None:
    """How many dimensions a tensor has; None when that is unknown, or fewer than the two that have channels."""
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    rank = len(kind.tensor_type.shape.dim)
    return rank if rank >= 2 else None


def _combined(graph: Graph, run: list[NodeProto], rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Gain and offset of all together, float32, (C, 1, 1) for four dimensions: channels are the second axis."""
    gain, offset = np.ones(1), np.zeros(1)
    for node in run:
        gamma, beta, mean, var = (graph.value(name).astype(np.float64) for name in node.input[1:5])
        spread = (var.astype(np.float32) + np.float32(attribute(node, "epsilon", 1e-5))).astype(np.float64)
        own = gamma / np.sqrt(spread)
        gain, offset = gain * own, offset * own + beta - mean * own
    return tuple(values.astype(np.float32).reshape(-1, *[1] * (rank - 2)) for values in (gain, offset))  # type: ignore[return-value]


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
