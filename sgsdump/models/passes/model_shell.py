"""What is around a graph: the model that a part of its graph is put into."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from sgsdump.models.graph import bodies

if TYPE_CHECKING:
    import onnx

# Fields of a ModelProto and a GraphProto that a cut makes itself, or that say nothing about a part of the model.
_CUT_FIELDS = ("graph", "functions", "training_info")
_CUT_GRAPH_FIELDS = (
    *("node", "input", "output", "initializer", "sparse_initializer"),
    *("value_info", "quantization_annotation"),
)


class ModelShell:
    """Everything of a model but its graph's contents: versions, metadata, functions."""

    def __init__(self, proto: onnx.ModelProto):
        self._proto = proto

    def around(self, nodes: Iterable[onnx.NodeProto]) -> onnx.ModelProto:
        """A new model for these nodes, still without them, with those of the functions that they call."""
        import onnx

        model = onnx.ModelProto()
        model.CopyFrom(self._bare)
        if self._functions:
            called = set(_calls(nodes)) & self._functions.keys()
            pending = list(called)
            while pending:
                fresh = set(_calls(self._functions[pending.pop()].node)) & self._functions.keys() - called
                called |= fresh
                pending += fresh
            model.functions.extend(function for key, function in self._functions.items() if key in called)
        return model

    @cached_property
    def _functions(self) -> dict[tuple[str, str, str], onnx.FunctionProto]:
        return {(f.domain, f.name, f.overload): f for f in self._proto.functions}

    @cached_property
    def _bare(self) -> onnx.ModelProto:
        """The model without its graph's contents and its functions."""
        import onnx

        bare = onnx.ModelProto()
        _copy_fields(self._proto, bare, _CUT_FIELDS)
        _copy_fields(self._proto.graph, bare.graph, _CUT_GRAPH_FIELDS)
        bare.graph.name = self._proto.graph.name or "sub_model"
        return bare


def _calls(nodes: Iterable[onnx.NodeProto]) -> Iterator[tuple[str, str, str]]:
    """The operators of nodes, and of the nodes inside their bodies, by the key of a function."""
    for node in nodes:
        yield node.domain, node.op_type, node.overload
        for body in bodies(node):
            yield from _calls(body.node)


def _copy_fields(
    source: onnx.ModelProto | onnx.GraphProto, target: onnx.ModelProto | onnx.GraphProto, but: tuple[str, ...]
) -> None:
    """Every field that is set, repeated or single, known to this version of ONNX."""
    for field, value in source.ListFields():
        if field.name in but:
            continue
        if isinstance(value, str | bytes | int | float):
            setattr(target, field.name, value)
        else:
            getattr(target, field.name).MergeFrom(value)
