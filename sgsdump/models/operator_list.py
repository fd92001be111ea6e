"""The operators of a model, to choose names from: ONNX (and whatever is read as ONNX), an exported torch program, the
text of a graph (``ge_proto_*.txt``), or the topology that a dump's tree has of its program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import read_start
from sgsdump.models import exported_program
from sgsdump.models.atb import operation, operation_list
from sgsdump.models.model import open_model
from sgsdump.sidecars import ge_proto
from sgsdump.sidecars.ge_proto import Attribute, Graph, GraphOperator

if TYPE_CHECKING:
    import onnx


def list_operators(path: Path) -> list[Graph]:
    """The graphs of a file and their operators, in its order. Raises FormatError, ModelError, ConfigError."""
    if path.is_dir():
        return operation_list.graphs_of_tree(path)
    try:
        head = read_start(path, 4096)
    except OSError as error:
        raise FormatError(f"cannot read {path}: {error.strerror or error}") from None
    if head.startswith(exported_program.MAGIC):
        return exported_program.read_graphs(path)
    if path.suffix == ".txt":
        return ge_proto.read(path)
    if operation.looks_like(head):
        return [operation_list.graph_of(path)]
    graph = open_model(path).proto.graph
    return [Graph(graph.name, tuple(map(_of_onnx, graph.node)))]


def _of_onnx(node: onnx.NodeProto) -> GraphOperator:
    name = node.name or next(iter(node.output), "")
    attributes = tuple((one.name, _value(one)) for one in node.attribute)
    return GraphOperator(name, node.op_type, tuple(filter(None, node.input)), attributes)


def _value(attribute: onnx.AttributeProto) -> Attribute:
    """Numbers and texts, and lists of these; of a tensor or a graph its kind."""
    import onnx

    value: Any = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, onnx.TensorProto):
        return f"tensor of {'x'.join(map(str, value.dims)) or 'one value'}"
    if isinstance(value, onnx.GraphProto):
        return f"graph {value.name}"
    if hasattr(value, "__iter__"):
        return [one.decode("utf-8", "replace") if isinstance(one, bytes) else one for one in value]
    return type(value).__name__
