"""Where an error comes of no convolution's 8 bits, what it comes of is named."""

import json
from pathlib import Path

import numpy as np
import onnx
from small_nets import model, node, weights

from sgsdump.cli import main


def test_a_softmax_that_is_misread_is_the_cause(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    constants = {**weights("fc", (16, 8)), "half": np.full((1, 16), 0.5, np.float32)}
    nodes = [
        node("Gemm", ["x", "fc.w", "fc.b"], "scores", transB=1),
        node("Softmax", ["scores"], "shares", axis=-1),
        node("Mul", ["shares", "half"], "y"),
    ]
    onnx.save(model(nodes, constants, {"x": (1, 8)}, ["y"]).proto, "net.onnx")
    Path("runs").mkdir()
    for index in range(3):
        np.savez(f"runs/{index}.npz", x=rng.normal(0, 1, (1, 8)).astype(np.float32))
    assert main(["diagnose", "-m", "net.onnx", "-i", "runs", "-o", "d", "--quant-level", "L1"]) == 0
    said = capsys.readouterr().out
    findings = json.loads(Path("d/layers.json").read_text())["findings"]
    (cause,) = [found for found in findings if found["kind"] == "cause" and found["facts"]["reason"] == "misread"]
    assert (cause["layer"], cause["names"], cause["facts"]["input"]) == ("shares", ["y"], "scores")
    assert 0 < cause["figures"]["factor"] < 0.9
    factor = f"{cause['figures']['factor']:.2g}"
    misread = f"the operators that read the output of Softmax shares assume {factor} times the true scale of this"
    assert said.splitlines()[1].startswith(f"Cause: {misread}") and said.splitlines()[1].endswith(
        "correct this error in y."
    )
    assert "Cut the model before Softmax shares" in said and "Set --model-outputs to scores and" in said
    assert "spread over" not in said and "Check the calibration ranges" not in said


def test_where_16_bits_do_not_help_the_layer_is_named(tmp_path, monkeypatch, capsys):
    """Small values beside a large one are lost in its steps, and a root makes much of them."""
    monkeypatch.chdir(tmp_path)
    constants = {"fc.w": np.eye(64, dtype=np.float32), "fc.b": np.zeros(64, np.float32)}
    nodes = [
        node("Gemm", ["x", "fc.w", "fc.b"], "h", transB=1),
        node("Gemm", ["h", "fc.w", "fc.b"], "again", transB=1),
        node("Sqrt", ["again"], "y"),
    ]
    onnx.save(model(nodes, constants, {"x": (1, 64)}, ["y"]).proto, "net.onnx")
    x = np.random.default_rng(0).uniform(0.02, 0.1, (1, 64)).astype(np.float32)
    x[0, 7] = 1e4
    np.save("x.npy", x)
    assert main(["diagnose", "-m", "net.onnx", "-i", "x.npy", "-o", "d", "--max-rmse", "0.02"]) == 1
    said = capsys.readouterr().out
    assert (
        "INT8 convolutions are not the cause: INT16 for all convolutions removes less than a fifth of the error. RMSE "
        "rises most at y" in said
    )
    assert "spread over" not in said
