"""Room in INT16 ranges for images that calibration did not see: `calibrate --range-room`, and what `tune` writes."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from small_nets import conv, ini_of_arrays, model, node, weights

import sgsdump
from sgsdump.cli import main

HINT = "INT16 ranges fit these images exactly; --range-room widens them by half for unseen images"
INI = ini_of_arrays("c")
GIVEN = ["-m", "net.onnx", "-i", "cal", "--quant-level", "L2"]


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A trained kind of net in little: BatchNormalization between convolutions, and unseen images of the same kind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sgsdump.fixedpoint.reports.pareto_chart.pareto_png", lambda result: b"png")
    constants = {**weights("a", (6, 3, 3, 3), 1), **weights("b", (6, 6, 3, 3), 2), **weights("c", (4, 6, 1, 1), 3)}
    constants |= {f"n.{part}": np.full(6, value, np.float32) for part, value in zip("gbmv", (2.0, 0.1, 0.05, 0.5))}
    nodes = [
        conv("a", "data", pads=[1] * 4),
        node("BatchNormalization", ["a", "n.g", "n.b", "n.m", "n.v"], "n"),
        node("Relu", ["n"], "ra"),
        conv("b", "ra", pads=[1] * 4),
        node("Relu", ["b"], "rb"),
        conv("c", "rb"),
    ]
    onnx.save(model(nodes, constants, {"data": (1, 3, 8, 8)}, ["c"]).proto, "net.onnx")
    Path("mine.ini").write_text(INI)
    Path("all16.ini").write_text(INI + "[CONV_CONFIG]\ninput_format = ALL_INT16;\n")
    Path("cal").mkdir()
    for index, array in enumerate(arrays(0, 4)):
        np.save(f"cal/{index}.npy", array)
    return tmp_path


def arrays(seed, count):
    rng = np.random.default_rng(seed)
    return [rng.normal(0, 1, (1, 3, 8, 8)).astype(np.float32) for _ in range(count)]


def unseen_error(fixed):
    """sum((fixed - float)^2) / sum(float^2) on images with twice as many draws, and so wider ranges."""
    sides = []
    for path in (fixed, "net.onnx"):
        session = onnxruntime.InferenceSession(path)
        name = session.get_inputs()[0].name
        sides.append(np.stack([session.run(None, {name: array})[0] for array in arrays(7, 40)]).astype(np.float64))
    ours, floats = sides
    return ((ours.reshape(floats.shape) - floats) ** 2).sum() / (floats**2).sum()


def calibrated(*given):
    assert main(["calibrate", *given, "-o", "fixed.onnx"]) == 0
    return unseen_error("fixed.onnx")


def test_room_takes_unseen_error_away(work, capsys):
    all_16 = [*GIVEN, "--input-config", "all16.ini"]
    plain = calibrated(*all_16)
    assert HINT in capsys.readouterr().out.splitlines()
    room = calibrated(*all_16, "--range-room")
    assert HINT not in capsys.readouterr().out
    assert room < 0.05 * plain
    made = sgsdump.calibrate("net.onnx", "cal", quant_level="L2", input_config="all16.ini", range_room=True)
    assert unseen_error(made.save("python.onnx")) == room


def test_8_bits_need_no_room(work, capsys):
    eight = [*GIVEN, "--input-config", "mine.ini"]
    calibrated(*eight)
    assert HINT not in capsys.readouterr().out, "its only INT16 convolution reads the network's input"


@pytest.mark.parametrize("ending", ["json", "pkl"])
def test_the_plans_of_tune_have_room_in_their_quant_file(work, capsys, ending):
    """Files of the plan with all at 16 bits make the fixed model that tune verified, which has room."""
    tune = ["tune", *GIVEN, "--input-config", "mine.ini", "--rates", "1", "-o", "out", "--pickle", "--fixed-model"]
    assert main(tune) == 0
    last = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("out: to make"))
    assert "--quant-level L2 --quant-file" in last and last.split("--quant-file ")[1].split()[0] == str(
        Path("out", "optimized_quant_info.json")
    )
    assert (work / "out" / "optimized_quant_info.pkl").exists()
    given = ["--input-config", "out/input_config_0_1.ini"]
    plain = calibrated(*GIVEN, *given)
    room = calibrated(*GIVEN, *given, "--quant-file", f"out/optimized_quant_info_0_1.{ending}")
    assert room < 0.05 * plain and room == unseen_error("out/optimized_0_1.onnx")


@pytest.mark.parametrize("ending", ["json", "pkl"])
def test_what_diagnose_raises_has_room_in_a_quant_file(work, capsys, ending):
    assert main(["diagnose", *GIVEN, "--input-config", "all16.ini", "-o", "found"]) == 0
    assert "calibrate with --quant-file advised.quant.json of the folder" in capsys.readouterr().out
    given = [*GIVEN, "--input-config", "found/input_config.ini"]
    assert calibrated(*given, "--quant-file", f"found/advised.quant.{ending}") < 0.05 * calibrated(*given)


def test_where_diagnose_raises_nothing_there_is_no_quant_file(work, capsys):
    assert main(["diagnose", *GIVEN, "--input-config", "mine.ini", "-o", "found"]) == 0
    assert "--quant-file" not in capsys.readouterr().out and not list(Path("found").glob("*.quant.*"))
