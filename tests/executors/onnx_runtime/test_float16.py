"""The float16 copy of a model: it runs, its tensors keep their names, its values are float16's distance away."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_nets import model as net
from small_nets import node, residual_net, run_all

from sgsdump.errors import ModelError
from sgsdump.executors.onnx_runtime.float16 import is_float16, to_float16
from sgsdump.executors.table import open_executor
from sgsdump.models.model import open_model


def outputs(proto: onnx.ModelProto, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    with open_executor("ort") as executor:
        executor.load_model(proto)
        return executor.execute([info.name for info in proto.graph.output], feed)


def check_close(half: np.ndarray, full: np.ndarray, share: float) -> None:
    assert half.dtype == np.float16
    assert half.shape == full.shape
    np.testing.assert_allclose(half.astype(np.float64), full, rtol=0, atol=share * np.abs(full).max())


def test_a_small_net() -> None:
    proto = residual_net().proto
    before = proto.SerializeToString()
    half = to_float16(proto)
    assert proto.SerializeToString() == before
    assert is_float16(half) and not is_float16(proto)
    onnx.checker.check_model(half, full_check=True)
    assert [n.output[0] for n in half.graph.node] == ["graph_input_cast_0", *(n.output[0] for n in proto.graph.node)]
    assert half.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT
    feed = {"data": np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32)}
    full, found = run_all(proto, feed), run_all(half, feed)
    np.testing.assert_array_equal(found.pop("graph_input_cast_0"), feed["data"].astype(np.float16))
    assert list(found) == list(full)
    for name, array in found.items():
        check_close(array, full[name], 5e-3)
        assert np.any(array != full[name]), name


def test_every_weight_is_rounded() -> None:
    half = to_float16(residual_net().proto)
    for tensor, original in zip(half.graph.initializer, residual_net().proto.graph.initializer):
        np.testing.assert_array_equal(
            numpy_helper.to_array(tensor), numpy_helper.to_array(original).astype(np.float16), err_msg=tensor.name
        )


def test_a_real_model(shared: Path) -> None:
    proto = open_model(shared / "ultraface" / "version-RFB-320_without_postprocessing.onnx").proto
    feed = {"input": np.random.default_rng(0).uniform(-1, 1, (1, 3, 240, 320)).astype(np.float32)}
    for half, full in zip(outputs(to_float16(proto), feed), outputs(proto, feed)):
        check_close(half, full, 2e-2)


def test_operators_that_stay_in_float32_get_their_casts_beside_them() -> None:
    nodes = [
        node("Relu", ["x"], "r"),
        node("CumSum", ["r", "axis"], "sum"),
        node("Neg", ["sum"], "y"),
        node("Abs", ["r"], "z"),
    ]
    proto = net(nodes, {"axis": np.array(1)}, {"x": (1, 4)}, ["y", "z"], opset=14).proto
    half = to_float16(proto)
    onnx.checker.check_model(half, full_check=True)
    names = [output for each in half.graph.node for output in each.output]
    assert [name for name in names if name in ("r", "sum", "y", "z")] == ["r", "sum", "y", "z"]
    feed = {"x": np.array([[1, 2, -3, 4]], np.float32)}
    np.testing.assert_array_equal(outputs(half, feed)[0], [[-1, -3, -3, -7]])


def test_inputs_that_are_not_float32_stay_as_they_are() -> None:
    proto = net([node("Gather", ["x", "i"], "y", axis=1)], {}, {"x": (1, 4)}, ["y"]).proto
    proto.graph.input.append(helper.make_tensor_value_info("i", TensorProto.INT64, [2]))
    half = to_float16(proto)
    assert [info.type.tensor_type.elem_type for info in half.graph.input] == [TensorProto.FLOAT, TensorProto.INT64]
    feed = {"x": np.array([[1, 2, 3, 4]], np.float32), "i": np.array([3, 0])}
    np.testing.assert_array_equal(outputs(half, feed)[0], [[4, 1]])


def test_external_weights(tmp_path: Path) -> None:
    proto = residual_net().proto
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    model = open_model(tmp_path / "m.onnx")
    feed = {"data": np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32)}
    (found,), (wanted,) = (
        outputs(half, feed) for half in (to_float16(model.proto, str(tmp_path)), to_float16(residual_net().proto))
    )
    np.testing.assert_array_equal(found, wanted)


def test_a_model_that_is_float16_already_is_given_back(shared: Path) -> None:
    proto = open_model(shared / "sdaa" / "model_sample.onnx").proto
    assert is_float16(proto)
    assert to_float16(proto) is proto


def test_a_model_without_float32() -> None:
    proto = net([node("Neg", ["x"], "y")], {}, {"x": (2,)}, ["y"]).proto
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    with pytest.raises(ModelError, match="no float32"):
        to_float16(proto)


def test_what_the_converter_refuses_is_one_line() -> None:
    clash = net([node("Add", ["x", "w"], "y")], {"w": np.ones(2, np.float32)}, {"x": (2,)}, ["y"]).proto
    clash.graph.initializer.append(clash.graph.initializer[0])
    with pytest.raises(ModelError, match="converter cannot convert the model to float16: ") as caught:
        to_float16(clash)
    assert "\n" not in str(caught.value)


def test_a_body_the_converter_would_break_is_told() -> None:
    value = onnx.ValueInfoProto(name="inner")
    body = helper.make_graph([node("Neg", ["x"], "n"), node("CumSum", ["n", "axis"], "inner")], "then", [], [value])
    body.value_info.append(helper.make_tensor_value_info("n", TensorProto.FLOAT, [1, 4]))
    other = helper.make_graph([node("Neg", ["x"], "inner")], "else", [], [value])
    branch = helper.make_node("If", ["go"], ["y"], then_branch=body, else_branch=other)
    proto = net([branch], {"axis": np.array(1), "go": np.array(True)}, {"x": (1, 4)}, ["y"], opset=14).proto
    with pytest.raises(ModelError, match="inside the body of an If"):
        to_float16(proto)
