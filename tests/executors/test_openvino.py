from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from executors.oracle import HALF_SAMPLE, ULTRAFACE, check_against_ort
from onnx import TensorProto, helper
from small_nets import model as net
from small_nets import node

from sgsdump.errors import ConfigError, ModelError
from sgsdump.executors.conformance import ExecutorConformance, assert_raises
from sgsdump.executors.openvino import OpenvinoExecutor
from sgsdump.executors.table import open_executor

pytest.importorskip("openvino", reason="OpenVINO (the extra openvino) is not installed")


class TestConformance(ExecutorConformance):
    def make(self) -> OpenvinoExecutor:
        return OpenvinoExecutor()


def test_every_tensor_of_a_real_model(shared: Path) -> None:
    """The worst largest difference, as a share of the tensor's largest value, was 3.6e-6."""
    assert check_against_ort("openvino", shared / ULTRAFACE, 1e-5)[0] == 193


def test_every_tensor_of_a_float16_model(shared: Path) -> None:
    assert check_against_ort("openvino", shared / HALF_SAMPLE, 5e-3) == (55, {"float16"})


@pytest.mark.parametrize("kind", ["BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E5M2", "INT4", "UINT4"])
def test_types_beyond_numpy_go_in_and_out(kind: str) -> None:
    elem_type = TensorProto.DataType.Value(kind)
    dtype = helper.tensor_dtype_to_np_dtype(elem_type)
    x = np.array([1, 2, 5, 0, 7], np.float32)
    there = net([node("Cast", ["x"], "y", to=elem_type)], {}, {"x": (5,)}, ["y"], opset=21).proto
    back = net([node("Cast", ["x"], "y", to=TensorProto.FLOAT)], {}, {"x": (5,)}, ["y"], opset=21).proto
    back.graph.input[0].type.tensor_type.elem_type = elem_type
    for proto in (there, back):
        proto.ir_version = 10
        proto.graph.output[0].CopyFrom(onnx.ValueInfoProto(name="y"))
    with open_executor("openvino") as executor:
        executor.load_model(there)
        (narrow,) = executor.execute(["y"], {"x": x})
        assert narrow.dtype == dtype
        executor.load_model(back)
        (wide,) = executor.execute(["y"], {"x": narrow})
    np.testing.assert_array_equal(narrow.astype(np.float32), x)
    np.testing.assert_array_equal(wide, x)


def test_inputs_that_nothing_reads() -> None:
    proto = net([node("Relu", ["x"], "y")], {}, {"x": (1, 2), "idle": (1,)}, ["y"]).proto
    feed = {"x": np.array([[1, -1]], np.float32), "idle": np.zeros(1, np.float32)}
    with open_executor("openvino") as executor:
        executor.load_model(proto)
        np.testing.assert_array_equal(executor.execute(["y"], feed)[0], [[1, 0]])


@pytest.mark.parametrize("inputs", [["a"], ["a", "b"], ["b", "a"]])
def test_what_a_dropout_alone_reads_is_fed(inputs: list[str]) -> None:
    """OpenVINO drops the node, and calls the model's input by the name of the output."""
    nodes = [node("Dropout", [name], f"{name}.out") for name in inputs]
    outputs = [f"{name}.out" for name in ("a", "b") if name in inputs]
    proto = net(nodes, {}, {"a": (2, 3), "unread": (1,), "b": (2, 3)}, outputs, 11).proto
    feed = {name: np.full((2, 3), number, np.float32) for number, name in enumerate(("a", "b"), 1)}
    with open_executor("openvino") as executor:
        executor.load_model(proto)
        got = executor.execute(outputs, feed | {"unread": np.zeros(1, np.float32)})
    for name, value in zip(outputs, got):
        np.testing.assert_array_equal(value, feed[name[0]])


@pytest.mark.parametrize(("opset", "attributes"), [(9, {"axis": 1}), (11, {}), (12, {"axis": -2}), (13, {"axis": 1})])
def test_a_softmax_of_an_older_operator_set_is_one_of_a_matrix(opset: int, attributes: dict) -> None:
    proto = net([node("Softmax", ["x"], "y", **attributes)], {}, {"x": (2, 3, 4, 5)}, ["y"], opset).proto
    x = np.random.default_rng(3).normal(size=(2, 3, 4, 5)).astype(np.float32)
    with open_executor("openvino") as executor:
        executor.load_model(proto)
        (y,) = executor.execute(["y"], {"x": x})
    powers = np.exp(x.astype(np.float64))
    first = attributes.get("axis", 1) % 4
    summed = tuple(range(first, 4)) if opset < 13 else (first,)
    np.testing.assert_allclose(y, powers / powers.sum(summed, keepdims=True), rtol=1e-5)


def test_messages_name_the_node() -> None:
    proto = net([node("Relu", ["x"], "r")], {}, {"x": (1, 2)}, ["y"]).proto
    proto.graph.node.append(helper.make_node("MatMul", ["r", "r"], ["y"], "times"))
    with open_executor("openvino") as executor:
        assert_raises(
            ModelError, "openvino cannot load the model: node 'times' (MatMul): ", lambda: executor.load_model(proto)
        )
        proto.graph.node[1].op_type = "Odd"
        assert_raises(ModelError, "operations: Odd", lambda: executor.load_model(proto))


def test_more_than_protobuf_holds_is_told_before_it_is_read(tmp_path: Path) -> None:
    proto = net([node("Gather", ["w", "i"], "y")], {}, {"i": (2,)}, ["y"]).proto
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    weight = TensorProto(name="w", dims=[1 << 30], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    for key, text in (("location", "not there"), ("length", str(1 << 32))):
        weight.external_data.add(key=key, value=text)
    proto.graph.initializer.append(weight)
    with open_executor("openvino") as executor:
        assert_raises(ModelError, "2 GiB", lambda: executor.load_model(proto, folder=str(tmp_path)))


def test_an_unknown_device() -> None:
    with open_executor("openvino", {"device": "TPU7"}) as executor:
        assert_raises(
            ModelError,
            "TPU7",
            lambda: executor.load_model(net([node("Relu", ["x"], "y")], {}, {"x": (1,)}, ["y"]).proto),
        )
    assert_raises(ConfigError, "device", lambda: open_executor("openvino", {"devise": "CPU"}))
