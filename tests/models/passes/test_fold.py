"""Folding constants keeps the function; onnxruntime is the judge."""

from unittest import mock

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from small_nets import conv, model, node, run_all, weights

from sgsdump.models.passes.rewrites import fold_constants


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


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    [
        ("Unsqueeze", [np.arange(6).reshape(2, 3)], {"axes": [0, -1]}),
        ("Gather", [np.arange(6).reshape(2, 3), np.array([[-1, 0], [1, 1]])], {"axis": 1}),
        ("Gather", [np.arange(5), np.array(-2)], {}),
        ("Concat", [np.arange(2), np.array([7]), np.arange(2)], {"axis": 0}),
        ("Constant", [], {"value": numpy_helper.from_array(np.array([[1.5, -2]], np.float32))}),
    ],
)
def test_the_usual_shape_arithmetic_is_that_of_the_evaluator(op_type, inputs, attributes):
    names = [f"k{index}" for index in range(len(inputs))]
    only = helper.make_node(op_type, names, ["k"], **attributes)
    tail = [node("Cast", ["k"], "f", to=TensorProto.FLOAT), node("Add", ["x", "f"], "y")]
    net = model([only, *tail], dict(zip(names, inputs)), {"x": (1,)}, ["y"], opset=11).proto
    feeds = {name: array.astype(np.int64) for name, array in zip(names, inputs)}
    (wanted,) = ReferenceEvaluator(
        helper.make_model(
            helper.make_graph(
                [only],
                "one",
                [helper.make_tensor_value_info(name, TensorProto.INT64, None) for name in names],
                [helper.make_tensor_value_info("k", TensorProto.UNDEFINED, None)],
            ),
            opset_imports=[helper.make_opsetid("", 11)],
        )
    ).run(None, feeds)
    with mock.patch("onnx.reference.ReferenceEvaluator.run", side_effect=AssertionError):
        folded = fold_constants(net)
    found = {each.name: numpy_helper.to_array(each) for each in folded.graph.initializer}["k"]
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


def test_what_gathers_beyond_the_end_stays():
    constants = {"k": np.arange(3), "far": np.array(3)}
    nodes = [node("Gather", ["k", "far"], "g"), node("Cast", ["g"], "f", to=1), node("Add", ["x", "f"], "y")]
    folded = fold_constants(model(nodes, constants, {"x": (1,)}, ["y"], 11).proto)
    assert [each.op_type for each in folded.graph.node] == ["Gather", "Cast", "Add"]
