"""One convolution or fully connected node of the float model, with the weights, biases and multipliers it stores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.models.graph import Graph, attribute
from sgsdump.quantisation.fixed_facts import StoredWeights
from sgsdump.quantisation.groups import joined
from sgsdump.quantisation.integer.convolution.convolve import convolve
from sgsdump.quantisation.integer.convolution.kernel import Kernel, kernel_of
from sgsdump.quantisation.integer.convolution.requantisation import requantisation
from sgsdump.quantisation.integer.emitter import Emitter, Integers, Unrounded
from sgsdump.quantisation.integer.rounding import store_weight
from sgsdump.quantisation.scales import UINT8
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range

if TYPE_CHECKING:
    from onnx import NodeProto


@dataclass(frozen=True, eq=False)
class Weighted:
    """What a node computes, and what it stores for that.

    kernel  the constant that holds the weights, as they lie in ``weights``.
    rows    the constant (2, C) of biases and multipliers.
    bias    the name of the float bias.
    """

    outcome: Integers | Unrounded
    kernel: str
    weights: StoredWeights
    rows: str
    bias: str


def compute_weighted(
    emit: Emitter,
    graph: Graph,
    node: NodeProto,
    value: Integers,
    scale: Quant,
    output: Quant,
    channels: Mapping[str, Range],
    whole: Range,
    stored: str,
) -> Weighted | None:
    """None for a fully connected operator whose matrix is not a plain one, or whose bias is not one constant for each
    output channel, or for all.

    value     the node's first input; ``scale``: of its weights; ``output``: of what it puts out.
    channels  a convolution's output -> the range of each of its channels; ``whole``, the range of them all, for others.
    stored    see ``convolve``.
    """
    name = node.output[0]
    integers = store_weight(graph.value(node.input[1]), scale)
    kernel = kernel_of(node, emit.named(node.input[1], str(scale.dtype)), integers)
    if kernel is None or not _has_plain_bias(graph, node, kernel):
        return None
    if len(graph.consumers[node.input[1]]) > 1:
        kernel = replace(kernel, name=f"{kernel.name}:{name}")
    sums = kernel.sums()
    groups = 1 if kernel.depthwise else kernel.group
    bounds = channels.get(name) or joined(channels, f"{name}_conv#{{0}}_output#{{0}}", groups, 1) or whole
    numbers = requantisation(sums, _bias(graph, node, sums.size), bounds, value.quant, scale, output, groups)
    emit.constant(kernel.values, kernel.name)
    rows = emit.constant(np.stack([numbers.bias, numbers.mul]), emit.named(name, "rows"))
    outcome = convolve(emit, value, kernel, numbers, rows, stored)
    bias = node.input[2] if len(node.input) > 2 and node.input[2] else f"{name}_bias"
    made = Integers(outcome, UINT8, output) if isinstance(outcome, str) else outcome
    return Weighted(made, kernel.name, _stored_weights(node, scale), rows, bias)


def _has_plain_bias(graph: Graph, node: NodeProto, kernel: Kernel) -> bool:
    """Whether a bias, where there is one, is the same for every row that a fully connected operator is given."""
    if len(node.input) < 3 or not node.input[2]:
        return True
    if node.input[2] not in graph.constants:
        return False
    dims = graph.constants[node.input[2]].dims
    return math.prod(dims) in (1, *dims[-1:]) and math.prod(dims) in (1, kernel.sums().size)


def _bias(graph: Graph, node: NodeProto, count: int) -> np.ndarray:
    if len(node.input) < 3 or not node.input[2]:
        return np.zeros(count)
    factor = attribute(node, "beta", 1.0) if node.op_type == "Gemm" else 1.0
    bias = graph.value(node.input[2]).astype(np.float64).reshape(-1) * factor
    return np.broadcast_to(bias, (count,))


def _stored_weights(node: NodeProto, quant: Quant) -> StoredWeights:
    assert quant.dtype is not None, "a plan knows every type"
    steps = np.asarray(quant.scale, np.float64).tolist()
    return StoredWeights(node.input[1], quant.dtype, tuple(steps) if isinstance(steps, list) else steps, quant.axis)
