"""--quant-file: a tensor that only moves values has the range of what it moves, whatever the images are."""

import numpy as np
import onnx
import pytest
from small_nets import conv, model, node, weights

from sgsdump.cli import main
from sgsdump.models.fixed_facts import read_facts
from sgsdump.models.model import open_model

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
outputs = y;
dequantizations = TRUE;
"""
PREPROCESS = "import numpy as np\ndef image_preprocess(path, norm=True):\n    return (np.load(path) - 127) / 128\n"
RANGES = "Name:data, min: -0.992188, max: 1.000000;\nName:c, min: -0.500000, max: 0.400000;\n"
COMMAND = "calibrate -m net.onnx -n pre.py --input-config in.ini --quant-file ranges.txt".split()


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = {
        **weights("c", (8, 3, 3, 3), 1),
        "shape": np.array([1, 512]),
        "y.w": np.random.default_rng(2).normal(0, 0.1, (512, 4)).astype("f4"),
    }
    nodes = [
        conv("c", "data", pads=[1] * 4),
        node("Transpose", ["c"], "t", perm=[0, 2, 3, 1]),
        node("Reshape", ["t", "shape"], "flat"),
        node("MatMul", ["flat", "y.w"], "y"),
    ]
    onnx.save(model(nodes, values, {"data": (1, 3, 8, 8)}, ["y"], 11).proto, "net.onnx")
    (tmp_path / "in.ini").write_text(INI)
    (tmp_path / "pre.py").write_text(PREPROCESS)
    values = np.random.default_rng(0).uniform(-1, 1, (8, 8, 3)).astype(np.float32)
    np.save("dim.npy", 127 + 10 * values)
    np.save("bright.npy", 127 + 120 * values)


def test_dark_and_bright_images_give_the_same_bytes(tmp_path, capsys):
    (tmp_path / "ranges.txt").write_text(RANGES + "Name:y, min: -2.000000, max: 2.000000;\n")
    for name in ("dim", "bright"):
        assert main([*COMMAND, "-i", f"{name}.npy", "-o", f"{name}.onnx"]) == 0
        out = capsys.readouterr().out
        assert "ranges.txt: 3 ranges used" in out and "no range for" not in out
    assert (tmp_path / "dim.onnx").read_bytes() == (tmp_path / "bright.onnx").read_bytes()
    facts = read_facts(open_model(tmp_path / "dim.onnx"))
    assert facts.tensors["flat"].scale == pytest.approx(0.9 / 255, rel=1e-6)  # UINT8 of -0.5 to 0.4


def test_what_no_range_is_known_of_is_named(tmp_path, capsys):
    (tmp_path / "ranges.txt").write_text(RANGES)
    assert main([*COMMAND, "-i", "dim.npy", "-o", "fixed.onnx"]) == 0
    assert "ranges.txt: no range for y: measured on the images" in capsys.readouterr().out
