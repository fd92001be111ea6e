"""--quant-file with a calibrator's log: the level is the one that the log was made at."""

import onnx
import pytest
from small_nets import conv, model, weights

from sgsdump.cli import main

INI = """[INPUT_CONFIG]
inputs = data;
training_input_formats = RGB;
input_formats = RGB;
quantizations = TRUE;
mean_red = 127;
mean_green = 127;
mean_blue = 127;
std_value = 128;
[OUTPUT_CONFIG]
outputs = d;
dequantizations = TRUE;
"""


@pytest.fixture
def calibrated(tmp_path, monkeypatch, capsys):
    """A function that calibrates with options and gives what was said and the fixed model."""
    monkeypatch.chdir(tmp_path)
    values = {**weights("c", (8, 3, 3, 3), 1), **weights("d", (8, 8, 1, 1), 2)}
    nodes = [conv("c", "data", pads=[1] * 4), conv("d", "c")]
    onnx.save(model(nodes, values, {"data": (1, 3, 8, 8)}, ["d"], 13).proto, "net.onnx")
    (tmp_path / "in.ini").write_text(INI)

    def calibrate(options, log):
        (tmp_path / log).mkdir(exist_ok=True)
        assert main([*"calibrate -m net.onnx -i random --input-config in.ini -o fixed.onnx".split(), *options]) == 0
        said, proto = capsys.readouterr().out, (tmp_path / "fixed.onnx").read_bytes()
        (tmp_path / log).rmdir()
        (tmp_path / "log").rename(log)
        return said, proto

    return calibrate


@pytest.mark.parametrize("level", ["L1", "L2"])
def test_the_level_is_found(calibrated, level):
    calibrated(["--quant-level", level], "one")
    said, second = calibrated(["--quant-file", "one/tensor_min_max.txt"], "two")
    _, first = calibrated(["--quant-file", "one/tensor_min_max.txt", "--quant-level", level], "three")
    assert f"made at level {'L1' if level == 'L1' else 'above L1'}, according to the weights file" in said
    assert onnx.load_from_string(first).graph == onnx.load_from_string(second).graph


def test_a_contradiction_is_one_line(calibrated):
    calibrated(["--quant-level", "L1"], "one")
    said, _ = calibrated(["--quant-file", "one/tensor_min_max.txt", "--quant-level", "L3"], "two")
    assert said.count("was made at level L1") == 1
