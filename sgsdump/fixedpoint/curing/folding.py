"""Fold BatchNormalization into the convolution before it.

    y = γ (Wx + b - μ) / √(σ² + ε) + β  =  (f W) x + (f (b - μ) + β)        f = γ / √(σ² + ε)

The SDK keeps it as a MUL and an ADD of 16 bits, so the channel factors never affect the weight scales. This is
accurate, but blocks equalisation. With one weight scale per tensor (L1), folding can cost more than it gains; the
search decides. The result has the name and the output tensor of the BatchNormalization; the convolution's own tensor
disappears. Source: Jacob et al., Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
Inference (CVPR 2018), section 3.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sgsdump.fixedpoint.curing.editing import Editing
from sgsdump.fixedpoint.quantisation.analysis import output_axis
from sgsdump.models.graph import attribute, drop_unused_constants

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

EPSILON = 1e-5


def folded(proto: ModelProto) -> tuple[ModelProto, tuple[str, ...]]:
    """Return the model with BatchNormalizations folded into the convolutions before them, and the folded tensors.

    The parameters must be constant, and only the BatchNormalization may read the convolution. A ConvTranspose with
    groups is left as it is.
    """
    editing = Editing(proto)
    folded: list[NodeProto] = []
    for node in editing.graph.nodes:
        before = _before(editing, node)
        if before is not None:
            _fold(editing, before, node)
            folded.append(node)
    if not folded:
        return proto, ()
    names = {node.output[0] for node in folded}
    kept = [n for n in editing.graph.nodes if n.op_type != "BatchNormalization" or n.output[0] not in names]
    result = type(proto)()
    result.CopyFrom(editing.proto)
    del result.graph.node[:]
    result.graph.node.extend(kept)
    drop_unused_constants(result)
    return result, tuple(node.output[0] for node in folded)


def _before(editing: Editing, node: NodeProto) -> NodeProto | None:
    """Return the convolution that a BatchNormalization can be folded into, or None."""
    graph = editing.graph
    if node.op_type != "BatchNormalization" or any(node.output[1:]):
        return None
    before = graph.producer.get(node.input[0])
    if before is None or not all(name in graph.constants for name in node.input[1:5]):
        return None
    plain = before.op_type in ("Conv", "ConvTranspose") and editing.is_plain(before)
    grouped = before.op_type == "ConvTranspose" and attribute(before, "group", 1) > 1
    return before if plain and not grouped and graph.sole_consumer(node.input[0]) is not None else None


def _fold(editing: Editing, convolution: NodeProto, node: NodeProto) -> None:
    gamma, beta, mean, variance = (editing.value(name) for name in node.input[1:5])
    factor = gamma / np.sqrt(variance + float(np.float32(attribute(node, "epsilon", EPSILON))))
    weight, axis = editing.weight(convolution), output_axis(editing.graph, convolution)
    along = [-1 if i == axis else 1 for i in range(weight.ndim)]
    bias = factor * (editing.bias(convolution, factor.size) - mean) + beta
    convolution.output[0] = node.output[0]
    editing.set_weight(convolution, weight * factor.reshape(along))
    editing.set_bias(convolution, bias)
