"""A real face detector, with the commands a user would type, in an empty folder."""

import csv

import numpy as np
import onnx
import pytest
from small_nets import run_all

from sgsdump.cli import main
from sgsdump.dumps.io import open_dump
from sgsdump.models.feeds.feeds import feeds
from sgsdump.models.model import graph_inputs, open_model
from sgsdump.sidecars import input_config
from sgsdump.tensors.types import to_nhwc

INI = """[INPUT_CONFIG]
inputs = input;
training_input_formats = RGB;
input_formats = RGB;
mean_red = 127;
mean_green = 127;
mean_blue = 127;
std_value = 128;
[OUTPUT_CONFIG]
outputs = scores,boxes;
dequantizations = TRUE,TRUE;
"""
MODEL = "version-RFB-320_without_postprocessing.onnx"


@pytest.fixture(scope="module")
def folder(shared, tmp_path_factory):
    """What the five commands leave behind."""
    folder = tmp_path_factory.mktemp("ultraface")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "input_config.ini").write_text(INI)
        (folder / "DebugConfig.txt").write_text("dumpTensor\neliminateGarbage\ndequantFixed\npath=.\n")
        model, picture = str(shared / "ultraface" / MODEL), str(shared / "ultraface" / "images" / "1.jpg")
        config = ["--input-config", "input_config.ini"]
        assert main(["dump", "-m", model, "-i", picture, *config, "-o", "onnx.bin"]) == 0
        assert main(["calibrate", "-m", model, "-i", str(shared / "images"), *config, "-o", "fixed.onnx"]) == 0
        assert main(["simulate", "-m", "fixed.onnx", "-t", "Fixed", "-i", picture]) == 0
        (folder / "sigma_outtensor_dump.bin").rename(folder / "fixed.bin")
        assert main(["compare", "fixed.bin", "onnx.bin", "--csv", "layers.csv"]) == 0
        assert main(["histogram", "onnx.bin", "log/tensor_min_max.txt"]) == 0
    return folder


def test_every_float_tensor_equals_one_run_with_every_output_marked(folder, shared):
    path = shared / "ultraface" / MODEL
    picture = str(shared / "ultraface" / "images" / "1.jpg")
    config = input_config.read(folder / "input_config.ini")
    ((_, feed),) = feeds(picture, None, graph_inputs(open_model(path).proto), config)
    oracle = run_all(onnx.load(path), feed)
    dump = open_dump(folder / "onnx.bin")
    assert set(dump.outputs) == set(oracle) and len(oracle) == 217
    for name, array in oracle.items():
        np.testing.assert_array_equal(dump[name].real(), to_nhwc(array).astype(np.float32), err_msg=name)


def test_every_convolution_of_the_fixed_model_is_compared(folder):
    fixed = open_dump(folder / "fixed.bin")
    with open(folder / "layers.csv", newline="") as file:
        compared = [row["name"] for row in csv.DictReader(file) if row["mse"]]
    assert set(compared) == set(fixed.outputs) and len(compared) == 72
    assert all(tensor.info.quant is not None for tensor in fixed.outputs.values())


def test_there_is_a_picture_of_every_layer_with_a_range(folder):
    pictures = {path.name.split(".", 1)[1] for path in (folder / "Histograms").glob("*.png")}
    assert {"boxes.png", "scores.png", "247.png"} <= pictures
    assert any(name.startswith("overview") for name in (path.name for path in (folder / "Histograms").iterdir()))
