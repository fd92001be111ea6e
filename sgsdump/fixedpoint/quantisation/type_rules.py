"""Type rules: tensors that are INT16 regardless of their readers, as a table with evidence and as functions.

| operator | condition (SDK networks that show it) | type |
|---|---|---|
| any | output of the network (zz_outmid) | INT16, also for a convolution that reads it |
| input | RAWDATA, not an image (ox_raw16) | INT16, max |x| / 32767, truncated toward zero |
| Sigmoid, Softmax | their input, also before a pool or a Transpose to channels last (ox_silu, sig_u8) | INT16 |
| Sigmoid, Softmax | their output (ox_sigmoid_conv, ox_se) | INT16 |
| Softmax | its readers (sc2, sc3, sc9) | use steps of 1 / 32768 as steps of its range |
| average pool, ReduceMean over H and W | 256 values or more: input and output (zg_16, mean_hw) | INT16 |
| the same | fewer values (zg_15, mean_hw7) | type and scale of its input |
| Resize | bilinear: input and output (ox_resize_b_asym, zp_resize) | INT16, scale of its input |
| ReduceMax along an axis, nearest Resize, MaxPool, Pad, Split, Reshape, Transpose (ox_rmax_c) | any | its input's |
| Split | a UINT8 piece decides; others are requantised after it (w_shuffle, sp8, sp_out) | |
| Concat along C | each input 16n channels, or all but the last 8n and the last not (zc_*, zd_*) | UINT8, else INT16 |
| the same | an input not 8n, unless the first is not and only a conv reads it (k8_12_8, k12_8_m, d12_8) | UINT8 |
| Concat along H, W | unless the channels are an odd multiple of 8 (ox_concat_hw, hc2_24) | UINT8 |
| Concat of two dimensions | maps of one pixel and fully connected outputs (pfld2) | as a Concat along C |
| the same | flattened maps of several pixels (fcm_2_6) | UINT8 |
| convolution with groups (gr16) | | as the Concat of its groups' channels |
| Max | shares one range with its operands (ox_maxmin), also as a separate operator (spmax) | each its own type |
| convolution | input without any of these (every probe) | UINT8 |
| product of other than two dimensions | its input is moved from a tensor that others use | INT16, requantised for it |
| any | none of the above | INT16 unless a neighbour gives it a type |

Source: docs/formats/fixed_arithmetic.md#types.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.models.graph import REARRANGING, Graph, attribute, puts_together
from sgsdump.models.sim_facts import read_facts

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

POOLS = ("MaxPool", "AveragePool")
AVERAGE_POOLS = ("AveragePool", "GlobalAveragePool")
# Pools; they keep the scale of their input, also inside a chain.
POOLED = (*POOLS, "GlobalMaxPool", "GlobalAveragePool")
# They copy values if mode is "nearest" (the default), and interpolate otherwise.
UPSAMPLERS = ("Resize", "Upsample")
# An average of this many values or more is computed in INT16, because the sum of fewer bytes fits 16 bits.
MOST_UINT8 = 256
# Operators that flatten maps to two dimensions.
FLATTENING = ("Flatten", "Reshape", "Squeeze")
# Functions that the hardware looks up in a table with 16-bit inputs and outputs.
TABLES = ("Sigmoid", "Softmax", "LogSoftmax")


MOVERS = REARRANGING | {
    *("MaxPool", "GlobalMaxPool", "Dropout"),
    *("Concat", "Slice", "Split", "Gather", "DepthToSpace", "SpaceToDepth", "Expand", "Tile", "Pad"),
}
# Operators with a constant that is broadcast over a tensor.
SPREAD = ("Mul", "Add", "Sub")


@dataclass(frozen=True, eq=False)
class Operator:
    """Nodes computed as one; ``inputs`` are the variable tensors read from outside, ``outputs`` those stored."""

    nodes: tuple[NodeProto, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @cached_property
    def head(self) -> NodeProto:
        return self.nodes[0]

    @cached_property
    def last(self) -> NodeProto:
        return self.nodes[-1]

    @cached_property
    def moves_values(self) -> bool:
        """Whether the operator only moves the values of its first input; False for Concat."""
        return (
            (self.head.op_type in MOVERS - {"Concat"} or is_nearest(self.head))
            and len(self.nodes) == 1
            and self.inputs[:1] == tuple(self.head.input[:1])
        )


OUTPUT, RAW_INPUT = "output of the network", "RAWDATA input"
PLANNED = "planned in the .sim file"
LOOKED_UP, TABLE = "input of a table function", "output of a table function"
LARGE_AVERAGE, INTERPOLATED, UNFIT_CONCAT, RESIDUAL = (
    "average of 256 values or more",
    "bilinear Resize",
    "Concat with unaligned channels",
    "residual beside a MatMul of other than two dimensions",
)


def planned_int16(proto: ModelProto) -> Mapping[str, str] | None:
    """Return the tensors that a .sim file plans as INT16; None for a model of another origin.

    The SDK's converter decided them by these rules and by its input_config.ini.
    """
    facts = read_facts(proto)
    if facts is None:
        return None
    return {name: PLANNED for name, dtype in facts.types.items() if dtype == np.int16}


def always_int16(graph: Graph, ops: Sequence[Operator], read: Container[str]) -> Mapping[str, str]:
    """Return the tensors that are INT16 regardless of their readers, each with its rule.

    read  the tensors that convolutions read.
    """
    found = dict.fromkeys(_unfit_concats(graph, ops, read), UNFIT_CONCAT)
    for op in ops:
        for name, rule in _by_operator(graph, op):
            found.setdefault(name, rule)
        for name in op.outputs[:1]:
            if name not in read and _is_residual(graph, op, read):
                found.setdefault(name, RESIDUAL)
    return {**found, **dict.fromkeys(graph.outputs, OUTPUT)}


def _by_operator(graph: Graph, op: Operator) -> Iterator[tuple[str, str]]:
    source, output = op.inputs[:1], op.outputs[:1]
    if op.last.op_type in TABLES or puts_together(op.last):
        yield from ((name, TABLE) for name in output)
    if looked_up(op):
        yield from ((name, LOOKED_UP) for name in (*source, *_before_channels_last(graph, *source)))
    if is_interpolation(op.head):
        yield from ((name, INTERPOLATED) for name in (*source, *(output if len(op.nodes) == 1 else ())))
    if is_average(graph, op.head) and _averaged(graph, op.head) >= MOST_UINT8:
        yield from ((name, LARGE_AVERAGE) for name in (*source, *output))


def _is_residual(graph: Graph, op: Operator, read: Container[str]) -> bool:
    """Return whether an operator's output is a residual, as LayerNormalizations and sums of transformers are.

    Other operators compute with a residual. Apart from them, only products of other than two dimensions read it,
    through moving operators. The SDK refuses such products, so none of its dumps shows a type. A fully connected
    operator reads its own copy.
    """
    name = op.outputs[0]
    readers = graph.consumers.get(name, ())
    ends = [end for reader in readers if reader.op_type in REARRANGING for end in _ends_of(graph, reader, read)]
    computing = any(reader.op_type not in REARRANGING for reader in readers)
    return op.head.op_type not in REARRANGING and computing and bool(ends) and all(ends)


def _ends_of(graph: Graph, mover: NodeProto, read: Container[str]) -> Iterator[bool]:
    """Yield, for each convolution that reads the moved tensor, whether it is a product of other than two dimensions."""
    moved = mover.output[0]
    for reader in graph.consumers.get(moved, ()):
        if reader.op_type in REARRANGING:
            yield from _ends_of(graph, reader, read)
        elif moved in read and moved == reader.input[0] and len(reader.input) > 1:
            yield reader.op_type == "MatMul" and len(graph.shapes.get(moved, (0, 0))) != 2


def _unfit_concats(graph: Graph, ops: Sequence[Operator], read: Container[str]) -> set[str]:
    """Return the Concats that cannot be UINT8, and those of their inputs that need no alignment."""
    names = {name for op in ops if _of_unfit_groups(graph, op) for name in op.outputs}
    concats = {op.outputs[0]: op for op in ops if op.head.op_type == "Concat" and len(op.nodes) == 1}
    # In nested Concats the outermost decides for all.
    inner = {name for op in concats.values() if len(op.head.input) > 1 for name in op.inputs}
    pending = [
        op for name, op in concats.items() if name not in inner and len(op.head.input) > 1 and not fits_uint8(graph, op)
    ]
    while pending:
        op = pending.pop()
        if fits_uint8(graph, op, aligned=True):
            # Aligned inputs fit; only the reading convolution uses INT16.
            names.update(op.outputs if op.outputs[0] in read else ())
            continue
        pending.extend(concats[name] for name in op.inputs if name in concats and name not in names)
        aligned = [name for name in op.inputs if _channels(graph, name) % 8 == 0]
        names.update([*op.outputs, *aligned, *(_unflattened(graph, name) for name in aligned)])
    return names


def looked_up(op: Operator) -> NodeProto | None:
    """Return the node that looks up the operator's stored input in a table, possibly after a pool.

    A pool keeps the scale.
    """
    head = op.nodes[1] if op.head.op_type in POOLED and len(op.nodes) > 1 else op.head
    return head if head.op_type in TABLES else None


def _before_channels_last(graph: Graph, name: str = "") -> list[str]:
    """Return the input of a Transpose to channels last, which moves nothing: the hardware stores maps that way."""
    node = graph.producer.get(name)
    moved = node is not None and node.op_type == "Transpose" and list(attribute(node, "perm", ())) == [0, 2, 3, 1]
    return [node.input[0]] if node is not None and moved else []


def is_interpolation(node: NodeProto) -> bool:
    """Return whether the node is a Resize that interpolates."""
    return node.op_type in UPSAMPLERS and not is_nearest(node)


def is_average(graph: Graph, node: NodeProto) -> bool:
    """Return whether the node averages: a pool, or the mean over both spatial axes, which the SDK computes alike."""
    if node.op_type in AVERAGE_POOLS:
        return True
    shape = graph.shapes.get(node.input[0], ()) if node.op_type == "ReduceMean" else ()
    return len(shape) == 4 and reduced_axes(graph, node, 4) == (2, 3)


def is_maximum_along(graph: Graph, node: NodeProto) -> bool:
    """Return whether the node is a ReduceMax along known axes, which moves values like a maximum pool."""
    return (
        node.op_type == "ReduceMax" and reduced_axes(graph, node, len(graph.shapes.get(node.input[0], ()))) is not None
    )


def reduced_axes(graph: Graph, node: NodeProto, rank: int) -> tuple[int, ...] | None:
    """Return the axes of a reduction from its attribute or its second input; None if unknown."""
    axes = attribute(node, "axes")
    if axes is None and len(node.input) > 1 and node.input[1]:
        if node.input[1] not in graph.constants:
            return None
        axes = graph.value(node.input[1]).reshape(-1).tolist()
    if not rank:
        return None
    return tuple(range(rank)) if axes is None else tuple(sorted(int(axis) % rank for axis in axes))


def keeps_scale(graph: Graph, node: NodeProto) -> bool:
    """Return whether the output has the scale of the input: averages, interpolations, maxima along an axis."""
    return is_average(graph, node) or is_interpolation(node) or is_maximum_along(graph, node)


def is_threshold(graph: Graph, node: NodeProto) -> bool:
    """Return whether the node is Caffe's Threshold: a comparison with a constant, read only by a Cast to floats."""
    reader = graph.sole_consumer(node.output[0]) if node.op_type in ("Greater", "GreaterOrEqual") else None
    return reader is not None and reader.op_type == "Cast" and node.input[1] in graph.constants


def ends_threshold(graph: Graph, node: NodeProto) -> NodeProto | None:
    """Return the comparison that a Cast turns into a Threshold, or None."""
    made = graph.producer.get(node.input[0]) if node.op_type == "Cast" else None
    return made if made is not None and is_threshold(graph, made) else None


def _averaged(graph: Graph, node: NodeProto) -> int:
    """Return the number of values that an average covers; MOST_UINT8 if a global pool's input has unknown size."""
    if node.op_type == "AveragePool":
        return math.prod(attribute(node, "kernel_shape"))
    lengths = graph.shapes.get(node.input[0], (None, None, None))[2:]
    return MOST_UINT8 if None in lengths else math.prod(length for length in lengths if length is not None)


def fits_uint8(graph: Graph, op: Operator, aligned: bool = False) -> bool:
    """Return whether a Concat can be UINT8.

    Along channels, a Concat of maps fits if each input has a multiple of 16 channels (8 if upsampled). It also fits if
    all inputs but the last have a multiple of 8 and the last, not upsampled, has not. Along rows and columns it fits
    unless the channels are an odd multiple of 8. If an input has no multiple of 8 channels, every Concat fits. The
    exception is a Concat whose first input has none and whose only reader is a convolution: the SDK leaves it to that
    convolution.

    aligned  count channels rounded up to a multiple of 8, as the SDK's converter aligns them.
    """
    names = [name for name in op.head.input if name]
    ranks = {len(graph.shapes.get(name, ())) for name in names}
    channels, axis = [_channels(graph, name) for name in names], attribute(op.head, "axis", 0)
    if ranks == {2}:
        if axis not in (1, -1):
            return True
    elif ranks != {4} or axis in (0, -4):
        return True
    elif axis not in (1, -3):
        return all(channel % 8 != 0 or channel % 16 == 0 for channel in channels)
    units = [8 if _upsampled(graph, name) else 16 for name in names]
    return _fit(channels, units, aligned, _read_by_one_convolution(graph, op))


def _fit(channels: Sequence[int], units: Sequence[int], aligned: bool, alone: bool) -> bool:
    """Return whether maps with these channels fit UINT8 together; ``alone``: only one convolution reads the result."""
    if any(channel % 8 for channel in channels) and not (channels[0] % 8 and alone):
        return True
    channels = [-(-channel // 8) * 8 for channel in channels] if aligned else channels
    return all(channel % unit == 0 for channel, unit in zip(channels, units, strict=True)) or (
        all(channel % 8 == 0 for channel in channels[:-1]) and channels[-1] % 8 != 0 and units[-1] == 16
    )


def _of_unfit_groups(graph: Graph, op: Operator) -> bool:
    """Return whether the operator is a grouped convolution whose parts' Concat cannot be UINT8."""
    node, groups = op.head, attribute(op.head, "group", 1)
    if node.op_type != "Conv" or groups == 1 or node.input[1] not in graph.constants:
        return False
    filters, channels, *_ = graph.constants[node.input[1]].dims
    if filters == groups and channels == 1:
        return False
    return not _fit([filters // groups] * groups, [16] * groups, False, _read_by_one_convolution(graph, op))


def _read_by_one_convolution(graph: Graph, op: Operator) -> bool:
    reader = graph.sole_consumer(op.outputs[0])
    return reader is not None and reader.op_type == "Conv"


def _upsampled(graph: Graph, name: str) -> bool:
    """Return whether the SDK's converter turns the producer of a tensor into a TILE."""
    return name in graph.producer and (graph.producer[name].op_type == "Tile" or is_nearest(graph.producer[name]))


def _channels(graph: Graph, name: str) -> int:
    """Return the number of channels of a tensor; 0 if unknown.

    If a map is flattened before a Concat, the SDK uses the length of its last axis.
    """
    shape = graph.shapes.get(name, ())
    maps = graph.shapes.get(_unflattened(graph, name), ())
    if len(shape) == 2 and len(maps) == 4 and set(maps[2:]) != {1}:
        return maps[3] or 0
    return shape[1] or 0 if len(shape) > 1 else 0


def _unflattened(graph: Graph, name: str) -> str:
    """Return the tensor that a two-dimensional one was flattened from, or the tensor itself."""
    while len(graph.shapes.get(name, ())) == 2 and name in graph.producer:
        node = graph.producer[name]
        if node.op_type not in FLATTENING:
            break
        name = node.input[0]
    return name


def is_nearest(node: NodeProto) -> bool:
    return node.op_type in UPSAMPLERS and attribute(node, "mode", b"nearest") == b"nearest"
