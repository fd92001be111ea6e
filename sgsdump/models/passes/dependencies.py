"""Which nodes some tensors need, asked many times of one graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from sgsdump.errors import ModelError
from sgsdump.models.graph import needs

if TYPE_CHECKING:
    import onnx


class Dependencies:
    """An index over nodes, which are known by their place in the list.

    producer  the node that makes a tensor.
    makes     the tensors that a node makes.
    needs     the tensors that a node needs, those that only its bodies capture among them.

    Raises ModelError when two nodes make the same tensor.
    """

    def __init__(self, nodes: Sequence[onnx.NodeProto]):
        self._nodes = nodes
        self.producer: dict[str, int] = {}
        self.makes = [tuple(filter(None, node.output)) for node in nodes]
        for index, makes in enumerate(self.makes):
            for name in makes:
                if name in self.producer:
                    raise ModelError(f"two nodes of the model make the tensor {name!r}; no sub-model can be cut out")
                self.producer[name] = index
        self.needs: list[set[str]] = [needs(node) for node in nodes]

    def reads(self, index: int) -> list[str]:
        """What a node needs, its own inputs first and in order."""
        own = [name for name in dict.fromkeys(self._nodes[index].input) if name]
        return [*own, *sorted(self.needs[index].difference(own))]

    def of(self, outputs: Iterable[str], cut: set[str]) -> tuple[list[int], set[str]]:
        """The nodes that the outputs need where the graph is cut, in an order in which they can run, and every tensor
        they meet."""
        producer, indices = self.producer, set[int]()
        used = set(outputs)
        pending = [name for name in used if name not in cut]
        while pending:
            index = producer.get(pending.pop())
            if index is None or index in indices:
                continue
            indices.add(index)
            pending += self.needs[index] - used - cut
            used |= self.needs[index]
        used.update(name for index in indices for name in self.makes[index])
        return sorted(indices, key=self.rank.__getitem__), used

    @cached_property
    def rank(self) -> list[int]:
        """Each node's place in an order in which they can run: the file's own, where that is one."""
        order: dict[int, int] = {}
        for start in range(len(self._nodes)):
            path = [start]
            while path:
                index = path[-1]
                sources = {self.producer[name] for name in self.needs[index] if name in self.producer}
                waits = [source for source in sources if source not in order]
                if index in order or not waits:
                    order.setdefault(index, len(order))
                    path.pop()
                elif len(path) > len(self._nodes):
                    raise ModelError("the model's graph has a cycle; no sub-model can be cut out")
                else:
                    path.append(min(waits))
        return [order[index] for index in range(len(self._nodes))]
