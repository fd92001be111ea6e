"""External data: weights of an ONNX model that are in files of their own, beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, TensorProto


def external_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """The weights and tensor attributes stored in external files, those in bodies included."""
    from onnx import TensorProto

    return (tensor for tensor in graph_tensors(graph) if tensor.data_location == TensorProto.EXTERNAL)


def entries_of(tensor: TensorProto) -> dict[str, str]:
    """The entries of a tensor's external data as texts: location, offset, length."""
    return {entry.key: entry.value for entry in tensor.external_data}


def external_bytes(model: ModelProto) -> int:
    """Bytes of the external data, as far as the model says how many there are."""
    return sum(int(entries_of(tensor).get("length", 0)) for tensor in external_tensors(model.graph))


def external_files(model: ModelProto) -> list[str]:
    """The files of all external data, relative to the model's folder, each once."""
    return list(dict.fromkeys(entries_of(tensor).get("location", "") for tensor in external_tensors(model.graph)))


def in_one_piece(model: ModelProto, folder: str | None) -> ModelProto:
    """The model with its external data read in from ``folder``: a copy, or the model itself when it has none."""
    if not any(external_tensors(model.graph)):
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
