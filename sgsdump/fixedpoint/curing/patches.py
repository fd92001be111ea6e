"""Input patches of a convolution: the rows of the matrix product with its weights.

A convolution over one axis is treated as one of height 1. A ConvTranspose is a convolution with the flipped kernel over
an input with s - 1 zeros between neighbours (s: stride). It starts k - 1 minus the padding before the first value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.models.graph import Graph, attribute

if TYPE_CHECKING:
    from onnx import NodeProto

CONVOLUTIONS = ("Conv", "ConvTranspose")


def has_patches(graph: Graph, node: NodeProto) -> bool:
    """Return whether patches can be built: one or two spatial axes, or a fully connected operator."""
    dims = graph.constants[node.input[1]].dims
    if node.op_type == "ConvTranspose":
        plain = attribute(node, "auto_pad", b"NOTSET") == b"NOTSET" and not attribute(node, "output_shape", None)
        return plain and len(dims) in (3, 4)
    if node.op_type == "Conv":
        return len(dims) in (3, 4)
    if node.op_type == "Gemm":
        return not attribute(node, "transA", 0)
    return node.op_type == "MatMul" and len(dims) == 2


def columns_of(graph: Graph, node: NodeProto) -> tuple[int, int]:
    """Return the groups of a convolution, and the number of weights of each output channel."""
    dims = list(graph.constants[node.input[1]].dims)
    if node.op_type in CONVOLUTIONS:
        groups = attribute(node, "group", 1)
        channels = dims[1] if node.op_type == "Conv" else dims[0] // groups
        return groups, channels * int(np.prod(dims[2:]))
    return 1, dims[1] if attribute(node, "transB", 0) else dims[0]


def matrices(graph: Graph, node: NodeProto, weight: np.ndarray) -> np.ndarray:
    """Return the weights of a convolution as [groups, n, outputs of a group]."""
    groups, columns = columns_of(graph, node)
    if node.op_type == "Conv":
        return weight.reshape(groups, -1, columns).transpose(0, 2, 1)
    if node.op_type == "ConvTranspose":
        taps = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)[..., ::-1]
        return taps.transpose(0, 1, 3, 2).reshape(groups, columns, weight.shape[1])
    return (weight.T if attribute(node, "transB", 0) else weight)[None]


def as_weight(graph: Graph, node: NodeProto, parts: np.ndarray) -> np.ndarray:
    """Return the weights in the node's layout from the matrices."""
    shape = tuple(graph.constants[node.input[1]].dims)
    if node.op_type == "Conv":
        return parts.transpose(0, 2, 1).reshape(shape)
    if node.op_type == "ConvTranspose":
        groups, outputs = parts.shape[0], parts.shape[2]
        taps = parts.reshape(groups, shape[0] // groups, -1, outputs).transpose(0, 1, 3, 2)
        return taps[..., ::-1].reshape(shape)
    return parts[0].T if attribute(node, "transB", 0) else parts[0]


def positions(
    graph: Graph, node: NodeProto, shape: tuple[int, ...], most: int, random: np.random.Generator
) -> np.ndarray:
    """Return ``most`` random rows of a convolution with an input of this shape, or all rows, in order."""
    if node.op_type not in CONVOLUTIONS:
        count = int(np.prod(shape[:-1]))
    else:
        count = shape[0] * int(np.prod([axis.outputs for axis in _axes(graph, node, shape)]))
    return np.arange(count) if count <= most else np.sort(random.choice(count, most, replace=False))


def rows(graph: Graph, node: NodeProto, array: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return the patches of the chosen rows as float32 [groups, rows, n]."""
    if node.op_type not in CONVOLUTIONS:
        return array.reshape(-1, array.shape[-1])[chosen][None]
    down, across = _axes(graph, node, array.shape)
    n, rest = np.divmod(chosen, down.outputs * across.outputs)
    y, x = np.divmod(rest, across.outputs)
    (ys, inside_y), (xs, inside_x) = down.read_at(y), across.read_at(x)
    at = (n[:, None, None] * down.size + ys[:, :, None]) * across.size + xs[:, None, :]  # rows, kh, kw
    channels = array.reshape(*array.shape[:2], -1).transpose(1, 0, 2).reshape(array.shape[1], -1)
    taken = np.take(channels, at.reshape(-1), axis=1, mode="clip")  # channel by channel, as in memory
    outside = np.flatnonzero(~(inside_y[:, :, None] & inside_x[:, None, :]))
    taken[:, outside] = 0
    groups, columns = columns_of(graph, node)
    parts = taken.reshape(groups, array.shape[1] // groups, len(chosen), -1)
    return parts.transpose(0, 2, 1, 3).reshape(groups, len(chosen), columns)


@dataclass(frozen=True)
class _Axis:
    """One axis of a convolution.

    An output at o reads o * step + gap * i - before for each tap i. The input has ``size`` values with ``spread`` - 1
    zeros between neighbours.
    """

    size: int
    outputs: int
    taps: int
    step: int
    gap: int
    before: int
    spread: int = 1

    def read_at(self, outputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices of the input values that are read, and whether they exist, each [rows, taps]."""
        places = (outputs * self.step - self.before)[:, None] + np.arange(self.taps) * self.gap
        indices, between = np.divmod(places, self.spread)
        inside = (between == 0) & (indices >= 0) & (indices < self.size)
        return np.where(inside, indices, 0), inside


def _axes(graph: Graph, node: NodeProto, shape: tuple[int, ...]) -> list[_Axis]:
    """Return the axes height and width."""
    taps = list(graph.constants[node.input[1]].dims[2:])
    count = len(taps)
    strides = attribute(node, "strides", None) or [1] * count
    gaps = attribute(node, "dilations", None) or [1] * count
    pads = attribute(node, "pads", None) or [0] * 2 * count
    auto = attribute(node, "auto_pad", b"NOTSET").decode()
    longer = attribute(node, "output_padding", None) or [0] * count
    found = []
    for i, size in enumerate(shape[2:]):
        reach, before, after = gaps[i] * (taps[i] - 1), pads[i], pads[count + i]
        if node.op_type == "ConvTranspose":
            outputs = (size - 1) * strides[i] + reach + 1 - before - after + longer[i]
            found.append(_Axis(size, outputs, taps[i], 1, gaps[i], reach - before, strides[i]))
            continue
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            outputs = -(-size // strides[i])
            total = max((outputs - 1) * strides[i] + reach + 1 - size, 0)
            before = total // 2 if auto == "SAME_UPPER" else -(-total // 2)
        else:
            padded = size if auto == "VALID" else size + before + after
            before = 0 if auto == "VALID" else before
            outputs = (padded - reach - 1) // strides[i] + 1
        found.append(_Axis(size, outputs, taps[i], strides[i], gaps[i], before))
    return [_Axis(1, 1, 1, 1, 1, 0)] * (2 - count) + found
