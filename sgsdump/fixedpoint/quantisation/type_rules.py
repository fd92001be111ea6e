"""Which tensors are INT16 whatever reads them: the rules as a table, with the networks of the SDK's that
show them, and as functions.

| operator | neighbourhood | type |
|---|---|---|
| any | an output of the network (zz_outmid) | INT16, also for a convolution that reads it |
| input | RAWDATA, no picture (ox_raw16) | INT16, max |x| / 32767, cut toward zero |
| Sigmoid, Softmax | what they read, perhaps before a pool or a Transpose to channels last (ox_silu, sig_u8) | INT16 |
| Sigmoid, Softmax | what they put out (ox_sigmoid_conv, ox_se) | INT16 |
| Softmax | what reads it (sc2, sc3, sc9) | takes steps of 1 / 32768 for steps of its range |
| average pool, ReduceMean over H and W | of 256 values or more: input and output (zg_16, mean_hw) | INT16 |
| the same | of fewer values (zg_15, mean_hw7) | its input's type and scale |
| Resize | bilinear: input and output (ox_resize_b_asym, zp_resize) | INT16, its input's scale |
| ReduceMax along an axis, nearest Resize, MaxPool, Pad, Split, Reshape, Transpose (ox_rmax_c) | any | its input's |
| Split | a piece that is UINT8 decides; others are requantised after it (w_shuffle, sp8, sp_out) | |
| Concat along C | each input 16n channels, or all but the last 8n and the last not (zc_*, zd_*) | UINT8, else INT16 |
| the same | an input not 8n; but the first is, or no convolution alone reads it (k8_12_8, k12_8_m, d12_8) | UINT8 |
| Concat along H, W | unless the channels are an odd multiple of 8 (ox_concat_hw, hc2_24) | UINT8 |
| Concat of two dimensions | of maps of one pixel and fully connected outputs (pfld2) | as a Concat along C |
| the same | of maps of several pixels laid in a row (fcm_2_6) | UINT8 |
| convolution with groups (gr16) | | as the Concat of its groups' channels |
| Max | its operands share one range with it (ox_maxmin), also as an operator of its own (spmax) | each its own type |
| convolution | reads none of these (every probe) | UINT8 |
| product of other than two dimensions | reads what others compute with, by a move | INT16, requantised for it |
| any | none of all that | INT16 where no neighbour gives it a type |

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
# What keeps the scale of its input, in a chain as well.
POOLED = (*POOLS, "GlobalMaxPool", "GlobalAveragePool")
# They copy values where mode is "nearest" (the default), and compute new ones where it is not.
UPSAMPLERS = ("Resize", "Upsample")
# An average of so many values, or more, is computed of INT16: fewer bytes' sum has 16 bits.
MOST_UINT8 = 256
# What makes two dimensions of maps.
FLATTENING = ("Flatten", "Reshape", "Squeeze")
# What is looked up in a table of 16-bit values, and put out as one.
TABLES = ("Sigmoid", "Softmax", "LogSoftmax")


MOVERS = REARRANGING | {
    *("MaxPool", "GlobalMaxPool", "Dropout"),
    *("Concat", "Slice", "Split", "Gather", "DepthToSpace", "SpaceToDepth", "Expand", "Tile", "Pad"),
}
# What multiplies by a constant or adds one that is spread over a tensor.
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
        """Whether it, other than Concat, only moves its first input's values."""
        return (
            (self.head.op_type in MOVERS - {"Concat"} or is_nearest(self.head))
            and len(self.nodes) == 1
            and self.inputs[:1] == tuple(self.head.input[:1])
        )


OUTPUT, RAW_INPUT = "output of the network", "input of numbers"
PLANNED = "planned in the .sim file"
LOOKED_UP, TABLE = "input of a table", "output of a table"
LARGE_AVERAGE, INTERPOLATED, UNFIT_CONCAT, RESIDUAL = (
    "average of 256 values or more",
    "bilinear Resize",
    "Concat of such channels",
    "computed with beside a product of other than two dimensions",
)


def planned_int16(proto: ModelProto) -> Mapping[str, str] | None:
    """Return the tensors that a .sim file plans as INT16, which the SDK's converter decided by these rules and by the
    input_config.ini that it was given; None for a model of another origin."""
    facts = read_facts(proto)
    if facts is None:
        return None
    return {name: PLANNED for name, dtype in facts.types.items() if dtype == np.int16}


def always_int16(graph: Graph, ops: Sequence[Operator], read: Container[str]) -> Mapping[str, str]:
    """The tensors that are INT16 whatever reads them, each with the rule that says so.

    read  what convolutions read.
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
    """Whether others compute with what an operator puts out, and products of other than two dimensions, but no other
    convolutions, read it through what moves values: as LayerNormalizations and sums of transformers are. The SDK
    refuses such products, so no dump of its shows a type; a fully connected operator reads a copy of its own."""
    name = op.outputs[0]
    readers = graph.consumers.get(name, ())
    ends = [end for reader in readers if reader.op_type in REARRANGING for end in _ends_of(graph, reader, read)]
    computing = any(reader.op_type not in REARRANGING for reader in readers)
    return op.head.op_type not in REARRANGING and computing and bool(ends) and all(ends)


def _ends_of(graph: Graph, mover: NodeProto, read: Container[str]) -> Iterator[bool]:
    """Of each convolution that reads what is moved whether it is a product of other than two dimensions."""
    moved = mover.output[0]
    for reader in graph.consumers.get(moved, ()):
        if reader.op_type in REARRANGING:
            yield from _ends_of(graph, reader, read)
        elif moved in read and moved == reader.input[0] and len(reader.input) > 1:
            yield reader.op_type == "MatMul" and len(graph.shapes.get(moved, (0, 0))) != 2


def _unfit_concats(graph: Graph, ops: Sequence[Operator], read: Container[str]) -> set[str]:
    """Concats that cannot be UINT8, and those of their inputs that need not be aligned."""
    names = {name for op in ops if _of_unfit_groups(graph, op) for name in op.outputs}
    concats = {op.outputs[0]: op for op in ops if op.head.op_type == "Concat" and len(op.nodes) == 1}
    # Of Concats of Concats the last one decides for all.
    inner = {name for op in concats.values() if len(op.head.input) > 1 for name in op.inputs}
    pending = [
        op for name, op in concats.items() if name not in inner and len(op.head.input) > 1 and not fits_uint8(graph, op)
    ]
    while pending:
        op = pending.pop()
        if fits_uint8(graph, op, aligned=True):
            # Once aligned its inputs fit; only the convolution that reads it takes INT16.
            names.update(op.outputs if op.outputs[0] in read else ())
            continue
        pending.extend(concats[name] for name in op.inputs if name in concats and name not in names)
        aligned = [name for name in op.inputs if _channels(graph, name) % 8 == 0]
        names.update([*op.outputs, *aligned, *(_unflattened(graph, name) for name in aligned)])
    return names


def looked_up(op: Operator) -> NodeProto | None:
    """The node that looks an operator's stored input up in a table, perhaps after a pool, which keeps its scale."""
    head = op.nodes[1] if op.head.op_type in POOLED and len(op.nodes) > 1 else op.head
    return head if head.op_type in TABLES else None


def _before_channels_last(graph: Graph, name: str = "") -> list[str]:
    """What a Transpose to channels last is made of: nothing moves there, the hardware keeps maps so already."""
    node = graph.producer.get(name)
    moved = node is not None and node.op_type == "Transpose" and list(attribute(node, "perm", ())) == [0, 2, 3, 1]
    return [node.input[0]] if node is not None and moved else []


def is_interpolation(node: NodeProto) -> bool:
    """A Resize that computes new values."""
    return node.op_type in UPSAMPLERS and not is_nearest(node)


def is_average(graph: Graph, node: NodeProto) -> bool:
    """A pool of averages, or the mean over both spatial axes, which the SDK computes alike."""
    if node.op_type in AVERAGE_POOLS:
        return True
    shape = graph.shapes.get(node.input[0], ()) if node.op_type == "ReduceMean" else ()
    return len(shape) == 4 and reduced_axes(graph, node, 4) == (2, 3)


def is_maximum_along(graph: Graph, node: NodeProto) -> bool:
    """A ReduceMax, which moves values, as a pool of maxima does."""
    return (
        node.op_type == "ReduceMax" and reduced_axes(graph, node, len(graph.shapes.get(node.input[0], ()))) is not None
    )


def reduced_axes(graph: Graph, node: NodeProto, rank: int) -> tuple[int, ...] | None:
    """The axes that a reduction goes over, by its attribute or its second input; None where they are not known."""
    axes = attribute(node, "axes")
    if axes is None and len(node.input) > 1 and node.input[1]:
        if node.input[1] not in graph.constants:
            return None
        axes = graph.value(node.input[1]).reshape(-1).tolist()
    if not rank:
        return None
    return tuple(range(rank)) if axes is None else tuple(sorted(int(axis) % rank for axis in axes))


def keeps_scale(graph: Graph, node: NodeProto) -> bool:
    """Whether what is computed has its input's scale: averages, interpolations, maxima along an axis."""
    return is_average(graph, node) or is_interpolation(node) or is_maximum_along(graph, node)


def is_threshold(graph: Graph, node: NodeProto) -> bool:
    """A comparison with a constant that only a Cast to real numbers reads: Caffe's Threshold."""
    reader = graph.sole_consumer(node.output[0]) if node.op_type in ("Greater", "GreaterOrEqual") else None
    return reader is not None and reader.op_type == "Cast" and node.input[1] in graph.constants


def ends_threshold(graph: Graph, node: NodeProto) -> NodeProto | None:
    """The comparison that a Cast makes a Threshold of."""
    made = graph.producer.get(node.input[0]) if node.op_type == "Cast" else None
    return made if made is not None and is_threshold(graph, made) else None


def _averaged(graph: Graph, node: NodeProto) -> int:
    """How many values an average takes together; of a global one whose input's size is not known, too many."""
    if node.op_type == "AveragePool":
        return math.prod(attribute(node, "kernel_shape"))
    lengths = graph.shapes.get(node.input[0], (None, None, None))[2:]
    return MOST_UINT8 if None in lengths else math.prod(length for length in lengths if length is not None)


def fits_uint8(graph: Graph, op: Operator, aligned: bool = False) -> bool:
    """Whether a Concat can be UINT8: of maps along the channels it can where each input has a multiple of 16 channels
    (of 8 where it is upsampled), or all but the last one have a multiple of 8 and the last one, not upsampled, has not;
    along rows and columns it can unless they have an odd multiple of 8. Where an input has no multiple of 8 all fit,
    unless the SDK leaves the Concat to the only convolution that reads it: there the first input has none.

    aligned  as the SDK's converter aligns them: up to a multiple of 8 channels.
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
    """Whether maps of so many channels each can be put together as UINT8. ``alone``: one convolution alone reads it."""
    if any(channel % 8 for channel in channels) and not (channels[0] % 8 and alone):
        return True
    channels = [-(-channel // 8) * 8 for channel in channels] if aligned else channels
    return all(channel % unit == 0 for channel, unit in zip(channels, units, strict=True)) or (
        all(channel % 8 == 0 for channel in channels[:-1]) and channels[-1] % 8 != 0 and units[-1] == 16
    )


def _of_unfit_groups(graph: Graph, op: Operator) -> bool:
    """Whether an operator is a convolution with groups whose parts' Concat cannot be UINT8."""
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
    """Whether a tensor is what the SDK's converter makes a TILE of."""
    return name in graph.producer and (graph.producer[name].op_type == "Tile" or is_nearest(graph.producer[name]))


def _channels(graph: Graph, name: str) -> int:
    """How many channels a tensor has, or of what is flattened before a Concat how long its last axis is, which for the
    SDK is that of the map; 0 where that is not known."""
    shape = graph.shapes.get(name, ())
    maps = graph.shapes.get(_unflattened(graph, name), ())
    if len(shape) == 2 and len(maps) == 4 and set(maps[2:]) != {1}:
        return maps[3] or 0
    return shape[1] or 0 if len(shape) > 1 else 0


def _unflattened(graph: Graph, name: str) -> str:
    """What a tensor of two dimensions is flattened from, else itself."""
    while len(graph.shapes.get(name, ())) == 2 and name in graph.producer:
        node = graph.producer[name]
        if node.op_type not in FLATTENING:
            break
        name = node.input[0]
    return name


def is_nearest(node: NodeProto) -> bool:
    return node.op_type in UPSAMPLERS and attribute(node, "mode", b"nearest") == b"nearest"
