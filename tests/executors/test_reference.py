from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from executors.oracle import HALF_SAMPLE, ULTRAFACE, check_against_ort
from onnx import TensorProto, helper
from small_nets import model as net
from small_nets import node

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
        assert_raises(ModelError, "'seq' cannot be given: a sequence", lambda: executor.execute(["y", "seq"], feed))
        assert_raises(ModelError, "'text' cannot be given: holds text", lambda: executor.execute(["text"], feed))


def test_bfloat16_stays_bfloat16() -> None:
    proto = net([node("Cast", ["x"], "y", to=TensorProto.BFLOAT16)], {}, {"x": (2,)}, ["y"]).proto
    del proto.graph.output[:]
    proto.graph.output.append(onnx.ValueInfoProto(name="y"))
    with open_executor("reference") as executor:
        executor.load_model(proto)
        (y,) = executor.execute(["y"], {"x": np.array([1.1, 3], np.float32)})
    assert y.dtype == helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16)
    np.testing.assert_array_equal(y.astype(np.float32), np.array([1.1015625, 3], np.float32))
