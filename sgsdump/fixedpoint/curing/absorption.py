"""Absorb high biases: move the constant part of a channel past the Relu into the next layer's bias.

    y = Relu(W₁ x + b₁) ≥ c        becomes        y' = y - c = Relu(W₁ x + b₁ - c)
    W₂ y + b₂                                     W₂ y' + (b₂ + W₂ c)

The range of y then starts at its smallest value, not at 0. Source: Nagel et al., Data-Free Quantization (ICCV 2019),
section 4.1.3, with c = max(0, β - 3γ) of the BatchNormalization before. Here c is measured:

    c = max(0, the least value of the channel on the images) / ROOM

The Relu therefore does not clip values unless they are a third below the smallest one seen. If it does on other images,
the function changes and the search rejects the step. Layers that read y must have no padding, because padding is 0 and
not -c.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.fixedpoint.curing.editing import Editing
from sgsdump.models.graph import attribute

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

ROOM = 1.5


def absorbing(proto: ModelProto) -> list[str]:
    """Return the outputs of Relus that a constant part can be subtracted from."""
    editing = Editing(proto)
    return [node.output[0] for node in editing.graph.nodes if _offset_of(editing, node) is not None]


def absorbed(proto: ModelProto, least: Mapping[str, np.ndarray]) -> tuple[ModelProto, int]:
    """Return the model with the constant parts of channels moved into the next biases, and the number of channels.

    least  by tensor of ``absorbing``, the least value of each channel on the images, [C].
    """
    editing, count = Editing(proto), 0
    for node in editing.graph.nodes:
        before = _offset_of(editing, node)
        taken = np.maximum(least.get(node.output[0], np.zeros(1)), 0.0) / ROOM
        if before is None or not taken.any():
            continue
        if before.op_type == "BatchNormalization":
            editing.set(before, 2, editing.value(before.input[2]) - taken, "constant")
        else:
            editing.add_to_bias(before, -taken)
        for reader in editing.graph.consumers[node.output[0]]:
            editing.add_to_bias(reader, _through(editing, reader, taken))
        count += int((taken > 0).sum())
    return editing.proto, count


def _offset_of(editing: Editing, relu: NodeProto) -> NodeProto | None:
    """Return the node whose offset feeds a Relu, or None unless every reader can take a constant into its bias."""
    graph = editing.graph
    if relu.op_type != "Relu" or relu.output[0] in graph.outputs:
        return None
    before = graph.producer.get(relu.input[0])
    readers = graph.consumers.get(relu.output[0], [])
    if before is None or graph.sole_consumer(relu.input[0]) is None:
        return None
    if not readers or not all(_takes_a_constant(editing, reader, relu.output[0]) for reader in readers):
        return None
    if before.op_type == "BatchNormalization":
        constant = all(name in graph.constants for name in before.input[1:5]) and not any(before.output[1:])
        return before if constant else None
    return before if before.op_type in ("Conv", "Gemm") and editing.is_plain(before) else None


def _takes_a_constant(editing: Editing, node: NodeProto, name: str) -> bool:
    if node.op_type not in ("Conv", "Gemm") or not editing.is_plain(node) or list(node.input).count(name) != 1:
        return False
    if node.op_type == "Gemm":
        return not attribute(node, "transA", 0)
    padded = any(attribute(node, "pads", None) or []) or attribute(node, "auto_pad", b"NOTSET").startswith(b"SAME")
    return not padded


def _through(editing: Editing, node: NodeProto, constant: np.ndarray) -> np.ndarray:
    """Return what a constant per input channel adds to the outputs of a layer, [O]."""
    weight = editing.weight(node)
    if node.op_type == "Gemm":
        along = weight if attribute(node, "transB", 0) else weight.T
        return along @ constant * attribute(node, "alpha", 1.0)
    groups = attribute(node, "group", 1)
    sums = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1).sum(axis=3)
    return np.einsum("goi,gi->go", sums, constant.reshape(groups, -1)).reshape(-1)
