"""Folding BatchNormalization and constants keeps the function; onnxruntime is the judge."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from small_nets import conv, model, node, run_all, weights

from sgsdump.models.graph import Graph
from sgsdump.models.passes.fold import fold_batchnorm, fold_constants


def norm_constants(channels, seed):
    rng = np.random.default_rng(seed)
    return {
        "gamma": rng.normal(1, 0.3, channels).astype(np.float32),
        "beta": rng.normal(0, 0.3, channels).astype(np.float32),
        "mean": rng.normal(0, 0.3, channels).astype(np.float32),
        "var": rng.uniform(0.2, 2, channels).astype(np.float32),
    }


def norm_net(op_type, extra_reader=False):
    shape = (6, 4, 3, 3) if op_type == "Conv" else (4, 6, 3, 3)
    rng = np.random.default_rng(5)
    constants = {"w": rng.normal(0, 0.3, shape).astype(np.float32), **norm_constants(6, 6)}
    nodes = [
        helper.make_node(op_type, ["x", "w"], ["y"], name="y"),
        node("BatchNormalization", ["y", "gamma", "beta", "mean", "var"], "z", epsilon=1e-3),
    ]
    return model(nodes, constants, {"x": (1, 4, 5, 5)}, ["z", "y"] if extra_reader else ["z"])


def test_the_folded_bias_takes_no_name_that_the_model_has():
    shape = {"z#bias": np.full(6, 2.0, np.float32).reshape(1, 6, 1, 1)}
    net = norm_net("Conv").proto
    net.graph.initializer.append(numpy_helper.from_array(shape["z#bias"], "z#bias"))
    net.graph.node.append(node("Mul", ["z", "z#bias"], "m"))
    net.graph.output[0].name = "m"
    x = np.random.default_rng(1).normal(size=(1, 4, 5, 5)).astype(np.float32)
    np.testing.assert_allclose(run_all(fold_batchnorm(net), {"x": x})["m"], run_all(net, {"x": x})["m"], atol=1e-5)


def test_folded_batchnorm_computes_the_same_for_conv_and_its_transpose():
    x = np.random.default_rng(1).normal(size=(1, 4, 5, 5)).astype(np.float32)
    for op_type in ("Conv", "ConvTranspose"):
        net = norm_net(op_type).proto
        folded = fold_batchnorm(net)
        assert [n.op_type for n in folded.graph.node] == [op_type]
        assert len(net.graph.node) == 2, "the model given is left alone"
        np.testing.assert_allclose(run_all(folded, {"x": x})["z"], run_all(net, {"x": x})["z"], atol=1e-5)
        assert set(Graph(folded).constants) == set(folded.graph.node[0].input[1:])


def test_a_convolution_that_others_read_is_not_folded():
    assert len(fold_batchnorm(norm_net("Conv", extra_reader=True).proto).graph.node) == 2


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
