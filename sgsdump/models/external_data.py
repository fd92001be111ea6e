"""Load the weights of external data files into the model, for back-ends that take a model in one piece only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, TensorProto


def is_external(model: ModelProto) -> bool:
    """Whether a weight or a tensor attribute, those in bodies included, is stored in an external file."""
    from onnx import TensorProto

    return any(tensor.data_location == TensorProto.EXTERNAL for tensor in graph_tensors(model.graph))


def external_bytes(model: ModelProto) -> int:
    """Bytes of the external data, as far as the model says how many there are."""
    from onnx import TensorProto

    external = (t for t in graph_tensors(model.graph) if t.data_location == TensorProto.EXTERNAL)
    return sum(int(entry.value) for tensor in external for entry in tensor.external_data if entry.key == "length")


def place_of(tensor: TensorProto) -> tuple[str, int]:
    """The file of a tensor's external data, relative to the model's folder, and where in it they begin."""
    entries = _entries(tensor)
    return entries.get("location", ""), int(entries.get("offset") or 0)


def _entries(tensor: TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def external_files(model: ModelProto) -> set[str]:
    """The files of all external data, relative to the model's folder."""
    from onnx import TensorProto

    outside = TensorProto.EXTERNAL
    tensors = (tensor for tensor in graph_tensors(model.graph) if tensor.data_location == outside)
    return {_entries(tensor).get("location", "") for tensor in tensors}


def in_one_piece(model: ModelProto, folder: str | None) -> ModelProto:
    """The model with its external data read in from ``folder``: a copy, or the model itself when it has none."""
    if not is_external(model):
        return model
    import onnx

    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    onnx.external_data_helper.load_external_data_for_model(whole, folder or "")
    return whole


def graph_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Every weight and every tensor attribute of a graph and the bodies in it."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("g"):
                yield from graph_tensors(attribute.g)
            for body in attribute.graphs:
                yield from graph_tensors(body)
