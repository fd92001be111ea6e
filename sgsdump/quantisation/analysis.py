"""Operators of the fixed model, and quantisation domains: what a float model's graph alone says. ``quant_plan`` decides
on it many times.

Operators: which ONNX nodes the hardware computes as one, with one requantisation at the end. What works element by
element joins a convolution, a pool or its like before it, so the tensors between them are never stored, unless it is
laid over a larger tensor. A fully connected operator takes none:
the SDK makes it a convolution between two reshapes; nor does a convolution with groups, which it makes as many
convolutions between a Split and a Concat. With ``fuse=False`` (disableDomainFuseOps) only the activation stays inside
its convolution, as in the SDK, and every other tensor stays visible. Source: docs/formats/sigmastar.md#the-fixed-model,
checked against the SDK's own dumps.

Domains: tensors that share one type and one range, because operators only move values between them.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.models.graph import REARRANGING, Graph, attribute

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

CONVOLUTIONS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
POOLS = ("MaxPool", "AveragePool")
ACTIVATIONS = ("Relu", "Clip", "LeakyRelu", "PRelu")
FUNCTIONS = ("Sigmoid", "Tanh")
# What is looked up in a table of 16-bit values, and put out as one.
TABLES = ("Sigmoid", "Softmax", "LogSoftmax")
ARITHMETIC = ("Add", "Sub", "Mul", "Max")
# What joins the operator before it, element by element.
ELEMENTWISE = frozenset((*ACTIVATIONS, *FUNCTIONS, *ARITHMETIC, "Exp", "Abs"))
SDK_NAMES = {
    "Conv": "CONV_2D",
    "ConvTranspose": "TRANSPOSE_CONV",
    "Gemm": "FULLY_CONNECTED",
    "MatMul": "FULLY_CONNECTED",
    "MaxPool": "MAX_POOL_2D",
    "AveragePool": "AVERAGE_POOL_2D",
    "GlobalAveragePool": "AVERAGE_POOL_2D",
    "Concat": "CONCATENATION",
    "Sigmoid": "LOGISTIC",
    "Flatten": "RESHAPE",
    "Unsqueeze": "RESHAPE",
    "BatchNormalization": "BATCH_NORM",
    "ReduceMean": "MEAN",
    "LeakyRelu": "LEAKY_RELU",
    "Clip": "RELU6",
}
MOVERS = REARRANGING | {
    *("MaxPool", "GlobalMaxPool", "Dropout"),
    *("Concat", "Slice", "Split", "Gather", "DepthToSpace", "SpaceToDepth", "Expand", "Tile"),
}
# They copy values where mode is "nearest" (the default), and compute new ones where it is not.
UPSAMPLERS = ("Resize", "Upsample")
AVERAGE_POOLS = ("AveragePool", "GlobalAveragePool")
# What keeps the scale of its input, in a chain as well.
POOLED = (*POOLS, "GlobalMaxPool", "GlobalAveragePool")
# What others join: see ``operators``.
HEADS = ELEMENTWISE | {"Conv", "ConvTranspose", "MaxPool", "GlobalMaxPool", *AVERAGE_POOLS}
# An average of so many values, or more, is computed of INT16: fewer bytes' sum has 16 bits.
MOST_UINT8 = 256


@dataclass(frozen=True, eq=False)
class Operator:
    """Nodes computed as one; ``inputs`` are the variable tensors read from outside, ``outputs`` those stored."""

    nodes: tuple[NodeProto, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def head(self) -> NodeProto:
        return self.nodes[0]

    @property
    def last(self) -> NodeProto:
        return self.nodes[-1]


def operators(graph: Graph, fuse: bool | None) -> list[Operator]:
    """The model's operators in execution order; the nodes must be in topological order.

    fuse None: every node is its own operator (the float model). False, True: see above.
    """
    order = {id(node): index for index, node in enumerate(graph.nodes)}
    taken: set[int] = set()
    operators = []
    for node in graph.nodes:
        if id(node) in taken:
            continue
        chain = [node]
        while fuse is not None and (following := _follower(graph, chain, order, fuse)) is not None:
            chain.append(following)
        taken.update(id(member) for member in chain)
        operators.append(_operator(graph, chain))
    return sorted(operators, key=lambda operator: order[id(operator.last)])


@dataclass(frozen=True, eq=False)
class Analysis:
    """The part of a plan that depends on the graph alone: analysed once, decided on many times.

    domain        tensor name -> its domain's representative.
    first_inputs  first input tensor -> the convolutions that read it: the names ``tensor_arrays`` may hold.
    pictures      graph inputs that are pictures (always UINT8).
    forced        tensors that are INT16 whatever reads them.
    """

    graph: Graph
    operators: tuple[Operator, ...]
    domain: Mapping[str, str]
    first_inputs: Mapping[str, tuple[NodeProto, ...]]
    pictures: frozenset[str]
    forced: frozenset[str] = frozenset()

    @property
    def stored(self) -> list[str]:
        """Tensors the hardware keeps: the graph's inputs and every operator's outputs."""
        return [*self.graph.inputs, *(name for op in self.operators for name in op.outputs)]

    @property
    def picture_domains(self) -> set[str]:
        return {self.domain[name] for name in self.pictures}

    @property
    def forced_domains(self) -> set[str]:
        """Of tensors that are INT16 whatever reads them, but for what shares a picture's domain."""
        return {self.domain[name] for name in self.forced} - self.picture_domains


def analyse(proto: ModelProto, pictures: Iterable[str] | None = None, fuse: bool = True) -> Analysis:
    """Operators and domains of a float model whose nodes are in topological order.

    pictures  inputs that are UINT8; all others are INT16, but where None is given as if it were not known.
    """
    graph = Graph(proto)
    ops = tuple(operators(graph, fuse))
    first_inputs: dict[str, tuple[NodeProto, ...]] = {}
    for node in graph.nodes:
        if is_convolution(graph, node):
            first_inputs[node.input[0]] = (*first_inputs.get(node.input[0], ()), node)
    raw, pictures = pictures is not None, frozenset(pictures or ())
    forced = _always_int16(graph, ops, first_inputs)
    if raw:
        forced |= set(graph.inputs)  # values as they are, in 16 bits
    forced -= pictures
    domain = _domains(graph, ops, {*pictures, *first_inputs}, forced)
    return Analysis(graph, ops, domain, first_inputs, pictures, forced)


def moves_values(op: Operator) -> bool:
    """Whether an operator, other than Concat, only moves its first input's values."""
    return (
        (op.head.op_type in MOVERS - {"Concat"} or _is_nearest(op.head))
        and len(op.nodes) == 1
        and op.inputs[:1] == tuple(op.head.input[:1])
    )


def keeps_scale(graph: Graph, node: NodeProto) -> bool:
    """Whether what is computed has its input's scale: averages, interpolations, maxima along an axis."""
    return is_average(graph, node) or is_interpolation(node) or is_maximum_along(graph, node)


def is_convolution(graph: Graph, node: NodeProto) -> bool:
    """A convolution or fully connected operator with constant weights: what 8 or 16 bits are chosen for."""
    if node.op_type not in CONVOLUTIONS or len(node.input) < 2:
        return False
    return node.input[0] not in graph.constants and node.input[1] in graph.constants


def is_depthwise(graph: Graph, node: NodeProto) -> bool:
    """A Conv whose groups are its input channels and its output channels; with several outputs for each input it is one
    with groups, as any other."""
    if node.op_type != "Conv" or not is_convolution(graph, node):
        return False
    outputs, inputs, *_ = graph.constants[node.input[1]].dims
    return 1 < attribute(node, "group", 1) == outputs and inputs == 1


def is_grouped(graph: Graph, node: NodeProto) -> bool:
    """A Conv with groups that is not depthwise."""
    return node.op_type == "Conv" and attribute(node, "group", 1) > 1 and not is_depthwise(graph, node)


def output_axis(graph: Graph, node: NodeProto) -> int:
    """Where a weight's output channels lie: axis 0 for Conv and Gemm transB=1, 1 for ConvTranspose, last for MatMul."""
    if node.op_type == "Conv" or (node.op_type == "Gemm" and attribute(node, "transB", 0)):
        return 0
    return 1 if node.op_type == "ConvTranspose" else len(graph.constants[node.input[1]].dims) - 1


def output_rows(graph: Graph, node: NodeProto) -> np.ndarray:
    """A convolution's weights as float64 [output channels, weights of each]."""
    weight = graph.value(node.input[1]).astype(np.float64)
    axis = output_axis(graph, node)
    return np.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1)


def sdk_name(graph: Graph, node: NodeProto) -> str:
    """The operator type as the SDK prints it, e.g. CONV_2D; other ONNX names in upper case."""
    if is_depthwise(graph, node):
        return "DEPTHWISE_CONV_2D"
    return SDK_NAMES.get(node.op_type, node.op_type.upper())


def _follower(graph: Graph, chain: list[NodeProto], order: dict[int, int], fuse: bool) -> NodeProto | None:
    """The node that joins a chain: the only reader of what it puts out, when all else that it reads is there."""
    head, last = chain[0].op_type, chain[-1]
    following = graph.sole_consumer(last.output[0]) if len(last.output) == 1 and not is_grouped(graph, last) else None
    if following is None or len(following.output) != 1 or following.op_type not in ELEMENTWISE:
        return None
    others = [name for name in graph.variables(following) if name != last.output[0]]
    if not fuse:
        spatial = last.op_type in ("Conv", "ConvTranspose")
        return following if following.op_type in ACTIVATIONS and spatial and not others else None
    ready = all(name not in graph.producer or order[id(graph.producer[name])] < order[id(last)] for name in others)
    spread = _spreads(graph, last.output[0], following.output[0])
    return following if head in HEADS and ready and not spread else None


def _spreads(graph: Graph, source: str, output: str) -> bool:
    """Whether a tensor is laid over a larger one."""
    before, after = graph.shapes.get(source), graph.shapes.get(output)
    return before is not None and after is not None and None not in (*before, *after) and before != after


def _operator(graph: Graph, chain: list[NodeProto]) -> Operator:
    inner = {name for node in chain[:-1] for name in node.output}
    inputs = [name for node in chain for name in graph.variables(node) if name not in inner]
    outputs = [name for name in chain[-1].output if name]
    return Operator(tuple(chain), tuple(dict.fromkeys(inputs)), tuple(outputs))


def _is_nearest(node: NodeProto) -> bool:
    return node.op_type in UPSAMPLERS and attribute(node, "mode", b"nearest") == b"nearest"


class _Domains(dict):
    """Union-find over tensor names; ``self[name]`` is the domain's representative. ``wide``: whether a tensor whose
    type is settled is INT16."""

    def __init__(self, wide: Mapping[str, bool]) -> None:
        super().__init__()
        self._wide = dict(wide)

    def __missing__(self, name: str) -> str:
        return name

    def agree(self, a: str, b: str) -> bool:
        """Whether two tensors can share a type: they have the same, or one of them has none yet."""
        types = {self._wide.get(self[name]) for name in (a, b)} - {None}
        return len(types) < 2

    def join(self, names: Iterable[str]) -> None:
        """One domain of the first name's and of those that agree with it."""
        first, *others = names
        for name in others:
            if self[name] == self[first] or not self.agree(first, name):
                continue
            root, gone = self[first], self[name]
            wide = self._wide.get(root, self._wide.get(gone))
            for member in [*self, first, name]:
                if self[member] in (root, gone):
                    self[member] = root
            if wide is not None:
                self._wide[root] = wide


def _always_int16(graph: Graph, ops: Sequence[Operator], read: Container[str]) -> frozenset[str]:
    """The graph's outputs; what a table is looked up with (a sigmoid's or a softmax's input) and what it gives; what
    an average of 256 values or more and a bilinear Resize read and put out; every Concat that cannot be UINT8.

    read  what convolutions read.
    """
    names: set[str] = set(graph.outputs)
    for op in ops:
        if op.last.op_type in TABLES:
            names.update(op.outputs[:1])
        if looked_up(op) or is_interpolation(op.head):
            names.update(op.inputs[:1])
        if is_interpolation(op.head) and len(op.nodes) == 1:
            names.update(op.outputs[:1])
        if is_average(graph, op.head) and _averaged(graph, op.head) >= MOST_UINT8:
            names.update([*op.inputs[:1], *op.outputs[:1]])
    concats = {op.outputs[0]: op for op in ops if op.head.op_type == "Concat" and len(op.nodes) == 1}
    # Of Concats of Concats the last one decides for all.
    inner = {name for op in concats.values() if len(op.head.input) > 1 for name in op.inputs}
    pending = [
        op
        for name, op in concats.items()
        if name not in inner and len(op.head.input) > 1 and not _fits_uint8(graph, op)
    ]
    while pending:
        op = pending.pop()
        if _fits_uint8(graph, op, aligned=True):
            # Once aligned its inputs fit; only the convolution that reads it takes INT16.
            names.update(op.outputs if op.outputs[0] in read else ())
            continue
        pending.extend(concats[name] for name in op.inputs if name in concats and name not in names)
        names.update([*op.outputs, *(name for name in op.inputs if _channels(graph, name) % 8 == 0)])
    return frozenset(names)


def looked_up(op: Operator) -> NodeProto | None:
    """The node that looks an operator's stored input up in a table, perhaps after a pool, which keeps its scale."""
    head = op.nodes[1] if op.head.op_type in POOLED and len(op.nodes) > 1 else op.head
    return head if head.op_type in TABLES else None


def is_interpolation(node: NodeProto) -> bool:
    """A Resize that computes new values."""
    return node.op_type in UPSAMPLERS and not _is_nearest(node)


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


def _averaged(graph: Graph, node: NodeProto) -> int:
    """How many values an average takes together; of a global one whose input's size is not known, too many."""
    if node.op_type == "AveragePool":
        return math.prod(attribute(node, "kernel_shape"))
    lengths = graph.shapes.get(node.input[0], (None, None, None))[2:]
    return MOST_UINT8 if None in lengths else math.prod(length for length in lengths if length is not None)


def _fits_uint8(graph: Graph, op: Operator, aligned: bool = False) -> bool:
    """Whether a Concat can be UINT8: of maps along the channels it can where each input has a multiple of 16 channels
    (of 8 where it is upsampled), or all but the last one have a multiple of 8 and the last one, not upsampled, has not;
    along rows and columns it can unless they have an odd multiple of 8.

    aligned  as the SDK's converter aligns them: up to a multiple of 8 channels.
    """
    shapes = [graph.shapes.get(name, ()) for name in op.head.input if name]
    if any(len(shape) != 4 for shape in shapes) or attribute(op.head, "axis", 0) in (0, -4):
        return True
    channels = [_channels(graph, name) for name in op.head.input if name]
    if attribute(op.head, "axis", 0) not in (1, -3):
        return all(channel % 8 != 0 or channel % 16 == 0 for channel in channels)
    channels = [-(-channel // 8) * 8 for channel in channels] if aligned else channels
    units = [8 if _upsampled(graph, name) else 16 for name in op.head.input if name]
    return all(channel % unit == 0 for channel, unit in zip(channels, units, strict=True)) or (
        all(channel % 8 == 0 for channel in channels[:-1]) and channels[-1] % 8 != 0 and units[-1] == 16
    )


def _upsampled(graph: Graph, name: str) -> bool:
    """Whether a tensor is what the SDK's converter makes a TILE of."""
    return name in graph.producer and (graph.producer[name].op_type == "Tile" or _is_nearest(graph.producer[name]))


def _channels(graph: Graph, name: str) -> int:
    """How many channels a tensor has; 0 where that is not known."""
    shape = graph.shapes.get(name, ())
    return shape[1] or 0 if len(shape) > 1 else 0


def _domains(graph: Graph, ops: Iterable[Operator], narrow: Iterable[str], forced: frozenset[str]) -> _Domains:
    """Operators in the order in which they run join what they read to what they put out, where neither has the other
    type already; where they differ, values are requantised in between (the SDK's converter inserts a MUL there).

    narrow  tensors that are UINT8 unless ``forced``: pictures, and what convolutions read.
    """
    domain = _Domains({**dict.fromkeys(narrow, False), **dict.fromkeys(forced, True)})
    for op in ops:
        if op.head.op_type in ("Concat", "Max", "Min") and len(op.nodes) == 1:
            names = [*op.outputs, *op.inputs]
            if op.outputs[0] in forced and _fits_uint8(graph, op, aligned=True):
                # It can be put together as its inputs are, and be requantised after that.
                names = [*op.inputs, *op.outputs]
            domain.join(names)
        elif moves_values(op) or (keeps_scale(graph, op.head) and len(op.nodes) == 1):
            # Second outputs are indices or masks, but a Split's are further pieces, and one that is UINT8 decides.
            pieces = [name for name in op.outputs if name] if op.head.op_type == "Split" else op.outputs[:1]
            domain.join([op.inputs[0], *sorted(pieces, key=lambda name: name in forced)])
    return domain
