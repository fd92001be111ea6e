"""The graph of an OpenVINO model, and its tensors against OpenVINO's own run of it; damaged files."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from small_nets import model as net
from small_nets import node

from sgsdump import compare, open_dump
from sgsdump.cli import main
from sgsdump.errors import ModelError
from sgsdump.executors.table import open_runner
from sgsdump.models.model import open_model

openvino = pytest.importorskip("openvino", reason="OpenVINO (the extra openvino) is not installed")


@pytest.fixture
def ir(tmp_path: Path) -> Path:
    """net.onnx and the same as net.xml, its weights compressed to float16 as OpenVINO does by default."""
    w = np.random.default_rng(0).normal(0, 0.3, (4, 3, 3, 3)).astype(np.float32)
    nodes = [
        node("Conv", ["x", "w"], "c"),
        node("Relu", ["c"], "r"),
        onnx.helper.make_node("Split", ["r"], ["a", "b"], axis=1, num_outputs=2),
        node("Add", ["a", "b"], "y"),
    ]
    proto = net(nodes, {"w": w}, {"x": (1, 3, 8, 8)}, ["y", "a"], opset=18).proto
    onnx.save(proto, tmp_path / "net.onnx")
    openvino.save_model(openvino.Core().read_model(tmp_path / "net.onnx"), tmp_path / "net.xml")
    return tmp_path / "net.xml"


def test_the_graph_is_the_onnx_models(ir: Path) -> None:
    graph = open_model(ir, native=True).proto.graph
    assert [(each.op_type, [*each.output]) for each in graph.node] == [
        ("Convolution", ["c"]),
        ("ReLU", ["r"]),
        ("Split", ["a", "b"]),
        ("Add", ["y"]),
    ]
    assert {info.name for info in graph.output} == {"y", "a"}
    assert [info.name for info in graph.input] == ["x"]
    assert len(graph.initializer) == 3  # the halves, what is made of them, the axis


def test_every_tensor_is_openvinos(ir: Path) -> None:
    x = np.random.default_rng(1).random((1, 3, 8, 8)).astype(np.float32)
    given = {layer.name: layer.array for layer in open_runner(open_model(ir, native=True)).run({"x": x})}
    core = openvino.Core()
    for name in ("c", "r", "a", "b", "y"):
        model = core.read_model(ir)
        own = next(out for op in model.get_ordered_ops() for out in op.outputs() if name in out.get_names())
        alone = core.compile_model(
            openvino.Model([own], model.get_parameters()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
        )
        np.testing.assert_allclose(given[name], alone({"x": x})[0], rtol=1e-5, atol=1e-6)
    assert [*given] == ["c", "r", "a", "b", "y"]


def test_dump_pairs_with_the_onnx_models(ir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ir.parent)
    np.save("x.npy", np.random.default_rng(1).random((1, 3, 8, 8)).astype(np.float32))
    for name in ("net.xml", "net.onnx"):
        assert main(["dump", "-m", name, "-i", "x.npy", "-o", f"{Path(name).suffix[1:]}.bin"]) == 0
    comparison = compare("xml.bin", "onnx.bin")
    assert [row.name for row in comparison.rows] == ["c", "r", "a", "b", "y"]
    assert max(row.rmse for row in comparison.rows) < 1e-3
    assert main(["pipeline", "full", "-m", "net.xml", "-i", "x:x.npy", "-o", "folder"]) == 0
    np.testing.assert_array_equal(open_dump("folder")["y"].real(), open_dump("xml.bin")["y"].real("NCHW"))


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda data: b"", "empty"),
        (lambda data: data[: len(data) // 2], "is not the graph of an OpenVINO model"),
        (lambda data: b"<net><layers></layers></net>", "holds no operators"),
        (lambda data: b'<!DOCTYPE net [<!ENTITY a "b">]>' + data, "has XML definitions"),
        (lambda data: data.replace(b"<dim>8</dim>", b"<dim>many</dim>"), "has 'many' instead of a number"),
        (lambda data: b'<?xml version="1.0"?><html></html>', "its root is <html>"),
    ],
)
def test_damaged_graphs(ir: Path, damage, what: str) -> None:
    ir.write_bytes(damage(ir.read_bytes()))
    with pytest.raises(ModelError, match=what) as raised:
        open_model(ir, native=True)
    assert "\n" not in str(raised.value)


def test_weights_that_are_missing_or_cut_off(ir: Path) -> None:
    weights = ir.with_suffix(".bin")
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(ModelError, match=r"needs .* bytes of weights, .*net\.bin has 100"):
        open_model(ir, native=True)
    weights.unlink()
    with pytest.raises(ModelError, match=r"net\.bin, which is missing"):
        open_model(ir, native=True)


def test_any_damage_is_one_line(ir: Path) -> None:
    whole, drawn = ir.read_bytes(), random.Random(5)
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(drawn.choice([1, 3])):
            data[drawn.randrange(len(data))] = drawn.choice(b'<>"/&0a\xff')
        ir.write_bytes(data)
        try:
            open_model(ir, native=True)
        except ModelError as error:
            assert "\n" not in str(error)


def test_what_a_loop_holds_is_listed_as_not_dumped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    from onnx import helper, numpy_helper

    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Sin", ["h"], ["s"]),
            helper.make_node("Add", ["s", "x"], ["next"]),
        ],
        "body",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in (("i", 7, []), ("go", 9, []), ("h", 1, [1, 4]))],
        [helper.make_tensor_value_info(n, t, s) for n, t, s in (("on", 9, []), ("next", 1, [1, 4]))],
    )
    nodes = [helper.make_node("Loop", ["n", "", "x"], ["last"], body=body), helper.make_node("Sin", ["last"], ["y"])]
    ends = [[helper.make_tensor_value_info(name, 1, [1, 4])] for name in ("x", "y")]
    count = [numpy_helper.from_array(np.array(3), "n")]
    graph = helper.make_graph(nodes, "g", *ends, count)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "l.onnx")
    monkeypatch.chdir(tmp_path)
    openvino.save_model(openvino.Core().read_model("l.onnx"), "l.xml")
    kinds = [node.op_type for node in open_model("l.xml", native=True).proto.graph.node]
    assert set(kinds) & {"Loop", "TensorIterator"}
    np.save("x.npy", np.ones((1, 4), np.float32))
    assert main(["dump", "-m", "l.xml", "-i", "x.npy", "-o", "l.bin"]) == 0
    assert "/body (): is inside a " in capsys.readouterr().out
