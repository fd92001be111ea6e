"""diagnose --fixed of TFLite and OpenVINO models: wrong weights are found by themselves, the rest by figures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("ai_edge_litert", reason="LiteRT (the extra tflite) is not installed")

import tflite_models
from onnx import helper, numpy_helper

from sgsdump import compare, open_dump
from sgsdump.cli import main
from sgsdump.fixedpoint.verbs.diagnose_native import _made_by_operators
from sgsdump.models.model import Model, open_model
from sgsdump.models.tflite import DOMAIN, constant

LAYER = {"first/w": tflite_models.NAMES[0], "second/w": tflite_models.NAMES[1], "dense/w": tflite_models.NAMES[3]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    tflite_models.pair(tmp_path)
    Path("inputs").mkdir()
    for seed in range(2):
        np.save(f"inputs/{seed}.npy", tflite_models.picture(seed))
    return tmp_path


def diagnose(*words: str) -> int:
    return main(["diagnose", "-i", "inputs", *words])


def damage(path: Path, weight: str, share: int = 20) -> None:
    """One code of ``share`` with another bit 6."""
    model = open_model(path, native=True)
    start, size = model.native.constants[weight]
    data = bytearray(path.read_bytes())
    for offset in range(start, start + size, share):
        data[offset] ^= 64
    path.write_bytes(data)


def test_a_good_model(folder: Path, capsys: pytest.CaptureFixture) -> None:
    for seed in range(2):  # the worse one last
        np.save(f"inputs/{1 - seed}.npy", tflite_models.picture(seed))
    assert diagnose("-m", "float.tflite", "--fixed", "int8.tflite") == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0].startswith("PASS: output Identity ")
    assert "All weights equal the rounded float weights." in said
    assert "Not measured: the contribution of each tensor" in said
    assert {path.name for path in Path("diagnosis").iterdir()} >= {
        "report.html",
        "layers.csv",
        "layers.json",
        "netron.onnx",
    }
    assert len(json.loads(Path("diagnosis/layers.json").read_text())["rows"]) == 5
    page = Path("diagnosis/report.html").read_text()
    said_of = {seed: [outputs(f"{name}.tflite", f"inputs/{seed}.npy") for name in ("float", "int8")] for seed in (0, 1)}
    error = {seed: np.abs(own - real).sum() / np.abs(real).sum() for seed, (real, own) in said_of.items()}
    worst = max(error, key=error.__getitem__)
    assert f"Input with the largest error: <bdi>{worst}.npy</bdi>" in page
    assert all(f"<strong>{values.max():.6f}</strong>" in page for values in said_of[worst])


def outputs(model: str, path: str) -> np.ndarray:
    """By the interpreter itself, of codes what they mean; its delegate rounds otherwise."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    run = Interpreter(model, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    run.allocate_tensors()
    taken, given = run.get_input_details()[0], run.get_output_details()[0]
    values = np.load(path)
    if (step := taken["quantization"])[0]:
        values = np.clip(np.rint(values / step[0]) + step[1], -128, 127)
    run.set_tensor(taken["index"], values.astype(taken["dtype"]))
    run.invoke()
    scale, zero = given["quantization"]
    made = run.get_tensor(given["index"])
    return (made.astype(np.float64) - zero) * scale if scale else made


@pytest.mark.parametrize("weight", [*LAYER])
def test_a_planted_weight_is_named_first(folder: Path, weight: str, capsys: pytest.CaptureFixture) -> None:
    damage(folder / "int8.tflite", weight)
    assert diagnose("-m", "float.tflite", "--fixed", "int8.tflite") == 0
    said = capsys.readouterr().out
    assert said.splitlines()[1].startswith(f"Cause: the parameter {weight} differs at ")
    assert (
        said.splitlines()[2]
        == "Next: convert the model again, because its weights differ from the weights of the float model."
    )
    assert f"Weights that differ from the rounded float weights: {weight} (5." in said
    finding = json.loads(Path("diagnosis/layers.json").read_text())["findings"][0]
    assert (finding["kind"], finding["layer"], finding["names"]) == ("argument", LAYER[weight], [weight])


@pytest.mark.parametrize("weight", ["first/w", "second/w"])
def test_compare_names_the_layer_of_a_planted_weight(folder: Path, weight: str, capsys) -> None:
    damage(folder / "int8.tflite", weight, 4)
    for name in ("float", "int8"):
        assert main(["dump", "-m", f"{name}.tflite", "-i", "inputs/0.npy", "-o", f"{name}.bin"]) == 0
    capsys.readouterr()
    main(["compare", "int8.bin", "float.bin"])
    cause = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("Cause: "))
    assert f" {LAYER[weight]} (" in cause


def test_a_float_model_in_onnx(folder: Path, capsys: pytest.CaptureFixture) -> None:
    """Its weights lie in another order of axes, its tensors too."""
    held = tflite_models.weights()
    nodes = [
        helper.make_node("Conv", ["x", "first/w", "first/b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], [tflite_models.NAMES[0]]),
        helper.make_node(
            "Conv", [tflite_models.NAMES[0], "second/w", "second/b"], [tflite_models.NAMES[1]], pads=[1, 1, 1, 1]
        ),
    ]
    constants = [
        numpy_helper.from_array(held[name].transpose(0, 3, 1, 2) if held[name].ndim == 4 else held[name], name)
        for name in ("first/w", "first/b", "second/w", "second/b")
    ]
    infos = [helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", (1, 3, 8, 8)),)]
    outputs = [helper.make_tensor_value_info(tflite_models.NAMES[1], 1, (1, 6, 8, 8))]
    graph = helper.make_graph(nodes, "net", infos, outputs, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "float.onnx")
    damage(folder / "int8.tflite", "second/w")
    assert diagnose("-m", "float.onnx", "--fixed", "int8.tflite") == 0
    said = capsys.readouterr().out
    assert said.splitlines()[1].startswith("Cause: the parameter second/w differs at ")
    assert "first/w" not in said


def test_weights_of_another_model_are_not_judged(folder: Path, capsys: pytest.CaptureFixture) -> None:
    Path("float.tflite").write_bytes(tflite_models.float_model(tflite_models.weights(9)))
    assert diagnose("-m", "float.tflite", "--fixed", "int8.tflite") == 0
    assert "\nWeights not judged: most differ from the rounded weights of this float model" in capsys.readouterr().out


def test_a_float_model_whose_weights_are_stored_in_codes(folder: Path, capsys: pytest.CaptureFixture) -> None:
    """Only its weights were quantised (the converter's dynamic range): both sides are some steps off."""
    held = tflite_models.weights()
    rough = {name: np.rint(values / 0.01) * 0.01 if name.endswith("/w") else values for name, values in held.items()}
    Path("float.tflite").write_bytes(tflite_models.float_model(held, codes=0.01))
    assert diagnose("-m", "float.tflite", "--fixed", "int8.tflite") == 0
    assert "All weights equal the rounded float weights." in capsys.readouterr().out
    assert max(np.abs(rough[name] - held[name]).max() for name in held) > 0.004


def test_limits_decide_the_exit_status(folder: Path) -> None:
    assert diagnose("-m", "float.tflite", "--fixed", "int8.tflite", "--max-rmse", "0.5") == 0
    assert diagnose("-m", "float.tflite", "--fixed", "int8.tflite", "--max-rmse", "0.001") == 1


def test_trouble_is_one_line_and_leaves_nothing(folder: Path, capsys: pytest.CaptureFixture) -> None:
    data = Path("int8.tflite").read_bytes()
    Path("cut.tflite").write_bytes(data[:200])
    for words, why in (
        (("-m", "float.tflite", "--fixed", "cut.tflite"), "if the file is truncated or damaged"),
        (("-m", "float.tflite", "--fixed", "none.tflite"), "no such model file"),
        (("-m", "float.tflite"), "convert the model to ONNX"),
        (("-m", "float.tflite", "--fixed", "int8.tflite", "--scheduler", "tcp://127.0.0.1:1"), "--scheduler"),
    ):
        assert diagnose(*words) == 2
        error = capsys.readouterr().err
        assert why in error
        assert "Traceback" not in error
        assert not Path("diagnosis").exists()


def test_a_constant_is_the_interpreters(folder: Path) -> None:
    from ai_edge_litert.interpreter import Interpreter

    model = open_model(folder / "int8.tflite", native=True)
    run = Interpreter(str(folder / "int8.tflite"))
    run.allocate_tensors()
    for facts in run.get_tensor_details():
        if facts["name"] in model.native.constants:
            np.testing.assert_array_equal(constant(model, facts["name"]), run.get_tensor(facts["index"]))
    assert len(model.native.constants) == 6


def test_a_model_given_to_compare_is_said_to_be_one(folder: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["compare", "int8.tflite", "float.tflite"]) == 2
    said = capsys.readouterr().err
    assert "int8.tflite is a model, not a dump; dump it first: sgsdump dump -m int8.tflite -i INPUT -o int8.bin" in said


def test_fused_names_are_shown_as_one(folder: Path, capsys: pytest.CaptureFixture) -> None:
    from sgsdump.reports.text import shortened, unfused

    name = "model/activation/Relu;model/batch_normalization/FusedBatchNormV3;model/conv2d/Conv2D1"
    assert unfused(name) == shortened(name, 30) == "model/activation/Relu;…"
    for kept in ("a;b", "conv1", "semicolon at the end of a name that is longer than any other one;"):
        assert unfused(kept) == kept


def test_fake_quantised_ir_pairs_and_is_diagnosed(folder: Path, capsys: pytest.CaptureFixture) -> None:
    """A FakeQuantize is an edge: the float tensor pairs with what it makes."""
    openvino = pytest.importorskip("openvino", reason="OpenVINO (the extra openvino) is not installed")
    from openvino import opset13 as ops

    x = ops.parameter([1, 3, 8, 8], np.float32, "x")
    w = np.random.default_rng(2).normal(0, 0.3, (4, 3, 3, 3)).astype(np.float32)

    def net(quantised: bool) -> object:
        node = ops.convolution(x, ops.constant(w), [1, 1], [0, 0], [0, 0], [1, 1])
        node.set_friendly_name("conv")
        node.output(0).get_tensor().set_names({"conv"})
        if quantised:
            ends = [ops.constant(np.float32(end)) for end in (-2, 2, -2, 2)]
            node = ops.fake_quantize(node, *ends, 256)
            node.set_friendly_name("conv/fq")
            node.output(0).get_tensor().set_names({"conv/fq"})
        node = ops.relu(node)
        node.set_friendly_name("relu")
        node.output(0).get_tensor().set_names({"relu"})
        return openvino.Model([node], [x], "net")

    for name, quantised in (("float", False), ("int8", True)):
        openvino.save_model(net(quantised), f"{name}.xml", compress_to_fp16=False)
        np.save("x.npy", np.random.default_rng(3).random((1, 3, 8, 8)).astype(np.float32))
        assert main(["dump", "-m", f"{name}.xml", "-i", "x.npy", "-o", f"{name}.bin"]) == 0
    comparison = compare("int8.bin", "float.bin")
    assert {row.name: row.sample_name for row in comparison.rows} == {"conv": "conv/fq", "relu": "relu"}
    step = 4 / 255
    wanted = np.clip(np.rint(open_dump("float.bin")["conv"].real() / step) * step, -2, 2)
    assert np.abs(open_dump("int8.bin")["conv/fq"].real() - wanted).max() < 1.01 * step
    np.save("inputs/0.npy", np.load("x.npy"))
    Path("inputs/1.npy").unlink()
    capsys.readouterr()
    assert diagnose("-m", "float.xml", "--fixed", "int8.xml") == 0
    assert (
        "Not measured: the contribution of each tensor, because OpenVINO runs its model as a whole"
        in capsys.readouterr().out
    )
    assert "Input with the largest error: <bdi>0.npy</bdi>" in Path("diagnosis/report.html").read_text()


def test_what_is_to_stay_float_is_called_by_its_operator(tmp_path: Path) -> None:
    """``conv1`` is ``conv`` in the scale of a concatenation after it; TFLite's debugger knows ``conv``."""
    nodes = [
        helper.make_node("CONV_2D", ["x"], ["conv"], domain=DOMAIN),
        helper.make_node("QUANTIZE", ["conv"], ["conv1"], domain=DOMAIN),
        helper.make_node("CONCATENATION", ["conv1", "x"], ["y"], domain=DOMAIN),
    ]
    proto = helper.make_model(helper.make_graph(nodes, "net", [], []))
    assert _made_by_operators(Model(proto, tmp_path / "net.tflite"), ["conv1", "y", "conv"]) == ["conv", "y"]
