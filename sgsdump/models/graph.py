"""An index over an ONNX graph: which node makes a tensor, which nodes read it, which tensors are constants.

Names that If, Loop and Scan bodies capture from outside count as read by the node that holds the body.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.models.model import weight_names

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

# Operators whose output holds the values of their input, each of them once, in another order or shape.
REARRANGING = frozenset(("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"))
# A # that a word follows: how names made from a tensor's end. Those of a folded BatchNormalization are the model's own.
_ENDING = re.compile(r"#+(?=[A-Za-z])(?!bias\b|folded:)")


@dataclass(frozen=True)
class Graph:
    """Read-only view of ``proto.graph``; make a new one after changing the proto."""

    proto: ModelProto

    @cached_property
    def nodes(self) -> list[NodeProto]:
        """The nodes, held so that each stays the same Python object while this view lives."""
        return list(self.proto.graph.node)

    @cached_property
    def constants(self) -> dict[str, TensorProto]:
        """Initializers by name (weights, biases, shape parameters)."""
        return {t.name: t for t in self.proto.graph.initializer}

    @cached_property
    def inputs(self) -> list[str]:
        """The real inputs: older models list their weights here too, those are left out."""
        return [i.name for i in self.proto.graph.input if i.name not in self.constants]

    @cached_property
    def outputs(self) -> list[str]:
        return [o.name for o in self.proto.graph.output]

    @cached_property
    def producer(self) -> dict[str, NodeProto]:
        return {name: node for node in self.nodes for name in node.output if name}

    @cached_property
    def consumers(self) -> dict[str, list[NodeProto]]:
        readers: dict[str, list[NodeProto]] = defaultdict(list)
        for node in self.nodes:
            for name in dict.fromkeys([*node.input, *captured(node)]):
                if name:
                    readers[name].append(node)
        return dict(readers)

    @cached_property
    def shapes(self) -> dict[str, tuple[int | None, ...]]:
        """The shape of every tensor whose rank is known; None stands for a length that is not."""
        from sgsdump.models.shape_inference import infer_types

        types = {**infer_types(self.proto), **{output.name: output.type for output in self.proto.graph.output}}
        return {
            name: tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in kind.tensor_type.shape.dim)
            for name, kind in types.items()
            if kind.tensor_type.HasField("shape")
        }

    def value(self, name: str) -> np.ndarray:
        """The values of a constant, as numpy."""
        from onnx import numpy_helper

        return numpy_helper.to_array(self.constants[name])

    def variables(self, node: NodeProto) -> list[str]:
        """A node's inputs that are not constants, in order, each once."""
        return [name for name in dict.fromkeys(node.input) if name and name not in self.constants]

    def sole_consumer(self, name: str) -> NodeProto | None:
        """The one node that reads a tensor; None when several do, or when it leaves the graph."""
        readers = self.consumers.get(name, [])
        if len(readers) != 1 or name in self.outputs or name not in readers[0].input:
            return None
        return readers[0]


def mark_of(proto: ModelProto) -> str:
    """What stands between a tensor's name and a word in the names that are made from it (``conv1#stored``): # where no
    name of the model has it before a letter, as many of them as none has elsewhere. So such names are nobody else's."""
    graph = proto.graph
    names = [tensor.name for tensor in (*graph.input, *graph.initializer)]
    names += [name for node in graph.node for name in (node.name, *node.output)]
    return "#" * (1 + max((len(run) for name in names for run in _ENDING.findall(name)), default=0))


def attribute(node: NodeProto, name: str, default: Any = None) -> Any:
    """An attribute's Python value, or ``default`` when the node does not carry it."""
    from onnx import helper

    for item in node.attribute:
        if item.name == name:
            return helper.get_attribute_value(item)
    return default


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """The sub-graphs a node carries: branches of If, bodies of Loop and Scan."""
    for item in node.attribute:
        if item.HasField("g"):
            yield item.g
        yield from item.graphs


def captured(node: NodeProto) -> list[str]:
    """Outer names that a node's bodies read, in order of first use."""
    names: dict[str, None] = {}
    for body in bodies(node):
        own = {info.name for info in body.input} | weight_names(body)
        own |= {output for inner in body.node for output in inner.output}
        used = [name for inner in body.node for name in (*inner.input, *captured(inner))]
        used += [info.name for info in body.output]
        names.update(dict.fromkeys(name for name in used if name and name not in own))
    return list(names)


def needs(node: NodeProto) -> set[str]:
    """Names of everything a node reads: its own inputs and the outer values that its bodies capture."""
    return {name for name in (*node.input, *captured(node)) if name}


def reading(node: NodeProto, names: Mapping[str, str]) -> NodeProto:
    """A copy of a node that reads other tensors: its own inputs, and the outer values that its bodies capture, by the
    new names."""
    copy = type(node)()
    copy.CopyFrom(node)
    _rename_reads(copy, names)
    return copy


def _rename_reads(node: NodeProto, names: Mapping[str, str]) -> None:
    for index, name in enumerate(node.input):
        node.input[index] = names.get(name, name)
    for body in bodies(node):
        own = {info.name for info in body.input} | weight_names(body)
        own |= {output for inner in body.node for output in inner.output}
        outer = {name: new for name, new in names.items() if name not in own}
        for inner in body.node:
            _rename_reads(inner, outer)


def drop_unused_constants(proto: ModelProto) -> None:
    """Remove initializers (and the graph inputs older models list for them) that nothing reads any more, in place."""
    graph = Graph(proto)
    used = set(graph.consumers) | set(graph.outputs)
    for field in (proto.graph.initializer, proto.graph.input):
        for index in range(len(field) - 1, -1, -1):
            if field[index].name in graph.constants and field[index].name not in used:
                del field[index]
