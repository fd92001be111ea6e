"""Put a model's own functions in the places where they are called, so that the tensors inside can be dumped.

A run-time does the same before it runs a model; the values are those of the model as it was. Inner tensors are numbered
(``sum__1``, ``sum__2`` for the second call), so are the nodes; the calls' own outputs keep their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from sgsdump.models.graph import bodies

if TYPE_CHECKING:
    from onnx import FunctionProto, ModelProto, NodeProto

# Functions that call functions that call functions: a small file may stand for more nodes than any memory holds.
MOST_NODES = 1_000_000

_Key = tuple[str, str, str]


def inline_functions(proto: ModelProto) -> ModelProto:
    """The model without calls of its own functions; ``proto`` itself when it has none.

    Functions stay that cannot be put in place: those written for another opset than the model's; all of them when one
    calls itself, when they stand for more than MOST_NODES nodes, or when onnx refuses.
    """
    if not proto.functions or not _is_finite(proto):
        return proto
    from onnx import inliner

    try:
        return inliner.inline_local_functions(proto)
    except Exception:  # it raises whatever its C++ throws; a run-time then says what is wrong with the function
        return proto


def _is_finite(proto: ModelProto) -> bool:
    """Whether the functions end, in at most MOST_NODES nodes for the whole model."""
    functions = {_key(function): function for function in proto.functions}
    sizes: dict[_Key, int] = {}
    for start in functions:
        path = [start]
        while path:
            inside = list(_nodes(functions[path[-1]].node))
            calls = [key for key in map(_call, inside) if key in functions]
            waits = [key for key in calls if key not in sizes]
            if any(key in path for key in waits):
                return False
            if waits:
                path.append(waits[0])
                continue
            sizes[path.pop()] = len(inside) + sum(sizes[key] for key in calls)
    return sum(1 + sizes.get(_call(node), 0) for node in _nodes(proto.graph.node)) <= MOST_NODES


def _nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Nodes and those inside their bodies."""
    for node in nodes:
        yield node
        for body in bodies(node):
            yield from _nodes(body.node)


def _key(function: FunctionProto) -> _Key:
    return function.domain, function.name, function.overload


def _call(node: NodeProto) -> _Key:
    return node.domain, node.op_type, node.overload
