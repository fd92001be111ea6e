"""The patches that a convolution multiplies its weights with: rows of a matrix product. Apart: shapes alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sgsdump.models.graph import Graph, attribute

if TYPE_CHECKING:
    from onnx import NodeProto


def has_patches(graph: Graph, node: NodeProto) -> bool:
    """Whether the convolution's patches are known: a Conv of two spatial axes, a fully connected operator."""
    dims = graph.constants[node.input[1]].dims
    if node.op_type == "Conv":
        return len(dims) == 4
    if node.op_type == "Gemm":
        return not attribute(node, "transA", 0)
    return node.op_type == "MatMul" and len(dims) == 2


def columns_of(graph: Graph, node: NodeProto) -> tuple[int, int]:
    """The groups of a convolution, and the weights of each output channel."""
    dims = graph.constants[node.input[1]].dims
    if node.op_type == "Conv":
        return attribute(node, "group", 1), dims[1] * dims[2] * dims[3]
    return 1, dims[1] if attribute(node, "transB", 0) else dims[0]


def matrices(graph: Graph, node: NodeProto, weight: np.ndarray) -> np.ndarray:
    """[groups, n, outputs of a group] of a convolution's weights."""
    if node.op_type == "Conv":
        groups, columns = columns_of(graph, node)
        return weight.reshape(groups, -1, columns).transpose(0, 2, 1)
    return (weight.T if attribute(node, "transB", 0) else weight)[None]


def as_weight(graph: Graph, node: NodeProto, parts: np.ndarray) -> np.ndarray:
    """The weights as the node has them, of their matrices."""
    shape = tuple(graph.constants[node.input[1]].dims)
    if node.op_type == "Conv":
        return parts.transpose(0, 2, 1).reshape(shape)
    return parts[0].T if attribute(node, "transB", 0) else parts[0]


def positions(
    graph: Graph, node: NodeProto, shape: tuple[int, ...], most: int, random: np.random.Generator
) -> np.ndarray:
    """Which rows of a convolution with an input of this shape are taken: ``most`` of them, or all, in order."""
    if node.op_type != "Conv":
        count = int(np.prod(shape[:-1]))
    else:
        height, width = _output_size(graph, node, shape)
        count = shape[0] * height * width
    return np.arange(count) if count <= most else np.sort(random.choice(count, most, replace=False))


def rows(graph: Graph, node: NodeProto, array: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """[groups, rows, n] float32: the patches at these places of a convolution's input."""
    if node.op_type != "Conv":
        return array.reshape(-1, array.shape[-1])[chosen][None]
    dims = graph.constants[node.input[1]].dims
    (top, left), (step_y, step_x), (gap_y, gap_x) = _window(graph, node, array.shape)
    height, width = _output_size(graph, node, array.shape)
    reach_y, reach_x = gap_y * (dims[2] - 1) + 1, gap_x * (dims[3] - 1) + 1
    bottom = max((height - 1) * step_y + reach_y - array.shape[2] - top, 0)
    right = max((width - 1) * step_x + reach_x - array.shape[3] - left, 0)
    padded = np.pad(array, ((0, 0), (0, 0), (top, bottom), (left, right)))
    n, rest = np.divmod(chosen, height * width)
    y, x = np.divmod(rest, width)
    ys = (y * step_y)[:, None] + np.arange(dims[2]) * gap_y
    xs = (x * step_x)[:, None] + np.arange(dims[3]) * gap_x
    taken = padded[n[:, None, None], :, ys[:, :, None], xs[:, None, :]]  # rows, kh, kw, C
    taken = taken.transpose(0, 3, 1, 2)
    groups, columns = columns_of(graph, node)
    return taken.reshape(len(chosen), groups, columns).transpose(1, 0, 2)


def _window(graph: Graph, node: NodeProto, shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """The padding at the top and left, the strides and the dilations."""
    strides, gaps = attribute(node, "strides", [1, 1]), attribute(node, "dilations", [1, 1])
    pads = attribute(node, "pads", [0, 0, 0, 0])
    auto = attribute(node, "auto_pad", b"NOTSET").decode()
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        dims = graph.constants[node.input[1]].dims[2:]
        sizes = zip(shape[2:], strides, gaps, dims)
        totals = [max((-(-size // s) - 1) * s + g * (k - 1) + 1 - size, 0) for size, s, g, k in sizes]
        pads = [total // 2 if auto == "SAME_UPPER" else -(-total // 2) for total in totals]
    elif auto == "VALID":
        pads = [0, 0, 0, 0]
    return (pads[0], pads[1]), (strides[0], strides[1]), (gaps[0], gaps[1])


def _output_size(graph: Graph, node: NodeProto, shape: tuple[int, ...]) -> tuple[int, int]:
    dims = graph.constants[node.input[1]].dims[2:]
    strides, gaps = attribute(node, "strides", [1, 1]), attribute(node, "dilations", [1, 1])
    auto = attribute(node, "auto_pad", b"NOTSET").decode()
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        return -(-shape[2] // strides[0]), -(-shape[3] // strides[1])
    pads = attribute(node, "pads", [0, 0, 0, 0]) if auto == "NOTSET" else [0, 0, 0, 0]
    height, width = (
        (size + before + after - gap * (k - 1) - 1) // stride + 1
        for size, before, after, gap, k, stride in zip(shape[2:], pads[:2], pads[2:], gaps, dims, strides)
    )
    return height, width
