"""Which tensors of a model a DumpControl means: operators by name, type, number and pattern, and their sides."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sgsdump.capture.control import DumpControl

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto


@dataclass(frozen=True)
class Selection:
    """tensors  the node outputs that are dumped; feeds: the graph's inputs that are.
    names, types   of the operators there are.
    """

    tensors: frozenset[str]
    feeds: frozenset[str]
    names: frozenset[str]
    types: frozenset[str]


def selection(control: DumpControl, graph: GraphProto, model: str) -> Selection:
    """An operator is known by its node's name and by the names of its outputs; its id counts the nodes as they stand in
    the graph. An input is dumped as the output of the operator that makes it, and once; one that the program feeds is
    dumped where inputs alone, or operators, are asked for: of a whole run it lies beside, as it was fed.
    """
    made = {name for node in graph.node for name in node.output if name}
    given = {info.name for info in graph.input}
    wanted: set[str] = set()
    for number, node in enumerate(graph.node):
        if _is_meant(control, node, number, model):
            if control.mode != "input":
                wanted.update(node.output)
            if control.mode != "output":
                wanted.update(node.input)
    names = frozenset(name for node in graph.node for name in _names(node))
    types = frozenset(node.op_type for node in graph.node)
    feeds = wanted & given if control.mode == "input" or control.ids or _named(control) else set()
    return Selection(frozenset(wanted & made), frozenset(feeds), names, types)


def _is_meant(control: DumpControl, node: NodeProto, number: int, model: str) -> bool:
    if control.ids and str(number) not in control.ids:
        return False
    if not _named(control):
        return True
    names = _names(node)
    if any(
        among in ("", model, model.partition("/")[0]) and (not only or names & set(only))
        for among, only in control.models
    ):
        return True
    if names & set(control.names) or node.op_type.lower().startswith(tuple(map(str.lower, control.prefixes))):
        return True
    return any(re.search(pattern, name) for pattern in control.patterns for name in names)


def _named(control: DumpControl) -> bool:
    return bool(control.names or control.prefixes or control.patterns or control.models)


def _names(node: NodeProto) -> set[str]:
    return {node.name, *node.output} - {""}
