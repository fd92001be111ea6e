"""What SDK 1.1.5 computes in place of some ONNX operators, as its fixed simulator's integers show.

AveragePool, MaxPool
    Padding never counts; ``count_include_pad`` is ignored (ap_k3p1s1 and 24 more, L1 to L5). Caffe's padding counts.
    With ``auto_pad`` SAME_UPPER all padding is after the input (au_mp3s1, au_ap3).
Softmax
    Runs over the SDK's innermost axis, at every opset and for every axis: the channels of four dimensions, otherwise
    the last axis (sm_o9_a1 to sm_o13_am3, rs_3_1, rs_2_0).
Slice
    Of several spatial axes, only the one listed first is sliced. The output takes as many of these values as it holds,
    in the order N, H, W, C (fs_32, sx_rev, sx_plain). The simulator writes the other values behind the output, and
    often crashes; with an image it did not.

Four-dimensional tensors that a Transpose, Reshape or product made, as in transformers, follow ONNX.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sgsdump.models.graph import Graph, attribute, in_model_order, is_of_sim, is_taken_apart
from sgsdump.tensors.stages import KEY

if TYPE_CHECKING:
    from onnx import NodeProto

SPATIAL = (2, 3)


def is_caffe(graph: Graph) -> bool:
    """Return whether a model was read from Caffe's files."""
    return any(entry.key == KEY for entry in graph.proto.metadata_props)


def _is_converted(graph: Graph) -> bool:
    return is_caffe(graph) or is_of_sim(graph.proto)


def counts_padding(graph: Graph, node: NodeProto) -> bool:
    """Return whether the padding of an AveragePool counts."""
    return bool(attribute(node, "count_include_pad", 0)) and is_caffe(graph)


def explicitly_padded(graph: Graph, node: NodeProto) -> NodeProto:
    """Return a pool with ``pads`` in place of ``auto_pad`` SAME_UPPER; the node itself if a size is unknown."""
    from onnx import helper

    sizes = graph.shapes.get(node.input[0], ())[2:]
    if attribute(node, "auto_pad", b"NOTSET") != b"SAME_UPPER" or None in sizes:
        return node
    kernel = list(attribute(node, "kernel_shape"))
    strides = attribute(node, "strides") or [1] * len(kernel)
    after = [
        max(((length or 1) - 1) // stride * stride + size - (length or 1), 0)
        for length, size, stride in zip(sizes, kernel, strides, strict=True)
    ]
    padded = type(node)()
    padded.CopyFrom(node)
    del padded.attribute[:]
    padded.attribute.extend(each for each in node.attribute if each.name not in ("auto_pad", "pads"))
    padded.attribute.append(helper.make_attribute("pads", [0] * len(after) + after))
    return padded


def _is_map(graph: Graph, name: str) -> bool:
    """Return whether a four-dimensional tensor is N, C, H, W: from a convolution or an input, not transposed since."""
    if name in in_model_order(graph):
        return False
    names = [name]
    for each in names:
        made = graph.producer.get(each)
        if made is None or made.op_type in ("Conv", "ConvTranspose"):
            continue
        if made.op_type in ("MatMul", "Gemm", "Einsum"):
            return False
        names.extend(other for other in graph.variables(made) if other not in names)
    return True


class Rows(NamedTuple):
    """The rows of a Softmax: ``axis`` of its input, after a reshape to ``shape`` unless that is None."""

    axis: int
    shape: tuple[int, ...] | None = None


def softmax_rows(graph: Graph, node: NodeProto) -> Rows:
    """Return the rows of the SDK's Softmax; the node's own axis if the order of axes or a size is unknown."""
    source = node.input[0]
    apart = is_taken_apart(graph, node.output[0]) and source in graph.producer
    whole = graph.producer[source].input[0] if apart else source
    shape = graph.shapes.get(whole, ())
    known = [size for size in shape[1:] if size is not None]
    if not 2 <= len(shape) <= 4 or len(known) < len(shape) - 1 or (len(shape) == 4 and not _is_map(graph, whole)):
        return Rows(attribute(node, "axis", -1))
    return Rows(1 if len(shape) == 4 else len(shape) - 1, (-1, *known) if apart else None)


def slices_first_axis(graph: Graph, node: NodeProto) -> bool:
    """Return whether the SDK slices only the first of a Slice's axes.

    .sim files have the converter's result already.
    """
    shape, sliced = (graph.shapes.get(name, ()) for name in (node.input[0], node.output[0]))
    if len(node.input) < 4 or len(shape) != 4 or len(sliced) != 4 or None in (*shape[1:], *sliced[1:]):
        return False
    if any(name and name not in graph.constants for name in node.input[1:]) or _is_converted(graph):
        return False
    axes = [int(axis) % 4 for axis in graph.value(node.input[3]).reshape(-1)]
    cut = any(shape[axis] != sliced[axis] for axis in axes[1:])
    return cut and set(axes) <= set(SPATIAL) and shape[0] == 1 and node.input[0] not in in_model_order(graph)
