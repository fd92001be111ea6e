"""Inlining of the branch that an If takes, or of the body of a Loop that runs once.

Tensors in bodies cannot be dumped, quantised or judged, and exporters put whole networks there (a speech detector has
one per sampling rate). The caller determines which branch is taken: ``executors/onnx_runtime/observed_branches.py``
derives it from data.

Outputs of the node keep their names. Inner names are kept too, unless already used in the model; then they are numbered
(``conv__1``), as by onnx's inliner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.errors import listed
from sgsdump.models.graph import MAIN_DOMAINS, all_graphs, attribute, needs, opset_of, reading, weight_names

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

# Reasons to keep a node: its condition differs between feeds; a Loop that does not run once; unknown condition.
DIFFERS, SEVERAL_TIMES, UNKNOWN = "differs", "several times", "unknown"
_WHY = {
    DIFFERS: "different inputs take different branches",
    SEVERAL_TIMES: "its body does not run exactly once",
    UNKNOWN: "its condition could not be computed",
}
MOST = 12
# First opset in which the axes of Unsqueeze are an input.
AXES_ARE_AN_INPUT = 13


@dataclass(frozen=True)
class Choice:
    """A node whose body can be inlined, with the tensors that decide.

    node    the node's name, or its first output if unnamed
    kind    If or Loop
    reads   an If's condition; a Loop's trip count and condition, "" if it has none
    """

    node: str
    kind: str
    reads: tuple[str, ...]

    def taken(self, values: Mapping[str, np.ndarray]) -> str:
        """Return ``then``, ``else`` or ``once`` for these values; "" for a Loop that does not run once."""
        first, *others = [values[name].reshape(-1)[:1] if name else np.ones(1) for name in self.reads]
        if self.kind == "If":
            return "then" if first.all() else "else"
        return "once" if self.reads[0] and first == 1 and all(value.all() for value in others) else ""


@dataclass(frozen=True)
class Branches:
    """Branches that a model takes on the given data.

    taken    replaced nodes in graph order, with the branch
    staying  nodes that stay, with the reason: DIFFERS, SEVERAL_TIMES or UNKNOWN
    feeds    number of feeds examined
    checked  whether the fixed model detects inputs that would take another branch
    """

    taken: Mapping[Choice, str]
    staying: Mapping[Choice, str]
    feeds: int
    checked: bool = True

    def sentences(self) -> list[str]:
        sentences = []
        who = "the input takes" if self.feeds == 1 else f"all {self.feeds} inputs take"
        if self.taken:
            nodes = [f"{choice.node} ({branch})" for choice, branch in self.taken.items()]
            sentences.append(f"replaced by the branch that {who}: {listed(nodes, MOST)}")
        if not self.checked:
            sentences.append("the fixed model does not check whether other inputs take the same branches")
        for choice, why in self.staying.items():
            what = f"{choice.node} ({choice.kind}) stays: {_WHY[why]}"
            sentences.append(f"{what}; its inner tensors are neither dumped nor quantised")
        return sentences


def choices(proto: ModelProto) -> list[Choice]:
    """Return the choices of the main graph, in order."""
    return [found for node in proto.graph.node if (found := _choice(node)) is not None]


def _choice(node: NodeProto) -> Choice | None:
    if node.domain not in MAIN_DOMAINS or not node.input:
        return None
    name = node.name or next(filter(None, node.output), "")
    if node.op_type == "If":
        return Choice(name, "If", (node.input[0],))
    if node.op_type == "Loop" and node.input[0]:
        return Choice(name, "Loop", tuple(node.input[:2]))
    return None


def put_in_place(proto: ModelProto, taken: Mapping[Choice, str]) -> ModelProto:
    """Return a copy of the model with these nodes of its main graph replaced by the branch or body that they run.

    The branch is ``then`` or ``else`` for an If, and ``once`` for the body of a Loop. Nodes that compute the condition
    stay.
    """
    from onnx import ModelProto

    result = ModelProto()
    result.CopyFrom(proto)
    graph = result.graph
    branches = [taken.get(choice) if (choice := _choice(node)) is not None else None for node in proto.graph.node]
    names = _Names(graph)
    for node, branch in zip(proto.graph.node, branches):
        if branch:
            names.forget(node, branch)
    nodes: list[NodeProto] = []
    for node, branch in zip(proto.graph.node, branches):
        nodes += _placed(node, branch, graph, names, opset_of(proto)) if branch else [node]
    del graph.node[:]
    graph.node.extend(nodes)
    return result


def without_unread(proto: ModelProto, names: Iterable[str]) -> ModelProto:
    """Return a copy without the nodes that compute these tensors and their exclusive inputs, unless read elsewhere."""
    from onnx import ModelProto

    result = ModelProto()
    result.CopyFrom(proto)
    nodes = list(result.graph.node)
    maker = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    readers = Counter(name for node in nodes for name in needs(node))
    readers.update(info.name for info in result.graph.output)
    pending, gone = [maker[name] for name in names if name in maker], set[int]()
    while pending:
        index = pending.pop()
        if index in gone or any(readers[name] for name in nodes[index].output if name):
            continue
        gone.add(index)
        for name in needs(nodes[index]):
            readers[name] -= 1
            if name in maker:
                pending.append(maker[name])
    del result.graph.node[:]
    result.graph.node.extend(node for index, node in enumerate(nodes) if index not in gone)
    return result


class _Names:
    """Names defined by a graph and its bodies."""

    def __init__(self, graph: GraphProto):
        self._tensors = Counter(name for part in all_graphs(graph) for name in _defined(part))
        self._nodes = Counter(node.name for node in graph.node if node.name)

    def forget(self, node: NodeProto, branch: str) -> None:
        """Release the names in a node's bodies; a branch that is not taken is removed completely."""
        for item in node.attribute:
            if item.HasField("g"):
                parts = [item.g] if item.name == _attribute(branch) else all_graphs(item.g)
                self._tensors.subtract(name for part in parts for name in _defined(part))

    def tensor(self, name: str) -> str:
        """Return the name, or a numbered one if it is used."""
        return self._free(self._tensors, name)

    def node(self, name: str) -> str:
        return self._free(self._nodes, name) if name else ""

    def _free(self, used: Counter[str], name: str) -> str:
        new, number = name, 0
        while used[new] > 0:
            number += 1
            new = f"{name}__{number}"
        used[new] += 1
        return new


def _attribute(branch: str) -> str:
    return {"once": "body"}.get(branch, f"{branch}_branch")


def _defined(graph: GraphProto) -> Iterator[str]:
    yield from (info.name for info in graph.input if info.name not in weight_names(graph))
    yield from weight_names(graph)
    yield from (name for node in graph.node for name in node.output if name)


def _placed(node: NodeProto, branch: str, graph: GraphProto, names: _Names, opset: int) -> list[NodeProto]:
    """Return the nodes that replace a node; weights of the body become weights of the graph."""
    body: GraphProto = attribute(node, _attribute(branch))
    if node.op_type == "If":
        return _spliced(body, {}, list(zip((info.name for info in body.output), node.output)), graph, names)
    from onnx import helper, numpy_helper

    number, condition, *carried = [info.name for info in body.input]
    fed = dict(zip(carried, node.input[2:]))
    for name, value in ((number, np.int64(0)), (condition, np.bool_(True))):
        fed[name] = names.tensor(name)
        graph.initializer.append(numpy_helper.from_array(np.asarray(value), fed[name]))
    made = list(zip((info.name for info in body.output[1:]), node.output))
    last, stacked = made[: len(carried)], [(inner, outer) for inner, outer in made[len(carried) :] if outer]
    # A Loop's collected outputs have an axis of iterations.
    rows = [(inner, names.tensor(f"{outer}_row")) for inner, outer in stacked]
    nodes = _spliced(body, fed, [*last, *rows], graph, names)
    axes: list[str] = []
    options: dict[str, Any] = {"axes": [0]}
    if stacked and opset >= AXES_ARE_AN_INPUT:
        axes, options = [names.tensor("axes")], {}
        graph.initializer.append(numpy_helper.from_array(np.array([0]), axes[0]))
    for (_, outer), (_, row) in zip(stacked, rows):
        nodes.append(helper.make_node("Unsqueeze", [row, *axes], [outer], name=names.node(outer), **options))
    return nodes


def _spliced(
    body: GraphProto, fed: Mapping[str, str], ends: Sequence[tuple[str, str]], graph: GraphProto, names: _Names
) -> list[NodeProto]:
    """Return the nodes of a body as nodes of the graph.

    fed   outer tensor by input of the body
    ends  output of the body, and the outer tensor that it becomes, or ""
    """
    from onnx import helper

    made = [name for node in body.node for name in node.output if name]
    renamed = dict(fed)
    copies = []
    for inner, outer in ends:
        if inner in made and inner not in renamed and outer:
            renamed[inner] = outer
        elif outer:
            copies.append((inner, outer))
    for name in (*made, *sorted(weight_names(body))):
        if name not in renamed:
            renamed[name] = names.tensor(name)
    nodes = []
    for inner_node in body.node:
        node = reading(inner_node, renamed)
        node.name = names.node(node.name)
        for slot, name in enumerate(node.output):
            node.output[slot] = renamed.get(name, name)
        nodes.append(node)
    nodes += [
        helper.make_node("Identity", [renamed.get(inner, inner)], [outer], name=names.node(outer))
        for inner, outer in copies
    ]
    _add_facts(body, renamed, graph)
    return nodes


def _add_facts(body: GraphProto, renamed: Mapping[str, str], graph: GraphProto) -> None:
    """Add the weights of a body, and its declarations of tensors, to the graph."""
    for tensor in body.initializer:
        graph.initializer.add().CopyFrom(tensor)
        graph.initializer[-1].name = renamed[tensor.name]
    for sparse in body.sparse_initializer:
        graph.sparse_initializer.add().CopyFrom(sparse)
        graph.sparse_initializer[-1].values.name = renamed[sparse.values.name]
    declared = {info.name for info in (*graph.value_info, *graph.output)}
    for info in body.value_info:
        name = renamed.get(info.name, info.name)
        if name not in declared:
            graph.value_info.add().CopyFrom(info)
            graph.value_info[-1].name = name
    for note in body.quantization_annotation:
        graph.quantization_annotation.add().CopyFrom(note)
        graph.quantization_annotation[-1].tensor_name = renamed.get(note.tensor_name, note.tensor_name)
        for entry in graph.quantization_annotation[-1].quant_parameter_tensor_names:
            entry.value = renamed.get(entry.value, entry.value)
