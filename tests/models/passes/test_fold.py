"""Folding constants keeps the function; onnxruntime is the judge."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from small_nets import conv, model, node, run_all, weights

from sgsdump.models.passes.fold import fold_constants


def test_shape_arithmetic_folds_to_nothing():
    constants = {**weights("c", (6, 3, 3, 3)), "zero": np.array(0), "minus": np.array([-1])}
    nodes = [
        conv("c", "x"),
        node("Shape", ["c"], "shape"),
        node("Gather", ["shape", "zero"], "batch"),
        helper.make_node("Unsqueeze", ["batch"], ["batch1"], axes=[0]),
        node("Concat", ["batch1", "minus"], "target", axis=0),
        node("Reshape", ["c", "target"], "flat"),
        helper.make_node("Constant", [], ["two"], value=numpy_helper.from_array(np.float32(2))),
        node("Mul", ["flat", "two"], "y"),
    ]
    net = model(nodes, constants, {"x": (2, 3, 5, 5)}, ["y"], opset=11).proto
    folded = fold_constants(net)
    assert [n.op_type for n in folded.graph.node] == ["Conv", "Reshape", "Mul"]
    x = np.random.default_rng(1).normal(size=(2, 3, 5, 5)).astype(np.float32)
    np.testing.assert_array_equal(run_all(folded, {"x": x})["y"], run_all(net, {"x": x})["y"])


def test_an_unknown_shape_and_randomness_stay():
    graph = helper.make_graph(
        [
            node("Shape", ["x"], "s"),
            helper.make_node("RandomNormal", [], ["noise"], shape=[1]),
            node("Identity", ["noise"], "y"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 3))],
        [onnx.ValueInfoProto(name="y"), onnx.ValueInfoProto(name="s")],
    )
    assert len(fold_constants(helper.make_model(graph)).graph.node) == 3


def test_what_the_evaluator_computes_otherwise_is_left():
    """Of operator set 11 a Softmax is one of all axes behind ``axis``; onnx's evaluator takes one axis."""
    constants = {"k": np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)}
    nodes = [node("Softmax", ["k"], "s", axis=1), node("Add", ["x", "s"], "y")]
    folded = fold_constants(model(nodes, constants, {"x": (1, 2, 2, 2)}, ["y"], 11).proto)
    assert [each.op_type for each in folded.graph.node] == ["Softmax", "Add"]
