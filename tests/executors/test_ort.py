from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_nets import model as net
from small_nets import node, residual_net, run_all

from sgsdump.errors import ConfigError, ModelError
from sgsdump.executors.conformance import ExecutorConformance, assert_raises, small_feed, small_model, small_outputs
from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.executors.ort import OrtExecutor
from sgsdump.executors.table import open_executor
from sgsdump.models.model import Model, open_model
from sgsdump.models.passes.rewrites import mark_outputs


class TestConformance(ExecutorConformance):
    def make(self) -> OrtExecutor:
        return OrtExecutor()


class TestConformanceOptimised(TestConformance):
    configs = {"optimisation": "all", "threads": "2"}  # noqa: RUF012


def test_values_are_those_of_one_plain_run() -> None:
    proto = residual_net().proto
    feed = {"data": np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32)}
    wanted = run_all(proto, feed)
    with open_executor("ort") as executor:
        executor.load_model(mark_outputs(proto, wanted))
        for name, array in zip(wanted, executor.execute(list(wanted), feed)):
            np.testing.assert_array_equal(array, wanted[name], err_msg=name)


def test_every_tensor_of_a_real_model_as_the_runner_gives_it(shared: Path) -> None:
    model = open_model(shared / "ultraface" / "version-RFB-320_without_postprocessing.onnx")
    feed = {"input": np.random.default_rng(0).uniform(-1, 1, (1, 3, 240, 320)).astype(np.float32)}
    layers = {layer.name: layer.array for layer in SegmentRunner(model).run(feed)}
    with open_executor("ort") as executor:
        executor.load_model(mark_outputs(model.proto, layers))
        for name, array in zip(layers, executor.execute(list(layers), feed)):
            np.testing.assert_array_equal(array, layers[name], err_msg=name)


def test_options_are_checked() -> None:
    assert_raises(ConfigError, "extended", lambda: open_executor("ort", {"optimisation": "extendet"}))
    assert_raises(ConfigError, "threads", lambda: open_executor("ort", {"threads": "many"}))
    assert_raises(ConfigError, "did you mean 'threads'", lambda: open_executor("ort", {"thread": 1}))


def test_outputs_that_are_weights_or_inputs() -> None:
    proto = net([node("Relu", ["x"], "y")], {"w": np.arange(3, dtype=np.float32)}, {"x": (1, 2)}, ["y", "w", "x"]).proto
    x = np.array([[1, -1]], np.float32)
    with open_executor("ort") as executor:
        executor.load_model(proto)
        for array, wanted in zip(executor.execute(["w", "x", "y"], {"x": x}), [[0, 1, 2], x, [[1, 0]]]):
            np.testing.assert_array_equal(array, wanted)


def test_weights_listed_among_the_inputs_are_not_fed() -> None:
    model = small_model()
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    with open_executor("ort") as executor:
        executor.load_model(model)
        np.testing.assert_allclose(
            executor.execute(["scores"], small_feed())[0], small_outputs(small_feed())["scores"], rtol=1e-5
        )


@pytest.mark.parametrize("kind", ["BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E5M2", "INT4", "UINT4"])
def test_types_beyond_numpy_go_in_and_out(kind: str) -> None:
    elem_type = TensorProto.DataType.Value(kind)
    dtype = helper.tensor_dtype_to_np_dtype(elem_type)
    proto = net([node("Cast", ["x"], "wide", to=TensorProto.FLOAT)], {}, {"x": (5,)}, ["x", "wide"], opset=21).proto
    proto.ir_version = 10
    proto.graph.input[0].type.tensor_type.elem_type = elem_type
    del proto.graph.output[:], proto.graph.value_info[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in ("x", "wide"))
    x = np.array([1, 2, 5, 0, 7], np.float32).astype(dtype)
    with open_executor("ort") as executor:
        executor.load_model(proto)
        same, wide = executor.execute(["x", "wide"], {"x": x})
    assert same.dtype == dtype
    np.testing.assert_array_equal(wide, x.astype(np.float32))
    np.testing.assert_array_equal(same.astype(np.float32), wide)


def test_outputs_that_are_no_arrays_are_told() -> None:
    proto = net([node("Identity", ["x"], "y")], {}, {"x": (2,)}, ["y"]).proto
    proto.graph.node.append(helper.make_node("SequenceConstruct", ["x"], ["seq"]))
    proto.graph.node.append(helper.make_node("Cast", ["x"], ["text"], to=TensorProto.STRING))
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in ("y", "seq", "text"))
    feed = {"x": np.ones(2, np.float32)}
    with open_executor("ort") as executor:
        executor.load_model(proto)
        assert_raises(
            ModelError,
            "'seq' cannot be returned (a sequence, not a tensor)",
            lambda: executor.execute(["y", "seq"], feed),
        )
        assert_raises(
            ModelError, "'text' cannot be returned (holds text, not numbers)", lambda: executor.execute(["text"], feed)
        )
        np.testing.assert_array_equal(executor.execute(["y"], feed)[0], feed["x"])


def test_the_node_at_fault_has_a_name() -> None:
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"], "fold")]
    proto = net(nodes, {}, {"x": (1, 4)}, ["y"]).proto
    proto.graph.input.append(helper.make_tensor_value_info("s", TensorProto.INT64, [1]))
    with open_executor("ort") as executor:
        executor.load_model(proto)
        feed = {"x": np.ones((1, 4), np.float32), "s": np.array([5])}
        assert_raises(ModelError, "executor ort cannot run the model: ", lambda: executor.execute(["y"], feed))
        assert_raises(ModelError, "fold", lambda: executor.execute(["y"], feed))


def test_a_weight_that_is_cut_off() -> None:
    proto = net([node("Add", ["x", "w"], "y")], {"w": np.zeros((40, 40), np.float32)}, {"x": (40, 40)}, ["y"]).proto
    proto.graph.initializer[0].raw_data = bytes(100)
    with open_executor("ort") as executor:
        assert_raises(ModelError, "damaged", lambda: executor.load_model(proto))


def big_model(folder: Path) -> Model:
    """Picks from a weight of 2.4 GB in a file that is nearly all hole; its last value is 7."""
    count = 600_000_000
    with open(folder / "w.bin", "wb") as file:
        file.seek(4 * (count - 1))
        file.write(np.float32(7).tobytes())
    proto = net([node("Gather", ["w", "i"], "y")], {}, {"i": (2,)}, ["y"]).proto
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    del proto.graph.output[:]
    proto.graph.output.append(onnx.ValueInfoProto(name="y"))
    weight = TensorProto(name="w", dims=[count], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    for key, text in (("location", "w.bin"), ("offset", "0"), ("length", str(4 * count))):
        weight.external_data.add(key=key, value=text)
    proto.graph.initializer.append(weight)
    (folder / "big.onnx").write_bytes(proto.SerializeToString())
    return open_model(folder / "big.onnx")


def test_more_than_two_gigabytes_of_external_data(tmp_path: Path) -> None:
    model = big_model(tmp_path)
    with open_executor("ort") as executor:
        executor.load_model(model.proto, folder=str(model.folder))
        (picked,) = executor.execute(["y"], {"i": np.array([0, 599_999_999])})
    np.testing.assert_array_equal(picked, [0, 7])


def test_sparse_weights() -> None:
    proto = net([node("MatMul", ["x", "s"], "y")], {}, {"x": (2, 3)}, ["y"]).proto
    values = numpy_helper.from_array(np.array([2, 5], np.float32), "s")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([0, 4])), [3, 2])
    proto.graph.sparse_initializer.append(sparse)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    with open_executor("ort") as executor:
        executor.load_model(proto)
        np.testing.assert_array_equal(executor.execute(["y"], {"x": x})[0], x @ [[2, 0], [0, 0], [5, 0]])


def test_the_execution_provider_is_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CPUExecutionProvider", "CPU", "cpu"):
        with open_executor("ort", {"provider": name}) as executor:
            executor.load_model(small_model())
            assert executor._session.get_providers() == ["CPUExecutionProvider"]
    there = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    with pytest.raises(ConfigError, match=r"no execution provider 'CUDA'; installed are .*CPUExecutionProvider"):
        open_executor("ort", {"provider": "CUDA"})
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: there)
    with open_executor("ort", {"provider": "cuda"}) as executor:
        assert executor._providers == there
