"""Saved test cases, read back by the conventions of onnx's own backend tests and run by its reference evaluator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from small_nets import model, node, residual_net, run_all

from sgsdump.errors import ConfigError, ModelError
from sgsdump.models.model import Model
from sgsdump.pipeline.onnx_test_case import save_test_case
from sgsdump.pipeline.steps import Engine


def load(folder: Path) -> tuple[onnx.ModelProto, list[np.ndarray], list[np.ndarray]]:
    """As onnx.backend.test.runner does: the files by number, matched with the model's inputs and outputs by place."""
    proto = onnx.load(folder / "model.onnx")
    onnx.checker.check_model(proto, full_check=True)
    found: dict[str, list[np.ndarray]] = {}
    for kind, infos in (("input", proto.graph.input), ("output", proto.graph.output)):
        count = len(list((folder / "test_data_set_0").glob(f"{kind}_*.pb")))
        assert count == len(infos)
        tensors = [onnx.load_tensor(folder / "test_data_set_0" / f"{kind}_{i}.pb") for i in range(count)]
        assert [t.name for t in tensors] == [info.name for info in infos]
        found[kind] = [numpy_helper.to_array(t) for t in tensors]
    return proto, found["input"], found["output"]


def reference(proto: onnx.ModelProto, inputs: list[np.ndarray]) -> list[np.ndarray]:
    return ReferenceEvaluator(proto).run(None, {info.name: a for info, a in zip(proto.graph.input, inputs)})


FEED = {"data": np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32)}


@pytest.mark.parametrize("executor", ["ort", "reference"])
@pytest.mark.parametrize("depth", [None, 1, 3, 100])
def test_a_case_stands_alone(tmp_path: Path, executor: str, depth: int | None) -> None:
    net = residual_net()
    layers = save_test_case(net, Engine(executor), FEED, ["r2", "pool"], tmp_path / "case", depth)
    assert [(layer.name, layer.op_type) for layer in layers][-1:] == [("pool", "MaxPool")]
    proto, inputs, outputs = load(tmp_path / "case")
    values = {**FEED, **run_all(net.proto, FEED)}
    for info, array in zip(proto.graph.input, inputs):
        np.testing.assert_allclose(array, values[info.name], rtol=1e-5, atol=1e-6)
    for info, expected, again in zip(proto.graph.output, outputs, reference(proto, inputs)):
        np.testing.assert_allclose(expected, again, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(expected, values[info.name], rtol=1e-5, atol=1e-6)
    assert len(proto.graph.node) == min(depth or 100, 6)


def test_weights_listed_as_inputs_and_external_data(tmp_path: Path) -> None:
    net = model([node("Add", ["w", "x"], "a"), node("Neg", ["a"], "b")], {}, {"w": (2,), "x": (2,)}, ["b"])
    net.proto.ir_version = 3
    weight = net.proto.graph.initializer.add(name="w", data_type=1, dims=[2])
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="w.bin")
    (tmp_path / "w.bin").write_bytes(np.array([1, 2], np.float32).tobytes())
    feed = {"x": np.array([3, 4], np.float32)}
    save_test_case(
        Model(net.proto, tmp_path / "net.onnx", tmp_path), Engine("reference"), feed, ["b"], tmp_path / "case"
    )
    proto, inputs, outputs = load(tmp_path / "case")
    assert [info.name for info in proto.graph.input] == ["x"]
    np.testing.assert_array_equal(reference(proto, inputs)[0], outputs[0])
    np.testing.assert_array_equal(outputs[0], [-4, -6])
    assert net.proto.ir_version == 3


def test_an_old_case_is_set_aside_and_a_failure_leaves_it(tmp_path: Path) -> None:
    net = residual_net()
    save_test_case(net, Engine("reference"), FEED, ["c1"], tmp_path / "case")
    with pytest.raises(ConfigError, match="no tensor 'c9'"):
        save_test_case(net, Engine("reference"), FEED, ["c9"], tmp_path / "case")
    assert len(list(tmp_path.iterdir())) == 1
    save_test_case(net, Engine("reference"), FEED, ["r2"], tmp_path / "case")
    assert len(list(tmp_path.iterdir())) == 2
    assert load(tmp_path / "case")[0].graph.output[0].name == "r2"


def test_a_cut_where_no_array_goes_is_named(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["seq"]),
        helper.make_node("SequenceLength", ["seq"], ["n"]),
    ]
    net = model(nodes, {}, {"x": (2,)}, [])
    with pytest.raises(ModelError, match="cannot cut the model at 'seq'"):
        save_test_case(net, Engine("ort"), {"x": np.zeros(2, np.float32)}, ["n"], tmp_path / "case", depth=1)
    assert not list(tmp_path.iterdir())


def test_what_is_over_the_file_limit_is_not_even_run(tmp_path: Path) -> None:
    net = model([node("Add", ["w", "x"], "a")], {}, {"x": (1, 2)}, ["a"])
    weight = net.proto.graph.initializer.add(name="w", data_type=1, dims=[2**28, 2])
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="not_there.bin")
    weight.external_data.add(key="length", value=str(2**31))
    feed = {"x": np.zeros((1, 2), np.float32)}
    with pytest.raises(ModelError, match="exceeds the 2 GiB limit of an ONNX file; keep fewer nodes"):
        save_test_case(
            Model(net.proto, tmp_path / "net.onnx", tmp_path), Engine("reference"), feed, ["a"], tmp_path / "case"
        )
    assert not list(tmp_path.iterdir())
