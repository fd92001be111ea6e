"""A small network through every command; ``tools/light_architectures.py`` runs them all."""

import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

sys.path.append(str(Path(__file__).parents[2] / "tools"))

import light_architectures
from architectures.drawn import light
from light_architectures import Finding, main, named

from sgsdump.fixedpoint.quantisation import calibration


def test_a_small_network_goes_through_every_command(capsys):
    """With all its pictures drawn; the tests below take the other."""
    assert main(["--short", "--only", "mobilenet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["mobilenet L1"]
    assert all("RMSE 0.0" in line and "clipped: none" in line for line in lines)


@pytest.mark.usefixtures("no_picture")
def test_ranges_that_a_level_narrowed_are_named(monkeypatch, capsys):
    monkeypatch.setattr(calibration, "WORTH_TRYING", 100.0)
    monkeypatch.setattr(calibration, "WORTH_TAKING", 0.0)
    assert main(["--short", "--only", "unet", "--level", "L5"]) == 0
    line = capsys.readouterr().out
    assert "; clipped: " in line and "none" not in line, "no range was narrowed; the test needs one"


@pytest.mark.usefixtures("no_picture")
def test_a_tensor_that_is_clipped_and_not_named_is_a_finding(monkeypatch, capsys):
    monkeypatch.setattr(light_architectures, "clipped_tensors", lambda fixed: ["silent"])
    assert main(["--short", "--only", "unet"]) == 1
    assert "unet L1: FINDING: calibrate clipped without a warning:  silent" in capsys.readouterr().out


def test_a_command_that_fails_is_a_finding():
    with pytest.raises(Finding, match="status 2"):
        light_architectures.run("show nothing.bin")


def test_names_are_found_whole():
    assert named("r1", "warning: r1: calibrated") and named("r1", "range of r0, r1: 0 to 1")
    assert not named("r1", "warning: r12: calibrated") and not named("r1", "a/r1: calibrated")


def test_drawn_weights_keep_the_signal():
    proto = light("squeezenet")
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    entry = proto.graph.input[0]
    feed = np.random.default_rng(0).normal(0, 1, [d.dim_value for d in entry.type.tensor_type.shape.dim])
    (values,) = session.run(None, {entry.name: feed.astype(np.float32)})
    assert np.isfinite(values).all() and values.std() > 0
