"""What each tensor of a graph is made from, and where to cut out the model that makes some of them."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import TYPE_CHECKING

from sgsdump.models.graph import needs, sorted_nodes, weight_names
from sgsdump.models.passes.extract import Extractor

if TYPE_CHECKING:
    import onnx


class Lineage:
    """A graph seen from its tensors backwards. Raises ModelError when its nodes cannot be sorted."""

    def __init__(self, proto: onnx.ModelProto):
        self.proto = proto
        self.nodes = sorted_nodes(proto.graph)
        self.maker = {name: index for index, node in enumerate(self.nodes) for name in node.output if name}
        self.weights = weight_names(proto.graph)
        self.needs = [needs(node) for node in self.nodes]
        self.is_constant = [node.op_type == "Constant" for node in self.nodes]

    @cached_property
    def extractor(self) -> Extractor:
        return Extractor(self.proto)

    def cone(self, names: Collection[str]) -> set[int]:
        """Indices of all nodes that lead to these tensors."""
        return self._back(names, frozenset(), len(self.nodes))[0]

    def reads(self, asks: Collection[str], known: Collection[str], whole: int) -> tuple[str, ...]:
        """Where to cut the model that makes ``asks``: the tensors it reads, sorted.

        known  tensors whose values are at hand; graph inputs among them.
        whole  nodes that must stay in the model, counted from ``asks`` outwards.
        """
        reads, met = self._back(asks, known, whole)
        return tuple(sorted(n for n in met if self.maker.get(n, -1) not in reads and n not in self.weights))

    def _back(self, names: Collection[str], known: Collection[str], whole: int) -> tuple[set[int], set[str]]:
        """The nodes met on the way back, ring by ring, and every tensor they need."""
        nodes: set[int] = set()
        met: set[str] = set()
        ring = {self.maker[name] for name in names}
        counted = 0
        while ring:
            nodes |= ring
            counted += sum(not self.is_constant[index] for index in ring)
            fresh = set().union(*(self.needs[index] for index in ring))
            met |= fresh
            if counted >= whole:
                fresh = {name for name in met if name not in known}
            ring = {self.maker[name] for name in fresh if name in self.maker} - nodes
        return nodes, met
