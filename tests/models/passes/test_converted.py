"""What the SDK's converter writes as other operators keeps the function; onnxruntime is the judge."""

import numpy as np
import onnx
import pytest
from small_nets import conv, model, node, run_all, weights

from sgsdump.models.graph import Graph, in_model_order
from sgsdump.models.passes.converted import as_converted
from sgsdump.tensors.stages import KEY

F = np.float32
NORM = {name: np.random.default_rng(i).uniform(0.5, 2, 3).astype(F) for i, name in enumerate(("g", "b", "m", "v"))}
CASES = {
    "BatchNormalization": (node("BatchNormalization", ["x", *NORM], "y", epsilon=1e-3), NORM, ["Mul", "Add"]),
    "constants minus": (node("Sub", ["k", "x"], "y"), {"k": F([[[1]], [[2]], [[3]]])}, ["Mul", "Add"]),
    "one constant minus": (node("Sub", ["k", "x"], "y"), {"k": F(1)}, ["Sub"]),
    "divided by a constant": (node("Div", ["x", "k"], "y"), {"k": F(6)}, ["Mul"]),
    "divided by zero": (node("Div", ["x", "k"], "y"), {"k": F(0)}, ["Div"]),
    "a mean along one axis": (node("ReduceMean", ["x"], "y", axes=[1], keepdims=1), {}, ["ReduceSum", "Mul"]),
    "a mean over the map": (node("ReduceMean", ["x"], "y", axes=[2, 3], keepdims=1), {}, ["ReduceMean"]),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_written_computes_the_same(case):
    first, constants, kinds = CASES[case]
    net = model([first], constants, {"x": (1, 3, 4, 5)}, ["y"]).proto
    written = as_converted(net)
    assert [each.op_type for each in written.graph.node] == kinds
    x = np.random.default_rng(9).normal(0, 2, (1, 3, 4, 5)).astype(F)
    np.testing.assert_allclose(run_all(written, {"x": x})["y"], run_all(net, {"x": x})["y"], rtol=1e-4, atol=1e-5)


def test_the_sdks_names_lie_between():
    net = model([CASES["BatchNormalization"][0]], NORM, {"x": (1, 3, 4, 5)}, ["y"]).proto
    graph = Graph(as_converted(net))
    assert set(graph.producer) == {"y_MUL_output", "y"} and set(graph.constants) == {"y_scale", "y_offset"}


def test_what_no_output_needs_is_left_out():
    nodes = [conv("c", "x"), node("Relu", ["c"], "y"), node("MaxPool", ["c"], "p", kernel_shape=[2, 2])]
    net = model(nodes, weights("c", (3, 3, 1, 1)), {"x": (1, 3, 4, 5)}, ["y"]).proto
    assert [each.op_type for each in as_converted(net).graph.node] == ["Conv", "Relu"]


def test_an_identity_is_left_out():
    """One after another, before a convolution and its activation; an output stays, and so does a layer of Caffe."""
    nodes = [
        node("Identity", ["x"], "i"),
        node("Identity", ["i"], "j"),
        conv("c", "j"),
        node("Identity", ["c"], "k"),
        node("Relu", ["k"], "y"),
        node("Identity", ["y"], "z"),
    ]
    net = model(nodes, weights("c", (3, 3, 1, 1)), {"x": (1, 3, 4, 5)}, ["y", "z"]).proto
    written = as_converted(net)
    assert [(each.op_type, each.input[0]) for each in written.graph.node] == [
        ("Conv", "x"),
        ("Relu", "c"),
        ("Identity", "y"),
    ]
    x = np.random.default_rng(9).normal(0, 2, (1, 3, 4, 5)).astype(F)
    np.testing.assert_array_equal(run_all(written, {"x": x})["z"], run_all(net, {"x": x})["z"])
    net.metadata_props.add(key=KEY, value="[]")
    assert [each.op_type for each in as_converted(net).graph.node].count("Identity") == 4


def test_an_identity_that_a_body_reads_stays():
    body = onnx.helper.make_graph([node("Neg", ["i"], "b")], "body", [], [onnx.ValueInfoProto(name="b")])
    nodes = [node("Identity", ["x"], "i"), node("If", ["c"], "y", then_branch=body, else_branch=body)]
    net = model(nodes, {"c": np.array(True)}, {"x": (1, 3)}, ["y"]).proto
    assert [each.op_type for each in as_converted(net).graph.node] == ["Identity", "If"]


def test_a_convolution_reads_what_was_turned_through_a_move_of_its_own():
    """Between a Reshape and the next convolution tensors are in the model's order of axes."""
    constants = {"s": np.array([1, 2, 2, 4, 5]), "u": np.array([1, 4, 4, 5]), **weights("d", (3, 4, 1, 1))}
    nodes = [
        node("Reshape", ["x", "s"], "q"),
        node("Transpose", ["q"], "t", perm=[0, 2, 1, 3, 4]),
        node("Reshape", ["t", "u"], "r"),
        node("Relu", ["r"], "a"),
        conv("d", "a"),
    ]
    graph = Graph(as_converted(model(nodes, constants, {"x": (1, 4, 4, 5)}, ["d"]).proto))
    assert graph.producer["d"].input[0] == "d_transpose_output"
    assert in_model_order(graph) == {"r", "a"}


def test_a_concat_with_others_takes_the_order_back():
    """The SDK turns the one that is in the model's order before it (a ShuffleNet's unit)."""
    constants = {"s": np.array([1, 4, 4, 5]), **weights("c", (4, 4, 1, 1))}
    nodes = [
        node("Reshape", ["x", "s"], "q"),
        conv("c", "q"),
        node("Concat", ["q", "c"], "mixed", axis=1),
        node("Concat", ["q", "q"], "alike", axis=1),
    ]
    net = model(nodes, constants, {"x": (1, 80)}, ["mixed", "alike"]).proto
    assert in_model_order(Graph(net)) == {"q", "alike"}


def test_a_reshape_that_keeps_the_shape_turns_nothing():
    net = model([node("Reshape", ["x", "s"], "y")], {"s": np.array([1, 3, 4, 5])}, {"x": (1, 3, 4, 5)}, ["y"]).proto
    assert not in_model_order(Graph(net))


def test_a_fully_connected_operator_reads_a_sigmoid_through_a_move():
    nodes = [node("Sigmoid", ["x"], "s"), node("Gemm", ["s", "w"], "y")]
    graph = Graph(as_converted(model(nodes, {"w": np.ones((3, 2), F)}, {"x": (1, 3)}, ["y"]).proto))
    assert graph.producer["y"].input[0] == "s_reshape" and graph.producer["s_reshape"].op_type == "Flatten"
