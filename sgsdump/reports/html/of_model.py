"""What a model's file says of the operator behind each layer."""

from __future__ import annotations

from typing import Any

from sgsdump.models.graph import Graph
from sgsdump.models.model import Model, read_stages

LONGEST = 60
BLOB = "Caffe blob"


def attributes_of(model: Model) -> dict[str, dict[str, str]]:
    """By each output's name: the operator's attributes, the node's name and its weights' shapes, as text; of a Caffe
    network the blob that the tensor is a stage of, and the layer that made it."""
    graph = Graph(model.proto)
    stages = {stage.name: {BLOB: stage.blob, "layer": stage.layer} for stage in read_stages(model.proto)}
    found: dict[str, dict[str, str]] = {}
    for node in graph.nodes:
        texts = {"node": node.name} if node.name else {}
        texts |= {
            f"constant {name}": _shape(graph.constants[name].dims) for name in node.input if name in graph.constants
        }
        texts |= {attribute.name: _text(attribute) for attribute in node.attribute}
        found |= {name: stages.get(name, {}) | texts for name in node.output if name}
    return found


def _shape(dims: Any) -> str:
    return "×".join(map(str, dims)) or "one number"


def _text(attribute: Any) -> str:
    from onnx import AttributeProto, helper

    if attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
        return "a graph"
    if attribute.type in (AttributeProto.TENSOR, AttributeProto.SPARSE_TENSOR):
        return f"a tensor {_shape(attribute.t.dims)}"
    value = helper.get_attribute_value(attribute)
    values = value if isinstance(value, list) else [value]
    text = ", ".join(each.decode("utf-8", "replace") if isinstance(each, bytes) else str(each) for each in values)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
