"""``sgsdump diagnose --fixed`` of a network that onnxruntime quantised, as a user types it: a fault planted in a
weight is the first named, the advice that is pasted takes effect, lowers the error, and compare says so."""

from __future__ import annotations

import ast
import csv
import json
import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from json_documents import checked
from onnx import numpy_helper
from onnxruntime.quantization import QuantType
from quantised_nets import quantise
from small_nets import residual_net

from sgsdump import compare
from sgsdump.cli import main
from sgsdump.errors import ModelError, ValuesError


def feeds():
    return [{"data": np.random.default_rng(seed).normal(0, 1, (1, 3, 8, 8)).astype(np.float32)} for seed in range(4)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """net.onnx, q.onnx and three inputs."""
    monkeypatch.chdir(tmp_path)
    onnx.save(residual_net().proto, "net.onnx")
    quantise(Path("net.onnx"), Path("q.onnx"), feeds(), "QDQ", per_channel=True)
    Path("inputs").mkdir()
    for number, feed in enumerate(feeds()[:3]):
        np.save(f"inputs/{number}.npy", feed["data"])
    return tmp_path


def plant(weight: str) -> None:
    """A scale four times too large in q.onnx, as of a quantiser that took another range."""
    proto = onnx.load("q.onnx")
    scale = next(tensor for tensor in proto.graph.initializer if tensor.name == f"{weight}_scale")
    scale.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(scale) * np.float32(4), scale.name))
    onnx.save(proto, "q.onnx")


def diagnose(*more: str) -> int:
    return main(["diagnose", "-m", "net.onnx", "-i", "inputs", "--fixed", "q.onnx", "-o", "d", *more])


def test_a_good_network_needs_nothing(folder, capsys):
    assert diagnose("--min-cos", "0.99") == 0
    out = capsys.readouterr().out
    assert "No operator needs to stay in float" in out and out.startswith("PASS: ")
    document = checked(Path("d/layers.json"))
    assert {row["name"] for row in document["rows"]} >= {"r1", "c2", "r2", "prob"}
    assert [finding["kind"] for finding in document["findings"]] == ["output"]
    page = Path("d/report.html").read_text()
    worst = re.search(r"Input with the largest error: <bdi>(\d)\.npy</bdi>", page)[1]
    data = {"data": np.load(f"inputs/{worst}.npy")}
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # which round elsewhere
    runs = (onnxruntime.InferenceSession(f"{name}.onnx", plain).run(["prob"], data)[0] for name in ("net", "q"))
    assert '>Quantised<span class="roomy"> model</span></th>' in page and all(
        f"<strong>{values.max():.6f}</strong>" in page for values in runs
    )
    lines = list(csv.DictReader(Path("d/quantised.csv").read_text().splitlines()))
    assert {line["name"] for line in lines} >= {"data", "r1", "c1.w", "fc.w", "prob"}
    assert all(float(line["weight_err_db"]) > 30 for line in lines if line["kind"] == "weight")


def test_a_planted_weight_is_the_first_and_the_advice_takes_it_away(folder, capsys):
    plant("c2.w")
    assert diagnose("--min-cos", "0.9999") == 1
    out = capsys.readouterr().out
    assert re.match(r"FAIL: output prob COS 0\.9\d+, limit 0\.9999 ", out)
    wrong = r"\(wrong scale: its dequantised values are 4 times its float values\)"
    assert re.match(rf"Cause: weight c2\.w {wrong}\. Measured on ", out.splitlines()[1]) and "barely affect" not in out
    findings = json.loads(Path("d/layers.json").read_text())["findings"]
    causes = [finding for finding in findings if finding["kind"] == "cause"]
    assert causes[0]["layer"] == "c2.w" and causes[0]["figures"]["gives_back"] > 0.5
    advice = next(finding for finding in findings if finding["kind"] == "advice")
    assert "c2" in advice["names"] and advice["figures"]["error_after"] < 0.5 * advice["figures"]["error"]
    names = ast.literal_eval(re.search(r"nodes_to_exclude=(\[.*?\])", out)[1])
    assert int(re.search(r"Keep (\d+) nodes? in float", out)[1]) == len(names)
    assert names == list(advice["names"])

    def outputs_error(model: str) -> float:
        for name in ("net", model):
            assert main(["dump", "-m", f"{name}.onnx", "-i", "inputs/0.npy", "-o", f"{name}.bin"]) == 0
        return compare(f"{model}.bin", "net.bin")["prob"].rmse

    before = outputs_error("q")
    quantise(Path("net.onnx"), Path("after.onnx"), feeds(), "QDQ", per_channel=True, nodes_to_exclude=names)
    assert outputs_error("after") < 0.5 * before
    capsys.readouterr()
    main(["compare", "after.bin", "q.bin"])
    assert re.search(
        r"\n\d+ of \d+ operators? ha(?:s|ve) fewer quantised tensors in the sample than in the benchmark: .*c2",
        capsys.readouterr().out,
    )


def test_a_scale_that_does_not_fit_is_said_with_the_bias_that_goes_by_it(folder, capsys):
    quantise(Path("net.onnx"), Path("q.onnx"), feeds(), "QOperator")
    plant("c2.w")  # and with it the bias of the QLinearConv, whose scale is the input's by the weight's
    assert diagnose("--min-cos", "0.9999") == 1
    cause = capsys.readouterr().out.splitlines()[1]
    wrong = r"\(wrong scale: its dequantised values are 4 times its float values\)"
    said = rf"Cause: weight c2\.w with its bias c2\.b {wrong}\. Measured on "
    assert re.match(said, cause), cause
    findings = json.loads(Path("d/layers.json").read_text())["findings"]
    causes = [finding for finding in findings if finding["kind"] == "cause"]
    assert causes[0]["layer"] == "c2.w" and causes[0]["figures"]["factor"] == pytest.approx(4, rel=0.02)
    assert "c2.b" not in [cause["layer"] for cause in causes]
    assert all("factor" not in cause["figures"] for cause in causes[1:])


def test_an_exclusion_that_matches_nothing_is_said(folder, capsys):
    quantise(Path("net.onnx"), Path("after.onnx"), feeds(), "QDQ", per_channel=True, nodes_to_exclude=["conv2"])
    for name in ("q", "after"):
        main(["dump", "-m", f"{name}.onnx", "-i", "inputs/0.npy", "-o", f"{name}.bin"])
    capsys.readouterr()
    main(["compare", "after.bin", "q.bin"])
    assert "excluding operators from quantisation had no effect" in capsys.readouterr().out


def sums_of_bytes() -> int:
    """What this processor makes of 2 · 255 · 127."""
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMulInteger", ["a", "w"], ["y"])],
        "sum",
        [info("a", onnx.TensorProto.UINT8, [1, 2])],
        [info("y", onnx.TensorProto.INT32, [1, 4])],
        [numpy_helper.from_array(np.full((2, 4), 127, np.int8), "w")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return int(session.run(None, {"a": np.full((1, 2), 255, np.uint8)})[0][0, 0])


@pytest.mark.parametrize("way", ["QDQ per channel", "QOperator"])
def test_kernels_that_saturate_are_told_apart_from_the_model(folder, capsys, way):
    """Large bytes by large weights, on a processor that adds two products in 16 bits and on one that does not."""
    info = onnx.helper.make_tensor_value_info
    nodes = [
        onnx.helper.make_node("Conv", ["data", "w"], ["sum"], "conv"),
        onnx.helper.make_node("Relu", ["sum"], ["y"], "relu"),
    ]
    weights = np.random.default_rng(1).uniform(0.4, 0.5, (4, 16, 1, 1)).astype(np.float32)
    shapes = [info("data", 1, [1, 16, 8, 8])], [info("y", 1, [1, 4, 8, 8])]
    graph = onnx.helper.make_graph(nodes, "net", *shapes, [numpy_helper.from_array(weights, "w")])
    opset = [onnx.helper.make_opsetid("", 13)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), "net.onnx")
    rng = np.random.default_rng(2)
    inputs = [{"data": rng.uniform(0.8, 1, (1, 16, 8, 8)).astype(np.float32)} for _ in range(3)]
    types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    quantise(Path("net.onnx"), Path("q.onnx"), inputs, way, **types)
    for number, feed in enumerate(inputs):
        np.save(f"inputs/{number}.npy", feed["data"])
    status, out = diagnose("--max-rmse", "0.1"), capsys.readouterr().out
    causes = [f for f in checked(Path("d/layers.json"))["findings"] if f["kind"] == "cause"]
    if sums_of_bytes() == 2 * 255 * 127:
        assert status == 0 and not causes and "No operator needs to stay in float" in out
        return
    assert status == 1 and "without VNNI" in out and "session.x64quantprecision" in out
    assert (
        "quantize_static(..., reduce_range=True)" in out
        and "With these kernels, no operator needs to stay in float" in out
    )
    assert causes[0]["facts"] == {"reason": "kernels", "kernels": "saturating"} and causes[0]["layer"] == ""
    figures = causes[0]["figures"]
    assert figures["as_run"] > 0.1 > 0.02 > figures["precise"]
    assert (figures["defined"] < 0.02) == (way != "QOperator")  # whose operators are such kernels, fused or not
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    real = onnxruntime.InferenceSession("net.onnx").run(None, inputs[0])[0]
    runs = [onnxruntime.InferenceSession("q.onnx", o).run(None, inputs[0])[0] for o in (None, options)]
    as_run, precise = (np.sqrt(((run - real) ** 2).mean() / (real**2).mean()) for run in runs)
    assert as_run > 10 * precise


@pytest.mark.parametrize("error", [ModelError("it does not load"), ValuesError("prob holds NaN")])
def test_what_cannot_be_run_as_it_is_by_default_is_said(folder, capsys, monkeypatch, error):
    def refused(*_: object) -> None:
        raise error

    monkeypatch.setattr("sgsdump.fixedpoint.tuning.kernel_loss.kernel_loss", refused)
    assert diagnose("--min-cos", "0.99") == 0
    said = f"The error that onnxruntime's default kernels add could not be measured: {error}."
    assert said in capsys.readouterr().out
    findings = checked(Path("d/layers.json"))["findings"]
    assert {"reason": "not run as it is", "error": str(error)} in [finding["facts"] for finding in findings]


def test_trouble_is_one_line(folder, capsys):
    onnx.save(residual_net().proto, "float.onnx")
    assert main(["diagnose", "-m", "net.onnx", "-i", "inputs", "--fixed", "float.onnx", "-o", "d"]) == 2
    Path("empty.onnx").write_bytes(b"")
    assert main(["diagnose", "-m", "net.onnx", "-i", "inputs", "--fixed", "empty.onnx", "-o", "d"]) == 2
    proto = onnx.load("q.onnx")
    proto.graph.input[0].name = proto.graph.node[6].input[0] = "other"
    onnx.save(proto, "q.onnx")
    assert diagnose() == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 3 and "float.onnx" in errors[0] and "empty" in errors[1], errors
    assert not Path("d").exists()
