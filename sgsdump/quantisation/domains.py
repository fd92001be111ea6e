"""Quantisation domains: tensors that share one type and one range, because operators only move values between them.

What depends on the graph alone is analysed here once; ``quant_plan`` decides on it many times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
GLOBAL_POOLS = ("GlobalAveragePool", "GlobalMaxPool")


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
    forced = _always_int16(ops)
    return Analysis(graph, ops, _domains(ops, forced), first_inputs, frozenset(pictures), forced)


def moves_values(op: Operator) -> bool:
    """Whether an operator other than Concat only moves its first input's values."""
    nearest = op.head.op_type in UPSAMPLERS and attribute(op.head, "mode", b"nearest") == b"nearest"
    return (op.head.op_type in MOVERS or nearest) and len(op.nodes) == 1 and op.inputs[:1] == tuple(op.head.input[:1])


class _Domains(dict):
    """Union-find over tensor names; ``self[name]`` is the domain's representative."""

    def __missing__(self, name: str) -> str:
        return name

    def join(self, names: list[str]) -> None:
        roots = {self[name] for name in names}
        root = self[names[0]]
        for name in [*self, *names]:
            if self[name] in roots:
                self[name] = root


def _always_int16(ops: Iterable[Operator]) -> frozenset[str]:
    """What a sigmoid puts out, and what global pools read and put out."""
    names: set[str] = set()
    for op in ops:
        if op.last.op_type == "Sigmoid":
            names.update(op.outputs[:1])
        elif op.head.op_type in GLOBAL_POOLS:
            names.update([*op.inputs[:1], *op.outputs[:1]])
    return frozenset(names)


def _domains(ops: Iterable[Operator], forced: frozenset[str]) -> _Domains:
    """A mover of a tensor that is always INT16 begins a domain of its own: its values are requantised where they go on
    to a convolution (the SDK's converter inserts a MUL there)."""
    domain = _Domains()
    for op in ops:
        if op.head.op_type in ("Concat", "Max", "Min") and len(op.nodes) == 1:
            domain.join([*op.outputs, *op.inputs])
        elif moves_values(op) and (op.inputs[0] not in forced or op.head.op_type in GLOBAL_POOLS):
            # Second outputs are indices or masks, but a Split's are further pieces.
            domain.join([op.inputs[0], *(op.outputs if op.head.op_type == "Split" else op.outputs[:1])])
    return domain
