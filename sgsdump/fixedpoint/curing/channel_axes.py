"""The channel axis of each tensor, as used for scaling, channel statistics and noise.

Operators with weights decide. The channels of a convolution or BatchNormalization lie along the second axis, those of a
fully connected operator or LayerNormalization along the last. Other operators pass the axis on in both directions:
unchanged, or moved by a Transpose, a Reshape or a Gather.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sgsdump.fixedpoint.quantisation.analysis import is_convolution
from sgsdump.fixedpoint.quantisation.type_rules import reduced_axes
from sgsdump.models.graph import Graph, attribute

if TYPE_CHECKING:
    from onnx import NodeProto

# These divide by the size of a row, so only their output can be scaled, by their own factor and offset.
ROW_NORMALISATIONS = frozenset("LayerNormalization RMSNormalization SimplifiedLayerNormalization".split())
_JOINING = frozenset("Add Sum Concat".split())
_WITH_A_CONSTANT = frozenset("Mul Div Add Sub".split())
_IN_PLACE = frozenset("Relu LeakyRelu PRelu Clip Identity Dropout Resize Upsample Pad Slice".split())
_POOLS = frozenset("MaxPool AveragePool GlobalAveragePool GlobalMaxPool".split())
_RESHAPING = frozenset("Reshape Flatten Squeeze Unsqueeze".split())


def channel_axes(graph: Graph) -> dict[str, int]:
    """Return the axis of each tensor that operators with weights reach, unless operators disagree."""
    found: defaultdict[str, set[int]] = defaultdict(set)
    pending = list(_decided(graph))
    while pending:
        name, axis = pending.pop()
        if axis not in found[name]:
            found[name].add(axis)
            pending.extend(_passed_on(graph, name, axis))
    return {name: next(iter(axes)) for name, axes in found.items() if len(axes) == 1}


def axis_after(graph: Graph, node: NodeProto, name: str, axis: int) -> int | None:
    """Return the axis of the channels in the output of a node that reads tensor ``name`` with channels along ``axis``.

    None if the node mixes the channels or the shapes are unknown.
    """
    kind, variables = node.op_type, graph.variables(node)
    before, after = graph.shapes.get(name), graph.shapes.get(node.output[0])
    if before is None or after is None or axis >= len(before):
        return None
    if kind in _JOINING or (kind in _WITH_A_CONSTANT and variables == [name]):
        return axis if len(before) == len(after) else None
    if name != node.input[0] or variables != [name]:
        return None
    if kind in _IN_PLACE:
        return axis if len(before) == len(after) and before[axis] == after[axis] else None
    if kind in _POOLS:
        return axis if axis == 1 else None
    if kind in ("ReduceMean", "ReduceMax"):
        axes = reduced_axes(graph, node, len(before))
        if axes is None or axis in axes:
            return None
        return axis if attribute(node, "keepdims", 1) else axis - sum(reduced < axis for reduced in axes)
    if kind == "Transpose":
        return list(attribute(node, "perm", range(len(before))[::-1])).index(axis)
    if kind == "Gather":
        along = attribute(node, "axis", 0) % len(before)
        return None if axis == along else axis if axis < along else axis + len(after) - len(before)
    return _reshaped(before, after, axis) if kind in _RESHAPING else None


def _reshaped(before: tuple[int | None, ...], after: tuple[int | None, ...], axis: int) -> int | None:
    """Return the axis of the same length with the same number of values behind it."""
    size, behind = before[axis], before[axis + 1 :]
    for new, after_size in enumerate(after):
        if None in (size, *behind, *after[new + 1 :]) or after_size != size:
            continue
        if math.prod(filter(None, behind)) == math.prod(filter(None, after[new + 1 :])):
            return new
    return None


def _decided(graph: Graph) -> Iterator[tuple[str, int]]:
    for node in graph.nodes:
        ends = (*node.input[:1], *node.output[:1])
        shape = graph.shapes.get(ends[-1], ()) if ends else ()
        if node.op_type == "BatchNormalization" or (is_convolution(graph, node) and node.op_type != "MatMul"):
            yield from ((name, 1) for name in ends)
        elif is_convolution(graph, node) and len(shape) >= 2 and len(graph.constants[node.input[1]].dims) == 2:
            yield from ((name, len(shape) - 1) for name in ends)
        elif node.op_type in ROW_NORMALISATIONS and len(shape) >= 2:
            yield node.output[0], len(shape) - 1


def _passed_on(graph: Graph, name: str, axis: int) -> Iterator[tuple[str, int]]:
    for reader in graph.consumers.get(name, ()):
        after = axis_after(graph, reader, name, axis)
        if after is not None:
            yield reader.output[0], after
    maker = graph.producer.get(name)
    if maker is not None and maker.output[0] == name:
        for source in graph.variables(maker):
            for before in range(len(graph.shapes.get(source, ()))):
                if axis_after(graph, maker, source, before) == axis:
                    yield source, before
