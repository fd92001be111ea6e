"""The network as a graph for Model Explorer and Netron."""

import json
from dataclasses import replace

import numpy as np
import onnx
import pytest
from small_nets import conv, model, node, weights

from sgsdump.fixedpoint.reports.graph_files import ERRORS, GRAPH, NETRON, NetworkGraph
from sgsdump.reports.report import Bits, Facts, Figures, Layer, Report

NODES = [
    conv("blocks/0/c", "x"),
    node("Relu", ["blocks/0/c"], "blocks/0/r"),
    node("Sigmoid", ["blocks/0/r"], "s"),
    node("Add", ["s", "blocks/0/r"], "y"),
]


def layer(name, rmse, rise, own=None, **facts):
    return Layer(name, "Conv", 0, Figures(0.1, 0.9, rmse, 3.0, rise, own), facts=Facts(**facts))


@pytest.fixture
def written():
    proto = model(NODES, weights("blocks/0/c", (8, 3, 1, 1)), {"x": (1, 3, 4, 4)}, ["y"]).proto
    for made in proto.graph.node:
        made.name = "" if made.op_type == "Relu" else "blocks/0/n"  # names that are not unique, and none
    layers = (
        layer("blocks/0/r", 0.25, 0.25, 0.2, bits=Bits("x", 8, advised=True)),
        layer("s", 0.3, -0.1),
        layer("y", np.nan, np.nan),
    )
    report = Report("", (), layers=layers, limits={"rmse": 0.2})
    graph = NetworkGraph(proto, {"blocks/0/c": "blocks/0/r"})
    return proto, graph, report


def test_model_explorer_gets_a_graph_and_data_by_its_nodes(written):
    _, graph, report = written
    files = graph.files(report)
    (drawn,) = json.loads(files[GRAPH])
    ids = [each["id"] for each in drawn["nodes"]]
    assert len(set(ids)) == len(ids) == 5
    by_label = {each["label"]: each for each in drawn["nodes"]}
    conv_id, relu_id, sigmoid_id = (by_label[label]["id"] for label in ("Conv", "Relu", "Sigmoid"))
    assert relu_id == "blocks/0/r" and by_label["Relu"]["namespace"] == "blocks/0"
    edges = {(each["label"], edge["sourceNodeId"]) for each in drawn["nodes"] for edge in each.get("incomingEdges", [])}
    assert edges == {
        ("Conv", by_label["x"]["id"]),
        ("Relu", conv_id),
        ("Sigmoid", relu_id),
        ("Add", sigmoid_id),
        ("Add", relu_id),
    }
    data = json.loads(files[ERRORS])[drawn["id"]]
    # the convolution is computed in one operator with its Relu; what is no convolution was not measured
    assert {name: result["value"] for name, result in data["results"].items()} == {
        conv_id: 0.2,
        relu_id: 0.2,
        by_label["Add"]["id"]: 1e30,
    }
    assert [each["value"] for each in data["thresholds"]] == pytest.approx([0.02, 0.06, 0.2, 0.6, 1e30])
    told = {each["key"]: each["value"] for each in by_label["Conv"]["attrs"]}
    assert told["layer"] == "blocks/0/r" and told["own error"] == "0.200000" and told["bits"] == "8, 16 is advised"


def test_where_nothing_was_measured_the_rise_counts_and_nan_is_the_worst(written):
    _, graph, report = written
    layers = tuple(replace(each, figures=replace(each.figures, own_error=None)) for each in report.layers)
    data = json.loads(graph.files(replace(report, layers=layers))[ERRORS])
    values = [result["value"] for each in data.values() for result in each["results"].values()]
    assert values == [0.25, 0.25, 0.0, 1e30]


def test_netron_gets_a_small_model_with_the_figures(written):
    proto, graph, report = written
    body = onnx.helper.make_graph([], "body", [], [], [weights_of(4096)])
    proto.graph.node.append(onnx.helper.make_node("If", ["c"], ["z"], then_branch=body, else_branch=body))
    proto.graph.initializer.append(weights_of(100_000))
    found = onnx.load_from_string(data := graph.files(report)[NETRON])
    assert len(data) < 5000
    assert [list(each.dims) for each in found.graph.initializer] == [
        list(each.dims) for each in proto.graph.initializer
    ]
    assert [each.op_type for each in found.graph.node] == [each.op_type for each in proto.graph.node]
    figures = {entry.key: entry.value for entry in found.graph.node[1].metadata_props}
    assert figures["RMSE"] == "0.250000" and figures["layer"] == "blocks/0/r"
    assert not found.graph.node[4].metadata_props
    assert len(proto.graph.initializer[-1].raw_data) == 400_000  # the given model stays as it is


def weights_of(count):
    return onnx.numpy_helper.from_array(np.ones(count, np.float32), "w")
