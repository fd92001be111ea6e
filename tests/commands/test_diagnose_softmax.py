"""A Softmax whose readers take its values for others is named as the cause, with what to do."""

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
    assert f"What reads the Softmax shares takes its values for {factor} times what they are, as in the SDK" in said
    assert "Cut the network before the Softmax shares" in said and "give --model-outputs scores" in said
    assert "adds up from many" not in said and "look at the ranges" not in said
