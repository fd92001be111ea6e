"""Weights of an ONNX model as a dump: every initializer and constant, in the order in which nodes read them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.dumps.dump import Dump, Record
from sgsdump.models.external_data import left_outside
from sgsdump.models.graph import all_graphs, attribute, dtype_of, values_of
from sgsdump.models.model import open_model
from sgsdump.tensors.tensor import Tensor
from sgsdump.tensors.types import TensorInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnx import GraphProto, TensorProto


def open_weights(path: Path) -> Dump:
    """Open the weights of a model as a dump. Raises ModelError.

    Each weight is an output of the first node that reads it. Weights that are not dense arrays of numbers are listed in
    the notes.
    """
    model = open_model(path)
    if model.folder is not None:
        left_outside(model.proto, Path(model.folder))
    records, notes = [], []
    for tensor, op_index, op_type in _constants(model.proto.graph):
        dtype = dtype_of(tensor.data_type)
        if dtype is None or dtype.kind not in "biufcV":
            notes.append(f"not compared: {tensor.name}: its values are not numbers")
            continue
        info = TensorInfo(tensor.name, tuple(tensor.dims), dtype)
        records.append(Record("out", 0, op_index, op_type, Tensor(info, partial(values_of, tensor))))
    sparse = sum(len(graph.sparse_initializer) for graph in all_graphs(model.proto.graph))
    notes += [f"not compared: {sparse} sparse initializers"] if sparse else []
    return Dump(sorted(records, key=lambda record: record.op_index), path=path, notes=notes)


def _constants(graph: GraphProto) -> Iterator[tuple[TensorProto, int, str]]:
    """Yield the constants of the graph and its bodies with index and type of their first reader, unread ones last."""
    from onnx import TensorProto

    index = 0
    for inner in all_graphs(graph):
        reader: dict[str, tuple[int, str]] = {}
        tensors = {tensor.name: tensor for tensor in inner.initializer}
        for node in inner.node:
            value = attribute(node, "value") if node.op_type == "Constant" else None
            if isinstance(value, TensorProto):
                tensors[node.output[0]] = TensorProto()
                tensors[node.output[0]].CopyFrom(value)
                tensors[node.output[0]].name = node.output[0]
            for name in node.input:
                reader.setdefault(name, (index, node.op_type))
            index += 1
        for name, tensor in tensors.items():
            yield (tensor, *reader.get(name, (index, "")))
