"""The network as a graph coloured by each layer's own error, for viewers that draw graphs: Model Explorer and Netron.

* ``model_explorer.json``: a list with one graph, and ``model_explorer_errors.json``: node data by graph and node, with
  colours by thresholds. Formats: https://github.com/google-ai-edge/model-explorer/wiki/4.-API-Guide, and
  ``graph_builder.py`` and ``node_data_builder.py`` of its package.
* ``netron.onnx``: the float model without its weights, whose nodes have the figures as ``metadata_props``, which Netron
  shows beside a node's attributes; it colours by operator alone. https://github.com/lutzroeder/netron
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
RMSE = 0.1  # the limit that colours go by where a report has none
# By the error over its limit: background and text, from harmless to bad.
COLOURS = (
    (0.1, "#e6f4ea", "#14532d"),
    (0.3, "#fdf3dc", "#5c3b00"),
    (1.0, "#f9d48f", "#5c3b00"),
    (3.0, "#f3a08f", "#5f150d"),
    (math.inf, "#b42318", "#ffffff"),
)
LARGEST = 1e30  # stands for NaN and infinity, which node data cannot hold
MOST_VALUES = 64  # of a constant that keeps its values


@dataclass(frozen=True, eq=False)
class NetworkGraph:
    """A network whose layers a report tells of.

    proto   of the float network; its weights are not looked at.
    inside  by a tensor that is computed inside an operator of several nodes: what that operator stores.
    """

    proto: ModelProto
    inside: Mapping[str, str] = field(default_factory=dict)

    def files(self, report: Report) -> dict[str, bytes]:
        """The three files by name."""
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
    """What arises in a layer: measured, or by how much its RMSE is above those of the layers that feed it; None where
    convolutions were measured and this is none, but for NaN and infinity."""
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
    """A name for each node, no two alike: its own, or its first output's."""
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
    """The nodes as Model Explorer has them, in namespaces of what their names are made of."""
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
    """model/layers/7 of model.layers.7.conv; what a name ends in is the node itself."""
    return "/".join(shown(part) for part in re.split(r"[/.:]+", name.strip("/"))[:-1] if part)


def _attributes(node: NodeProto, layer: Layer | None) -> Iterator[tuple[str, str]]:
    yield "name", shown(node.name)
    if layer is not None:
        yield from figures_of(layer)


def figures_of(layer: Layer) -> Iterator[tuple[str, str]]:
    """What is known of a layer, as texts by name."""
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
    """The model without weights, whose nodes have the figures."""
    import onnx

    model = onnx.ModelProto(ir_version=max(proto.ir_version, 10), producer_name="sgsdump")
    model.opset_import.extend(proto.opset_import)
    graph = model.graph
    graph.name = proto.graph.name or GRAPH_ID
    graph.doc_string = "Without weights: to look at, not to run. Figures of each layer stand in its node's metadata."
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
    """Name, type and shape of a constant; of a small one the values too."""
    import onnx

    if math.prod(tensor.dims) <= MOST_VALUES and not tensor.external_data:
        return tensor
    return onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)


def _empty_attributes(node: NodeProto) -> None:
    """Also of the bodies of If and Loop."""
    for attribute in node.attribute:
        if attribute.HasField("t"):
            attribute.t.CopyFrom(_emptied(attribute.t))
        for graph in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
            emptied = [_emptied(tensor) for tensor in graph.initializer]
            del graph.initializer[:]
            graph.initializer.extend(emptied)
            for inner in graph.node:
                _empty_attributes(inner)
