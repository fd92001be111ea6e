"""Cutting: limits, what a segment reads, sizes without weights, and sub-models that a checker accepts."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from sgsdump.models.graph import infer_types
from sgsdump.models.passes.segment import MAX_NODES, MAX_NODES_OF_KNOWN_SIZE, cut, max_nodes_of, sub_model, tensor_bytes

FLOAT = TensorProto.FLOAT


def chain(count: int = 5) -> onnx.ModelProto:
    """t0 = x + w0, t1 = t0 + w1, …; input [N, 4], weights [2000, 1, 4] so that every tensor is [2000, N, 4]."""
    nodes, weights, last = [], [], "x"
    for i in range(count):
        nodes.append(helper.make_node("Add", [last, f"w{i}"], [f"t{i}"]))
        weights.append(numpy_helper.from_array(np.full((2000, 1, 4), i, np.float32), f"w{i}"))
        last = f"t{i}"
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, ["N", 4])],
        [helper.make_tensor_value_info(last, FLOAT, None)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def test_sizes_follow_the_feed_and_leave_the_model_alone() -> None:
    model = chain()
    before = model.SerializeToString()
    sizes = tensor_bytes(infer_types(model, {"x": (3, 4)}))
    assert sizes["t4"] == sizes["t0"] == 2000 * 3 * 4 * 4
    assert sizes["w0"] == 2000 * 4 * 4
    assert model.SerializeToString() == before


def test_sizes_of_constant_nodes_and_small_shape_weights() -> None:
    big = numpy_helper.from_array(np.zeros((50, 60), np.float32), "v")
    nodes = [
        helper.make_node("Constant", [], ["c"], value=big),
        helper.make_node("Reshape", ["c", "shape"], ["r"]),
        helper.make_node("Mystery", ["r"], ["m"], domain="my"),
    ]
    shape = numpy_helper.from_array(np.array([100, 30]), "shape")
    domains = [helper.make_opsetid("", 13), helper.make_opsetid("my", 1)]
    model = helper.make_model(helper.make_graph(nodes, "g", [], [], [shape]), opset_imports=domains)
    sizes = tensor_bytes(infer_types(model, {}))
    assert sizes["c"] == sizes["r"] == 50 * 60 * 4
    assert sizes.get("m", 0) == 0


def test_cut_keeps_both_limits() -> None:
    nodes = list(chain().graph.node)
    weights = {f"w{i}" for i in range(5)}
    assert [len(part.nodes) for part in cut(nodes, weights, {}, max_nodes=2)] == [2, 2, 1]
    sizes = {f"t{i}": 10 for i in range(5)}
    assert [len(part.nodes) for part in cut(nodes, weights, sizes, max_bytes=30)] == [3, 2]
    assert [len(part.nodes) for part in cut(nodes, weights, sizes | {"w1": 5}, max_bytes=30)] == [2, 3]
    assert [len(part.nodes) for part in cut(nodes, weights, sizes, max_bytes=1)] == [1] * 5


def test_a_segment_knows_its_borders_and_is_a_model() -> None:
    model = chain()
    _, part, _ = cut(list(model.graph.node), {f"w{i}" for i in range(5)}, {}, max_nodes=2)
    assert (part.reads, part.weights, part.makes) == (("t1",), ("w2", "w3"), ("t2", "t3"))
    kind = helper.make_tensor_type_proto(FLOAT, [None, None, None])
    weights = {t.name: t for t in model.graph.initializer}
    sub = onnx.ModelProto.FromString(sub_model(model, part, weights, {"t1": kind}))
    assert [t.name for t in sub.graph.initializer] == ["w2", "w3"]
    assert [i.name for i in sub.graph.input] == ["t1"]
    assert [o.name for o in sub.graph.output] == ["t2", "t3"]
    for output in sub.graph.output:
        output.type.CopyFrom(kind)
    onnx.checker.check_model(sub)


@pytest.mark.parametrize(("size", "most"), [(2, MAX_NODES_OF_KNOWN_SIZE), ("n", MAX_NODES)])
def test_segments_are_longer_where_the_bytes_of_every_tensor_are_known(size, most):
    nodes = [helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"]) for i in range(40)]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [info("t0", FLOAT, [size])], [info("t40", FLOAT, [size])])
    assert max_nodes_of(nodes, infer_types(helper.make_model(graph), {})) == most
