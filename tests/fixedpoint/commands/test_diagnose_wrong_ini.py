"""A wrong mean, std or colour order in input_config.ini ends ``diagnose`` in that cause, with a report and status 1."""

import json

import numpy as np
import pytest
from PIL import Image
from small_nets import residual_net

from sgsdump.cli import main

PREPROCESS = """import numpy as np
from PIL import Image

def get_image(path, nchw=False):
    x = (np.asarray(Image.open(path).convert("RGB"), np.float32) - [123.68, 116.28, 103.53]) / [58.4, 57.12, 57.38]
    x = x[None].astype(np.float32)
    return x.transpose(0, 3, 1, 2).copy() if nchw else x
"""
RIGHT = {"order": "RGB", "red": 123.7, "green": 116.28, "blue": 103.53, "std": "58.4:57.12:57.38"}
INI = """[INPUT_CONFIG]
inputs = data;
training_input_formats = {order};
input_formats = {order};
mean_red = {red};
mean_green = {green};
mean_blue = {blue};
std_value = {std};

[OUTPUT_CONFIG]
outputs = prob;
dequantizations = TRUE;
"""
WRONG = {
    "mean 0, std 255": {"red": 0, "green": 0, "blue": 0, "std": "255"},
    "colours swapped": {"order": "BGR"},
    "std 1": {"std": "1"},
    "one mean 0": {"red": 0},
    "means in the order of blue first": {"red": 3.53, "blue": 223.7},
    "bytes": {"red": 0, "green": 0, "blue": 0, "std": "1"},
}


@pytest.fixture(params=["full", "low"])
def place(request, tmp_path, monkeypatch):
    """A net with pictures of full and of low contrast, which stay within 0 to 255 whatever input_config.ini says."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pictures").mkdir()
    (tmp_path / "preprocess.py").write_text(PREPROCESS)
    (tmp_path / "net.onnx").write_bytes(residual_net().proto.SerializeToString())
    for number in range(6):
        pixels = np.random.default_rng(number).integers(0, 256, (8, 8, 3))
        # reddish, so that another order of the channels is another picture
        pixels = np.clip(pixels * [1.0, 0.6, 0.2], 0, 255)
        pixels = pixels * 0.2 + [130, 100, 70] if request.param == "low" else pixels
        Image.fromarray(pixels.astype(np.uint8)).save(f"pictures/{number}.png")
    return tmp_path


def diagnosed(place, capsys, **changes):
    (place / "input_config.ini").write_text(INI.format(**RIGHT | changes))
    words = ["-m", "net.onnx", "-i", "pictures", "-n", "preprocess.py", "--input-config", "input_config.ini"]
    status = main(["diagnose", *words])
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_file_is_the_cause(place, capsys, wrong):
    status, out, err = diagnosed(place, capsys, **WRONG[wrong])
    assert status == 1 and "error:" not in err, err
    [line] = [line for line in out.splitlines() if line.startswith("Cause: ")]
    assert ("the colour order" in line) == (wrong == "colours swapped"), line
    assert out.startswith("FAIL: output "), out
    assert (place / "diagnosis/report.html").is_file()
    assert "[CONV_CONFIG]" not in out
    document = json.loads((place / "diagnosis/layers.json").read_text())
    causes = [finding["layer"] for finding in document["findings"] if finding["kind"] == "cause"]
    assert causes == ["data"], "no layer is accused of what the file says"
    assert 'title="the outputs&#39; error arises here"' not in (place / "diagnosis/report.html").read_text()
    if wrong != "colours swapped":
        assert "mean_red = 123.7;" in out


def test_the_right_file_is_no_cause(place, capsys):
    status, out, err = diagnosed(place, capsys)
    warnings = [line for line in (out + err).splitlines() if "warning" in line and "look like noise" not in line]
    assert status == 0 and "\nCause: " not in out and not warnings


def test_the_stated_distance_is_that_of_the_pixels(place, capsys):
    """A mean that is off by 16 makes the fixed model's picture 16 grey levels off, whatever the pictures."""
    _, _, err = diagnosed(place, capsys, red=107.7, green=100.28, blue=87.53)
    warning = next(line for line in err.splitlines() if "grey levels" in line)
    assert warning.startswith("warning: ")
    levels = float(warning.split("grey levels")[0].rsplit(",", 1)[1])
    assert levels == pytest.approx(16, abs=0.7), warning


def test_what_is_no_image_is_said_once(place, capsys):
    """Arrays of bytes, where normalised ones are taken: there are no pixels to judge the fixed model by."""
    (place / "arrays").mkdir()
    for number in range(2):
        pixels = np.random.default_rng(number).integers(0, 256, (1, 3, 8, 8)).astype(np.float32)
        np.save(place / "arrays" / f"{number}.npy", pixels)
    (place / "input_config.ini").write_text(INI.format(**RIGHT))
    words = ["-m", "net.onnx", "-i", "arrays", "--input-config", "input_config.ini"]
    assert main(["diagnose", *words]) == 2
    out, err = capsys.readouterr()
    assert (out + err).count("grey levels") == 1 and err.startswith("sgsdump: error:")
    assert not (place / "diagnosis").exists()
