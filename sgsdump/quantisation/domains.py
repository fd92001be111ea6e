"""Quantisation domains: tensors that share one type and one range, because operators only move values between them.

What depends on the graph alone is analysed here once; ``quant_plan`` decides on it many times.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sgsdump.models.graph import REARRANGING, Graph, attribute
from sgsdump.quantisation.fusion import Operator, is_convolution, operators

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

MOVERS = REARRANGING | {
    *("MaxPool", "GlobalMaxPool", "Dropout"),
    *("Concat", "Slice", "Split", "Gather", "DepthToSpace", "SpaceToDepth", "Expand", "Tile"),
}
# They copy values where mode is "nearest" (the default), and compute new ones where it is not.
UPSAMPLERS = ("Resize", "Upsample")
AVERAGE_POOLS = ("AveragePool", "GlobalAveragePool")
# An average of so many values, or more, is computed of INT16: fewer bytes' sum has 16 bits.
MOST_UINT8 = 256


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


def analyse(proto: ModelProto, pictures: Iterable[str] = (), fuse: bool = True) -> Analysis:
    """Operators and domains of a float model whose nodes are in topological order."""
    graph = Graph(proto)
    ops = tuple(operators(graph, fuse))
    first_inputs: dict[str, tuple[NodeProto, ...]] = {}
    for node in graph.nodes:
        if is_convolution(graph, node):
            first_inputs[node.input[0]] = (*first_inputs.get(node.input[0], ()), node)
    pictures, forced = frozenset(pictures), _always_int16(graph, ops, first_inputs)
    domain = _domains(graph, ops, {*pictures, *first_inputs}, forced)
    return Analysis(graph, ops, domain, first_inputs, pictures, forced)


def moves_values(op: Operator) -> bool:
    """Whether an operator other than Concat only moves its first input's values."""
    return (
        (op.head.op_type in MOVERS or _is_nearest(op.head))
        and len(op.nodes) == 1
        and op.inputs[:1] == tuple(op.head.input[:1])
    )


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
    """The graph's outputs, what a sigmoid puts out, what an average pool of 256 values or more reads and puts out, and
    every Concat that cannot be UINT8. ``read``: what convolutions read."""
    names: set[str] = set(graph.outputs)
    for op in ops:
        if op.last.op_type == "Sigmoid":
            names.update(op.outputs[:1])
        elif op.head.op_type in AVERAGE_POOLS and _averaged(graph, op.head) >= MOST_UINT8:
            names.update([*op.inputs[:1], *op.outputs[:1]])
    made = {op.outputs[0]: op for op in ops if op.head.op_type == "Concat" and len(op.nodes) == 1}
    # Of Concats of Concats the last one decides for all.
    inner = {name for op in made.values() if len(op.inputs) > 1 for name in op.inputs}
    pending = [
        op for name, op in made.items() if name not in inner and len(op.inputs) > 1 and not _fits_uint8(graph, op)
    ]
    while pending:
        op = pending.pop()
        if _fits_uint8(graph, op, aligned=True):
            # Once aligned its inputs fit; only the convolution that reads it takes INT16.
            names.update(op.outputs if op.outputs[0] in read else ())
            continue
        pending.extend(made[name] for name in op.inputs if name in made and name not in names)
        names.update([*op.outputs, *(name for name in op.inputs if _channels(graph, name) % 8 == 0)])
    return frozenset(names)


def _averaged(graph: Graph, node: NodeProto) -> int:
    """How many values an average pool takes together; of a global one whose input's size is not known, too many."""
    if node.op_type == "AveragePool":
        return math.prod(attribute(node, "kernel_shape"))
    lengths = graph.shapes.get(node.input[0], (None, None, None))[2:]
    return MOST_UINT8 if None in lengths else math.prod(length for length in lengths if length is not None)


def _fits_uint8(graph: Graph, op: Operator, aligned: bool = False) -> bool:
    """Whether a Concat can be UINT8: of maps along the channels it can where each input has a multiple of 16 channels
    (of 8 where it is upsampled), or all but the last one have a multiple of 8 and the last one, not upsampled, has not.

    aligned  as the SDK's converter aligns them: up to a multiple of 8 channels.
    """
    shapes = [graph.shapes.get(name, ()) for name in op.head.input if name]
    if any(len(shape) != 4 for shape in shapes) or attribute(op.head, "axis", 0) not in (1, -3):
        return True
    channels = [_channels(graph, name) for name in op.head.input if name]
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
            for index in range(len(names)):
                domain.join(names[index:])
        elif moves_values(op) or (op.head.op_type in AVERAGE_POOLS and len(op.nodes) == 1):
            # Second outputs are indices or masks, but a Split's are further pieces.
            domain.join([op.inputs[0], *(op.outputs if op.head.op_type == "Split" else op.outputs[:1])])
    return domain
