"""Files for graph viewers (Model Explorer, Netron): the float model with the figures of a report at each layer.

* ``model_explorer.json`` is a list with one graph. ``model_explorer_errors.json`` holds node data by graph and node,
  coloured by each layer's own error. Formats: https://github.com/google-ai-edge/model-explorer/wiki/4.-API-Guide, and
  ``graph_builder.py`` and ``node_data_builder.py`` of the model-explorer package.
* ``netron.onnx`` is the float model without its weights. Its nodes have the figures as ``metadata_props``, which Netron
  shows beside a node's attributes. Netron cannot colour nodes by a figure. https://github.com/lutzroeder/netron
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sgsdump.files.json_yaml import json_text
from sgsdump.reports.text import number, shown

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

    from sgsdump.reports.report import Layer, Report

GRAPH, ERRORS, NETRON = "model_explorer.json", "model_explorer_errors.json", "netron.onnx"
RMSE = 0.1  # limit for the colours if the report has none
# Upper end of error / limit, background colour and text colour.
COLOURS = (
    (0.1, "#e6f4ea", "#14532d"),
    (0.3, "#fdf3dc", "#5c3b00"),
    (1.0, "#f9d48f", "#5c3b00"),
    (3.0, "#f3a08f", "#5f150d"),
    (math.inf, "#b42318", "#ffffff"),
)
LARGEST = 1e30  # replaces NaN and infinity, which node data cannot hold
MOST_VALUES = 64  # largest constant that keeps its values


@dataclass(frozen=True, eq=False)
class NetworkGraph:
    """The graph of a float model, to be written with the figures of a report.

    proto   the float model; its weights are not read.
    inside  tensor inside an operator of several nodes -> the tensor that the operator stores.
    """

    proto: ModelProto
    inside: Mapping[str, str] = field(default_factory=dict)

    def files(self, report: Report) -> dict[str, bytes]:
        """Return the three files, content by name."""
        layers = {layer.name: layer for layer in report.layers}
        told = [self._layer_of(node, layers) for node in self.proto.graph.node]
        ids = list(_ids(self.proto.graph))
        graph = [{"id": GRAPH_ID, "nodes": [*_inputs(self.proto.graph), *_nodes(self.proto.graph, ids, told)]}]
        is_measured = any(layer.figures.own_error is not None for layer in report.layers)
        errors = ((node, own_error(layer, is_measured)) for node, layer in zip(ids, told) if layer is not None)
        results = {node: {"value": _finite(error)} for node, error in errors if error is not None}
        limit = report.limits.get("rmse", RMSE)
        data = {GRAPH_ID: {"results": results, "thresholds": list(_thresholds(limit))}}
        return {
            GRAPH: json_text(graph).encode(),
            ERRORS: json_text(data).encode(),
            NETRON: _with_figures(self.proto, told).SerializeToString(),
        }

    def _layer_of(self, node: NodeProto, layers: Mapping[str, Layer]) -> Layer | None:
        names = [name for output in node.output for name in (output, self.inside.get(output, "")) if name in layers]
        return layers[names[0]] if names else None


GRAPH_ID = "network"


def own_error(layer: Layer, is_measured: bool) -> float | None:
    """Return the own error of a layer: measured, else the rise of its RMSE above the RMSE of the layers that feed it.

    None if convolutions were measured and this layer is no convolution, unless the rise is NaN or infinite.
    """
    own, rise = layer.figures.own_error, layer.figures.rise
    if own is not None:
        return own
    if is_measured and (layer.facts.bits is None or layer.facts.bits.in_float) and math.isfinite(rise):
        return None
    return 0.0 if rise < 0 else rise


def _finite(value: float) -> float:
    return float(f"{value:.6g}") if math.isfinite(value) else LARGEST


def _thresholds(limit: float) -> Iterator[dict[str, Any]]:
    for times, background, text in COLOURS:
        yield {"value": min(times * limit, LARGEST), "bgColor": background, "textColor": text}


def _ids(graph: GraphProto) -> Iterator[str]:
    """Yield a unique name for each node: its own, or that of its first output."""
    taken: set[str] = set()
    for place, node in enumerate(graph.node):
        name = node.name or next((output for output in node.output if output), "") or f"node {place}"
        while name in taken:
            name = f"{name} ({place})"
        taken.add(name)
        yield name


def _inputs(graph: GraphProto) -> Iterator[dict[str, Any]]:
    constants = {tensor.name for tensor in graph.initializer}
    for entry in graph.input:
        if entry.name not in constants:
            yield {"id": _input_id(entry.name), "label": shown(entry.name), "namespace": "", "attrs": []}


def _input_id(name: str) -> str:
    return f"input {name}"


def _nodes(graph: GraphProto, ids: list[str], told: list[Layer | None]) -> Iterator[dict[str, Any]]:
    """Yield the nodes for Model Explorer, with namespaces from the parts of their names."""
    sources = {entry.name: (_input_id(entry.name), 0) for entry in graph.input}
    for tensor in graph.initializer:
        sources.pop(tensor.name, None)
    for node, name in zip(graph.node, ids):
        sources |= {output: (name, place) for place, output in enumerate(node.output) if output}
    for node, name, layer in zip(graph.node, ids, told):
        edges = [
            {"sourceNodeId": source, "sourceNodeOutputId": str(place), "targetNodeInputId": str(slot)}
            for slot, (source, place) in ((slot, sources[n]) for slot, n in enumerate(node.input) if n in sources)
        ]
        yield {
            "id": name,
            "label": shown(node.op_type),
            "namespace": _namespace(name),
            "attrs": [{"key": key, "value": value} for key, value in _attributes(node, layer)],
            "incomingEdges": edges,
            "outputsMetadata": [
                {"id": str(place), "attrs": [{"key": "tensor_name", "value": shown(output)}]}
                for place, output in enumerate(node.output)
            ],
        }


def _namespace(name: str) -> str:
    """Return model/layers/7 for model.layers.7.conv."""
    return "/".join(shown(part) for part in re.split(r"[/.:]+", name.strip("/"))[:-1] if part)


def _attributes(node: NodeProto, layer: Layer | None) -> Iterator[tuple[str, str]]:
    yield "name", shown(node.name)
    if layer is not None:
        yield from figures_of(layer)


def figures_of(layer: Layer) -> Iterator[tuple[str, str]]:
    """Yield the figures and facts of a layer as (name, text)."""
    figures, bits = layer.figures, layer.facts.bits
    yield "layer", shown(layer.name)
    yield "verdict", layer.verdict
    known = {
        "RMSE": figures.rmse,
        "COS": figures.cos,
        "SQNR dB": figures.sqnr,
        "own error": figures.own_error,
        "inherited": figures.inherited,
        "rise": None if figures.own_error is not None else figures.rise,
        "brings": figures.brings,
        "gives back": figures.gives_back,
    }
    yield from ((name, number(value)) for name, value in known.items() if value is not None)
    if bits is not None:
        raised = f", raised by {bits.raised_by}" if bits.raised_by else ""
        yield "bits", f"{'float' if bits.in_float else bits.now}{raised}{', 16 is advised' if bits.advised else ''}"
    if layer.note:
        yield "remark", shown(layer.note)


def _with_figures(proto: ModelProto, told: list[Layer | None]) -> ModelProto:
    """Return the model without weights, with the figures at its nodes."""
    import onnx

    model = onnx.ModelProto(ir_version=max(proto.ir_version, 10), producer_name="sgsdump")
    model.opset_import.extend(proto.opset_import)
    graph = model.graph
    graph.name = proto.graph.name or GRAPH_ID
    graph.doc_string = "Without weights: to view, not to run. Figures of each layer are in the metadata of its node."
    graph.input.extend(proto.graph.input)
    graph.output.extend(proto.graph.output)
    graph.value_info.extend(proto.graph.value_info)
    graph.initializer.extend(map(_emptied, proto.graph.initializer))
    for node, layer in zip(proto.graph.node, told):
        copy = graph.node.add()
        copy.CopyFrom(node)
        _empty_attributes(copy)
        for key, value in () if layer is None else figures_of(layer):
            copy.metadata_props.add(key=key, value=value)
    return model


def _emptied(tensor: TensorProto) -> TensorProto:
    """Return a constant without its values; small constants keep them."""
    import onnx

    if math.prod(tensor.dims) <= MOST_VALUES and not tensor.external_data:
        return tensor
    return onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)


def _empty_attributes(node: NodeProto) -> None:
    """Remove large constants from attributes, also in the bodies of If and Loop."""
    for attribute in node.attribute:
        if attribute.HasField("t"):
            attribute.t.CopyFrom(_emptied(attribute.t))
        for graph in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
            emptied = [_emptied(tensor) for tensor in graph.initializer]
            del graph.initializer[:]
            graph.initializer.extend(emptied)
            for inner in graph.node:
                _empty_attributes(inner)
