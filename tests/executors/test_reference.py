"""Operators whose definition onnx's evaluator misses, held against onnxruntime; what it passes over is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from executors.oracle import HALF_SAMPLE, ULTRAFACE, check_against_ort
from onnx import TensorProto, helper
from small_nets import model as net
from small_nets import node, run_all

from sgsdump.errors import ModelError
from sgsdump.executors.conformance import ExecutorConformance, assert_raises
from sgsdump.executors.reference import ReferenceExecutor
from sgsdump.executors.table import open_executor


class TestConformance(ExecutorConformance):
    def make(self) -> ReferenceExecutor:
        return ReferenceExecutor()


def test_every_tensor_of_a_real_model(shared: Path) -> None:
    """The worst largest difference, as a share of the tensor's largest value, was 3.8e-6."""
    assert check_against_ort("reference", shared / ULTRAFACE, 1e-5)[0] == 193


def test_every_tensor_of_a_float16_model(shared: Path) -> None:
    assert check_against_ort("reference", shared / HALF_SAMPLE, 5e-3) == (55, {"float16"})


def test_batch_normalisation_of_older_operator_sets_is_not_trained() -> None:
    names = ("scale", "bias", "mean", "var")
    rng = np.random.default_rng(0)
    constants = {name: rng.uniform(0.5, 2, 3).astype(np.float32) for name in names}
    x = rng.normal(size=(2, 3, 4, 5)).astype(np.float32)
    scale, bias, mean, var = (constants[name].reshape(3, 1, 1).astype(np.float64) for name in names)
    for opset, given in ((9, {"epsilon": 1e-3, "momentum": 0.9}), (13, {}), (15, {})):
        proto = net([node("BatchNormalization", ["x", *names], "y", **given)], constants, {"x": x.shape}, ["y"], opset)
        with open_executor("reference") as executor:
            executor.load_model(proto.proto)
            (y,) = executor.execute(["y"], {"x": x})
        wanted = scale * (x - mean) / np.sqrt(var + given.get("epsilon", 1e-5)) + bias
        np.testing.assert_allclose(y, wanted, rtol=0, atol=1e-5, err_msg=str(opset))


def test_the_node_at_fault_has_a_name() -> None:
    body = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Reshape", ["r", "s"], ["y"], "fold")]
    proto = net(body, {"s": np.array([5])}, {"x": (1, 4)}, ["y"]).proto
    with open_executor("reference") as executor:
        executor.load_model(proto)
        feed = {"x": np.ones((1, 4), np.float32)}
        assert_raises(
            ModelError, "reference cannot run the model: node 'fold' (Reshape): ", lambda: executor.execute(["y"], feed)
        )


def test_outputs_that_are_no_arrays_are_told() -> None:
    proto = net([node("Identity", ["x"], "y")], {}, {"x": (2,)}, ["y"]).proto
    proto.graph.node.append(helper.make_node("SequenceConstruct", ["x"], ["seq"]))
    proto.graph.node.append(helper.make_node("Cast", ["x"], ["text"], to=TensorProto.STRING))
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in ("seq", "text"))
    feed = {"x": np.ones(2, np.float32)}
    with open_executor("reference") as executor:
        executor.load_model(proto)
        assert_raises(ModelError, "'seq' cannot be returned: a sequence", lambda: executor.execute(["y", "seq"], feed))
        assert_raises(
            ModelError, "'text' cannot be returned: the output holds text", lambda: executor.execute(["text"], feed)
        )


def test_bfloat16_stays_bfloat16() -> None:
    proto = net([node("Cast", ["x"], "y", to=TensorProto.BFLOAT16)], {}, {"x": (2,)}, ["y"]).proto
    del proto.graph.output[:]
    proto.graph.output.append(onnx.ValueInfoProto(name="y"))
    with open_executor("reference") as executor:
        executor.load_model(proto)
        (y,) = executor.execute(["y"], {"x": np.array([1.1, 3], np.float32)})
    assert y.dtype == helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16)
    np.testing.assert_array_equal(y.astype(np.float32), np.array([1.1015625, 3], np.float32))


X = np.random.default_rng(5).normal(size=(2, 4, 7, 9)).astype(np.float32)
STEPS = np.random.default_rng(6).normal(size=(5, 1, 3)).astype(np.float32)
ROIS = {"rois": np.array([[1, 1, 12, 10], [0, 2, 5, 9]], np.float32), "of": np.array([0, 1])}


def reference(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    with open_executor("reference") as executor:
        executor.load_model(proto)
        return executor.execute(["y"], {"x": x})[0]


@pytest.mark.parametrize(
    ("opset", "op_type", "attributes"),
    [
        (11, "Softmax", {"axis": 1}),
        (12, "Softmax", {}),
        (9, "LogSoftmax", {"axis": 2}),
        (11, "Hardmax", {"axis": 1}),
        (17, "LpNormalization", {"p": 1, "axis": 1}),
        (17, "MaxPool", {"kernel_shape": [3, 3], "pads": [0, 0, 1, 1]}),
        (17, "MaxPool", {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER"}),
        (17, "MaxPool", {"kernel_shape": [3, 3], "dilations": [2, 1], "strides": [2, 3], "ceil_mode": 1}),
        (17, "AveragePool", {"kernel_shape": [3, 3], "strides": [3, 2], "ceil_mode": 1}),
        (19, "AveragePool", {"kernel_shape": [2, 3], "pads": [1, 0, 0, 1], "strides": [3, 2], "count_include_pad": 1}),
        (17, "AveragePool", {"kernel_shape": [2, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"}),
        (10, "RoiAlign", {"output_height": 3, "output_width": 3, "spatial_scale": 0.5}),
    ],
)
def test_as_onnxruntime_computes_it(opset: int, op_type: str, attributes: dict) -> None:
    constants = ROIS if op_type == "RoiAlign" else {}
    proto = net([node(op_type, ["x", *constants], "y", **attributes)], constants, {"x": X.shape}, ["y"], opset).proto
    np.testing.assert_allclose(reference(proto, X), run_all(proto, {"x": X})["y"], rtol=1e-5, atol=1e-6)


def test_in_the_body_of_another_operator_too() -> None:
    bodies = {
        name: helper.make_graph([node(op_type, ["x"], "z", axis=1)], name, [], [onnx.ValueInfoProto(name="z")])
        for name, op_type in (("then_branch", "Softmax"), ("else_branch", "LogSoftmax"))
    }
    proto = net([node("If", ["yes"], "y", **bodies)], {"yes": np.array(True)}, {"x": X.shape}, ["y"], 11).proto
    powers = np.exp(X.astype(np.float64))
    wanted = powers / powers.sum((1, 2, 3), keepdims=True)
    np.testing.assert_allclose(reference(proto, X), wanted, rtol=1e-5)


def test_a_loop_without_a_condition_runs_all_its_trips() -> None:
    given = [("trip", TensorProto.INT64, []), ("on", TensorProto.BOOL, []), ("v", TensorProto.FLOAT, X.shape)]
    inputs = [helper.make_tensor_value_info(*each) for each in given]
    outputs = [onnx.ValueInfoProto(name=name) for name in ("go", "twice")]
    body = [node("Identity", ["on"], "go"), node("Add", ["v", "v"], "twice")]
    loop = node("Loop", ["trips", "", "x"], "y", body=helper.make_graph(body, "body", inputs, outputs))
    proto = net([loop], {"trips": np.array(3)}, {"x": X.shape}, ["y"], 17).proto
    np.testing.assert_array_equal(reference(proto, X), 8 * X)


@pytest.mark.parametrize("op_type", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize(
    ("attributes", "lengths", "refused"),
    [({}, [5], ""), ({}, [3], "sequence_lens"), ({"clip": 0.1}, [5], "clip")],
)
def test_what_the_evaluator_passes_over_is_refused(op_type, attributes, lengths, refused) -> None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op_type]
    rng = np.random.default_rng(7)
    constants = {
        "w": rng.normal(size=(1, 4 * gates, 3)).astype(np.float32),
        "r": rng.normal(size=(1, 4 * gates, 4)).astype(np.float32),
        "b": rng.normal(size=(1, 8 * gates)).astype(np.float32),
        "lengths": np.array(lengths, np.int32),
    }
    one = node(op_type, ["x", "w", "r", "b", "lengths"], "y", hidden_size=4, **attributes)
    proto = net([one], constants, {"x": STEPS.shape}, ["y"], 17).proto
    if refused:
        with pytest.raises(ModelError, match=f"ignores {refused} of the operator {op_type}"):
            reference(proto, STEPS)
    else:
        np.testing.assert_allclose(reference(proto, STEPS), run_all(proto, {"x": STEPS})["y"], rtol=1e-4, atol=1e-5)


def test_activations_the_evaluator_passes_over_are_refused() -> None:
    constants = {"w": np.ones((1, 12, 3), np.float32), "r": np.ones((1, 12, 4), np.float32)}
    one = node("GRU", ["x", "w", "r"], "y", hidden_size=4, activations=["Sigmoid", "Relu"])
    with pytest.raises(ModelError, match="ignores activations of the operator GRU"):
        reference(net([one], constants, {"x": STEPS.shape}, ["y"], 17).proto, STEPS)
