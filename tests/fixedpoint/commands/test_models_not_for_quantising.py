"""Models whose outputs, constants or operators have nothing to do with quantising go through all the same."""

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_nets import conv, model, node, weights

from sgsdump.cli import main
from sgsdump.comparison.compare import compare
from sgsdump.dumps.io import open_dump
from sgsdump.fixedpoint.quantisation import calibration, fixed_model
from sgsdump.fixedpoint.quantisation.integer.emitter import Emitter

INI = """[INPUT_CONFIG]
inputs = data;
training_input_formats = RAWDATA_S16_NHWC;
input_formats = RAWDATA_S16_NHWC;
quantizations = TRUE;
[OUTPUT_CONFIG]
outputs = prob;
dequantizations = TRUE;
"""
SHAPE = (1, 3, 8, 8)


def typed(name: str, kind: onnx.TypeProto) -> onnx.ValueInfoProto:
    return onnx.ValueInfoProto(name=name, type=kind)


def net() -> onnx.ModelProto:
    constants = {**weights("c", (4, 3, 3, 3), 1), **weights("d", (4, 4, 1, 1), 2)}
    nodes = [conv("c", "data", pads=[1] * 4), node("Relu", ["c"], "r"), conv("d", "r"), node("Abs", ["d"], "prob")]
    return model(nodes, constants, {"data": SHAPE}, ["prob"], 17).proto


def a_constant_is_an_output(proto: onnx.ModelProto) -> None:
    value = numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(2, 3))
    proto.graph.node.append(helper.make_node("Constant", [], ["anchors"], value=value))
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [2, 3])
    proto.graph.output.extend([typed("anchors", kind), typed("c.b", helper.make_tensor_type_proto(1, [4]))])


def the_input_is_an_output(proto: onnx.ModelProto) -> None:
    proto.graph.output.append(proto.graph.input[0])


def a_sequence_is_an_output(proto: onnx.ModelProto) -> None:
    proto.graph.node.append(node("SplitToSequence", ["prob"], "parts", axis=1))
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    proto.graph.output.append(typed("parts", kind))


def it_quantises_dynamically(proto: onnx.ModelProto) -> None:
    proto.graph.node.append(helper.make_node("DynamicQuantizeLinear", ["prob"], ["q", "q.scale", "q.zero"]))
    proto.graph.node.append(node("DequantizeLinear", ["q", "q.scale", "q.zero"], "again"))
    proto.graph.output.append(typed("again", helper.make_tensor_type_proto(TensorProto.FLOAT, None)))


def a_constant_is_sparse(proto: onnx.ModelProto) -> None:
    values = helper.make_tensor("s", TensorProto.FLOAT, [2], [1.0, 2.0])
    places = helper.make_tensor("places", TensorProto.INT64, [2], [1, 6])
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [8, 8]))
    proto.graph.node.append(node("MatMul", ["prob", "s"], "product"))
    proto.graph.output.append(typed("product", helper.make_tensor_type_proto(TensorProto.FLOAT, None)))


def a_constant_is_text(proto: onnx.ModelProto) -> None:
    proto.graph.initializer.append(helper.make_tensor("words", TensorProto.STRING, [2], [b"a", b"b"]))
    table = {"keys_strings": ["a", "b"], "values_floats": [1.0, 2.0], "domain": "ai.onnx.ml"}
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 2))
    proto.graph.node.append(node("LabelEncoder", ["words"], "numbers", **table))
    proto.graph.output.append(typed("numbers", helper.make_tensor_type_proto(TensorProto.FLOAT, [2])))


@pytest.mark.parametrize(
    "change",
    [
        a_constant_is_an_output,
        the_input_is_an_output,
        a_sequence_is_an_output,
        it_quantises_dynamically,
        a_constant_is_sparse,
        a_constant_is_text,
    ],
)
def test_calibrated_simulated_and_tuned(change, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    proto = net()
    change(proto)
    onnx.save(proto, "net.onnx")
    Path("input_config.ini").write_text(INI)
    Path("DebugConfig.txt").write_text("dumpTensor\neliminateGarbage\ndequantFixed\npath=.\n")
    Path("data").mkdir()
    for seed in range(2):
        np.save(f"data/{seed}.npy", np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32))
    given = ["-m", "net.onnx", "-i", "data", "--input-config", "input_config.ini"]
    assert main(["calibrate", *given, "-o", "fixed.onnx"]) == 0
    dumps = []
    for kind, name in (("Fixed", "fixed"), ("Float", "net")):
        assert main(["simulate", "-m", f"{name}.onnx", "-t", kind, "-i", "data/0.npy"]) == 0
        dumps.append(Path("sigma_outtensor_dump.bin").rename(f"{name}.bin"))
    compared = compare(*map(open_dump, dumps))
    assert "prob" in {row.name for row in compared} and compared.worst.rmse < 0.05
    assert main(["tune", *given, "-o", "tuned", "--budget", "1s"]) == 0
    assert "Traceback" not in capsys.readouterr().err


def test_a_fixed_model_that_does_not_run_is_not_written(tmp_path: Path, monkeypatch, capsys) -> None:
    """The last look is at the model as it is written; so short a calibration has no other."""
    monkeypatch.chdir(tmp_path)
    onnx.save(net(), "net.onnx")
    Path("input_config.ini").write_text(INI)
    np.save("0.npy", np.random.default_rng(0).normal(size=SHAPE).astype(np.float32))
    monkeypatch.setattr(Emitter, "stored", lambda emitter, name: "data")
    given = ["-m", "net.onnx", "-i", "0.npy", "--input-config", "input_config.ini", "--quant-level", "L1"]
    assert main(["calibrate", *given, "-o", "fixed.onnx"]) == 2
    assert re.fullmatch(r"sgsdump: error: net.onnx: its fixed model does not run .*\n", capsys.readouterr().err)
    assert sorted(path.name for path in Path().iterdir()) == ["0.npy", "input_config.ini", "net.onnx"]


@pytest.mark.parametrize(("level", "pictures", "expected"), [("L1", 8, 0), ("L1", 9, 1), ("L2", 1, 1), ("L5", 1, 1)])
def test_only_a_calibration_that_takes_longer_than_its_rehearsal_is_rehearsed(
    level, pictures, expected, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(net(), "net.onnx")
    Path("input_config.ini").write_text(INI)
    Path("data").mkdir()
    for index, array in enumerate(np.random.default_rng(0).normal(size=(pictures, *SHAPE)).astype(np.float32)):
        np.save(f"data/{index}.npy", array)
    rehearsed = []
    monkeypatch.setattr(fixed_model, "rehearse", lambda *arguments: rehearsed.append(arguments))
    given = ["-m", "net.onnx", "-i", "data", "--input-config", "input_config.ini", "--quant-level", level]
    assert main(["calibrate", *given, "-o", "fixed.onnx"]) == 0
    assert len(rehearsed) == expected and Path("fixed.onnx").exists()


@pytest.mark.parametrize("command", ["calibrate", "diagnose", "tune --first", "tune --explain", "tune"])
def test_a_model_that_cannot_be_quantised_is_refused_before_the_long_calibration(
    command, tmp_path: Path, monkeypatch, capsys
) -> None:
    def gathered(*arguments):
        raise AssertionError("all pictures are run")

    monkeypatch.chdir(tmp_path)
    onnx.save(net(), "net.onnx")
    Path("input_config.ini").write_text(INI)
    np.save("0.npy", np.random.default_rng(0).normal(size=SHAPE).astype(np.float32))
    monkeypatch.setattr(calibration, "gather", gathered)
    monkeypatch.setattr(Emitter, "stored", lambda emitter, name: "data")
    given = ["-m", "net.onnx", "-i", "0.npy", "--input-config", "input_config.ini"]
    assert main([*command.split(), *given, "-o", "result"]) == 2
    assert re.search(r"sgsdump: error: net.onnx: its fixed model does not run .*\n$", capsys.readouterr().err)
