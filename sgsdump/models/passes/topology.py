"""Which nodes depend on which: what a node reads, bodies included, and an order in which the nodes can run."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sgsdump.errors import ModelError
from sgsdump.models.graph import bodies, needs
from sgsdump.models.model import weight_names

if TYPE_CHECKING:
    import onnx


def called(node: onnx.NodeProto) -> str:
    """How messages speak of a node: ``node 'conv1' (Conv)``; nodes without a name are known by their first output."""
    operator = f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
    if node.name:
        return f"node {node.name!r} ({operator})"
    return f"the {operator} node that makes {next(filter(None, node.output), 'nothing')!r}"


def inner_tensors(node: onnx.NodeProto) -> Iterator[str]:
    """Names of the tensors made inside a node's bodies, at any depth; they cannot be put out."""
    for body in bodies(node):
        for inner in body.node:
            yield from filter(None, inner.output)
            yield from inner_tensors(inner)


def sorted_nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes in an order in which they can run; the file's own order wherever that is possible.

    Raises ModelError when the graph has a cycle, a tensor made twice, or a tensor that nothing makes.
    """
    given = weight_names(graph) | {info.name for info in graph.input}
    makers = _makers(graph, given)
    waits: list[int] = []
    users: dict[int, list[int]] = {}
    for index, node in enumerate(graph.node):
        sources = set()
        for name in needs(node) - given:
            if name not in makers:
                raise ModelError(f"{called(node)} needs the tensor {name!r}, which nothing in the model makes")
            sources.add(makers[name])
        waits.append(len(sources))
        for source in sources:
            users.setdefault(source, []).append(index)
    order = _ready_first(waits, users)
    if len(order) < len(graph.node):
        stuck = min(set(range(len(graph.node))) - set(order))
        raise ModelError(f"the model's graph has a cycle: {called(graph.node[stuck])} waits for its own result")
    return [graph.node[index] for index in order]


def _makers(graph: onnx.GraphProto, given: set[str]) -> dict[str, int]:
    makers: dict[str, int] = {}
    for index, node in enumerate(graph.node):
        for name in filter(None, node.output):
            if name in given:
                raise ModelError(f"{called(node)} makes the tensor {name!r}, which is an input or weight already")
            if name in makers:
                raise ModelError(f"two nodes of the model make the tensor {name!r}; {called(node)} is the second")
            makers[name] = index
    return makers


def _ready_first(waits: list[int], users: dict[int, list[int]]) -> list[int]:
    """Kahn's algorithm with a heap: among the nodes that can run, the one that stands first in the file."""
    waits = list(waits)
    ready = [index for index, count in enumerate(waits) if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for user in users.get(index, ()):
            waits[user] -= 1
            if waits[user] == 0:
                heapq.heappush(ready, user)
    return order
