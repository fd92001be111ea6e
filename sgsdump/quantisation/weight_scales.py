"""The scales of a convolution's weights: one for the tensor, one per output channel or one per group.

The rules are the SDK's (docs/formats/sigmastar.md#the-fixed-model): as many bits as the convolution's input, symmetric.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.models.graph import Graph, attribute
from sgsdump.quantisation.fusion import is_depthwise
from sgsdump.quantisation.groups import joined
from sgsdump.quantisation.scales import TINIEST_SCALE
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range

if TYPE_CHECKING:
    from onnx import NodeProto

# Channels whose scales are further apart than this do not fit the multipliers of one convolution: the largest holds.
WIDEST_RATIO = 1024


def weight_quant(graph: Graph, node: NodeProto, dtype: np.dtype, calibrated: Range | None, per_channel: bool) -> Quant:
    """Symmetric weights: scale = max(|min|, |max|) / 127 or 32767, per output channel where the range is.

    Without a range, or with one for the whole tensor when ``per_channel``, the weights themselves give it. With groups
    there is a scale for each: the SDK's converter makes them as many convolutions.
    """
    limit = np.iinfo(dtype).max
    calibrated = calibrated.at(dtype) if calibrated is not None else None
    axis = output_axis(graph, node)
    channels = graph.constants[node.input[1]].dims[axis]
    groups = 1 if is_depthwise(graph, node) or axis else attribute(node, "group", 1)
    if calibrated is not None and calibrated.min.size == channels and (per_channel or channels > 1):
        top = np.maximum(np.abs(calibrated.min), np.abs(calibrated.max))
    elif calibrated is not None and not per_channel and (groups == 1 or calibrated.min.size == groups):
        top = np.maximum(np.abs(calibrated.min), np.abs(calibrated.max)).reshape(groups, -1).max(axis=1)
    else:
        weight = np.abs(graph.value(node.input[1]).astype(np.float64))
        other = tuple(i for i in range(weight.ndim) if i != axis)
        top = weight.max(axis=other) if per_channel or groups > 1 else weight.max().reshape(1)
    if groups > 1 and not per_channel:
        top = np.repeat(top.reshape(groups, -1).max(axis=1), channels // groups)
    scale = top.astype(np.float32).astype(np.float64) / limit
    largest = scale.max()
    scale = np.where(scale >= TINIEST_SCALE, scale, largest if largest >= TINIEST_SCALE else 1.0)
    if scale.size > 1 and top.any() and scale.max() > WIDEST_RATIO * scale[top > 0].min():
        scale = scale.max().reshape(1)
    if scale.size == 1:
        return Quant(dtype, float(scale[0]), 0, exact=True)
    return Quant(dtype, scale, 0, axis, exact=True)


def weight_range(node: NodeProto, ranges: Mapping[str, Range]) -> Range | None:
    """The calibrated range of a convolution's weights; of groups, those of the convolutions the SDK makes of them, one
    value per output channel."""
    name = node.output[0]
    if f"{name}_conv#0_filter#0" not in ranges or attribute(node, "group", 1) == 1:
        return ranges.get(node.input[1])
    return joined(ranges, f"{name}_conv#{{0}}_filter#{{0}}", attribute(node, "group"), 1)


def output_axis(graph: Graph, node: NodeProto) -> int:
    """Where a weight's output channels lie: axis 0 for Conv and Gemm transB=1, 1 for ConvTranspose, last for MatMul."""
    if node.op_type == "Conv" or (node.op_type == "Gemm" and attribute(node, "transB", 0)):
        return 0
    return 1 if node.op_type == "ConvTranspose" else len(graph.constants[node.input[1]].dims) - 1
