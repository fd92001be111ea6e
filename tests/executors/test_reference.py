from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper
from small_nets import model as net
from small_nets import node

from sgsdump.errors import ModelError
from sgsdump.executor import open_executor
from sgsdump.executor_conformance import ExecutorConformance, told
from sgsdump.executors.reference import ReferenceExecutor
from sgsdump.model import open_model
from sgsdump.passes.mark_outputs import mark_outputs


class TestConformance(ExecutorConformance):
    def make(self) -> ReferenceExecutor:
        return ReferenceExecutor()


def test_every_tensor_of_a_real_model(shared: Path) -> None:
    """Against onnxruntime; the worst largest difference, as a share of the tensor's largest value, was 3.8e-6."""
    model = open_model(shared / "ultraface" / "version-RFB-320_without_postprocessing.onnx").proto
    names = [name for each in model.graph.node for name in each.output if each.op_type != "Constant"]
    model = mark_outputs(model, names)
    feed = {"input": np.random.default_rng(0).uniform(0, 1, (1, 3, 240, 320)).astype(np.float32)}
    found = {}
    for name in ("ort", "reference"):
        with open_executor(name) as executor:
            executor.load_model(model)
            found[name] = executor.execute(names, feed)
    assert len(names) == 193
    for name, array, wanted in zip(names, found["reference"], found["ort"]):
        assert (array.dtype, array.shape) == (wanted.dtype, wanted.shape), name
        np.testing.assert_allclose(array, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max(), err_msg=name)


def test_every_tensor_of_a_float16_model(shared: Path) -> None:
    model = open_model(shared / "sdaa" / "model_sample.onnx").proto
    names = [name for each in model.graph.node for name in each.output if each.op_type != "Constant"]
    model = mark_outputs(model, names)
    feed = {"eager_tmp_0": np.random.default_rng(0).uniform(0, 1, (1, 3, 48, 192)).astype(np.float32)}
    found = {}
    for name in ("ort", "reference"):
        with open_executor(name) as executor:
            executor.load_model(model)
            found[name] = executor.execute(names, feed)
    assert len(names) == 55
    for name, array, wanted in zip(names, found["reference"], found["ort"]):
        assert (array.dtype, array.shape) == (np.float16, wanted.shape), name
        largest = np.abs(wanted.astype(np.float32)).max()
        np.testing.assert_allclose(array.astype(float), wanted.astype(float), rtol=0, atol=5e-3 * largest, err_msg=name)


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
        told(
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
        told(ModelError, "'seq' cannot be given: a sequence", lambda: executor.execute(["y", "seq"], feed))
        told(ModelError, "'text' cannot be given: holds text", lambda: executor.execute(["text"], feed))


def test_bfloat16_stays_bfloat16() -> None:
    proto = net([node("Cast", ["x"], "y", to=TensorProto.BFLOAT16)], {}, {"x": (2,)}, ["y"]).proto
    del proto.graph.output[:]
    proto.graph.output.append(onnx.ValueInfoProto(name="y"))
    with open_executor("reference") as executor:
        executor.load_model(proto)
        (y,) = executor.execute(["y"], {"x": np.array([1.1, 3], np.float32)})
    assert y.dtype == helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16)
    np.testing.assert_array_equal(y.astype(np.float32), np.array([1.1015625, 3], np.float32))
