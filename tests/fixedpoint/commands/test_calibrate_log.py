"""What the files that calibrate leaves in log/ hold: the convolutions' weights in the SDK's order, and their ranges."""

import numpy as np
import onnx
import pytest
from picture_folder import write_pictures
from small_nets import helper, model

from sgsdump.cli import main

RNG = np.random.default_rng(3)
WEIGHTS = {
    "c_w": RNG.normal(size=(4, 3, 3, 2)),
    "d_w": RNG.normal(size=(4, 1, 3, 3)),
    "g_w": RNG.normal(size=(256, 5)),
}
WEIGHTS = {name: array.astype(np.float32) for name, array in WEIGHTS.items()}


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nodes = [
        helper.make_node("Conv", ["data", "c_w"], ["c"], name="c", pads=[1, 1, 1, 0]),
        helper.make_node("Conv", ["c", "d_w"], ["d"], name="d", pads=[1, 1, 1, 1], group=4),
        helper.make_node("Flatten", ["d"], ["f"], name="f"),
        helper.make_node("MatMul", ["f", "g_w"], ["g"], name="g"),
    ]
    onnx.save(model(nodes, WEIGHTS, {"data": (1, 3, 8, 8)}, ["g"]).proto, "net.onnx")
    write_pictures(tmp_path, 2)

    def run(*arguments):
        command = "calibrate -m net.onnx -i pictures --input_config input_config.ini -o fixed.onnx".split()
        assert main([*command, *arguments]) == 0
        return tmp_path / "log"

    return run


def entries(path):
    """Of each convolution its facts by the word before the colon."""
    found = {}
    for text in path.read_text().split("Name:")[1:]:
        rows = ["Name:" + text.splitlines()[0], *text.splitlines()[1:]]
        facts = dict(row.strip().rstrip(",;").partition(":")[::2] for row in rows)
        found[facts["Name"].strip("[]").split(",")[1]] = facts
    return found


def numbers(text):
    return np.array([float(word) for word in text.strip("[]").split(", ") if word])


def test_weights_stand_in_the_sdk_s_order_with_a_range_for_each_output_channel(log):
    folder = log("--quant_level", "L2")
    plain, ranged = entries(folder / "tensor_weight.txt"), entries(folder / "tensor_weight_calibration.txt")
    ordered = {
        "c_w": WEIGHTS["c_w"].transpose(0, 2, 3, 1),
        "d_w": WEIGHTS["d_w"].transpose(1, 2, 3, 0),  # a depthwise one as [1, H, W, O]
        "g_w": WEIGHTS["g_w"].T.reshape(5, 1, 1, 256),
    }
    operators = {"c_w": "CONV_2D", "d_w": "DEPTHWISE_CONV_2D", "g_w": "FULLY_CONNECTED"}
    rows = {"c_w": WEIGHTS["c_w"].reshape(4, -1), "d_w": WEIGHTS["d_w"].reshape(4, -1), "g_w": WEIGHTS["g_w"].T}
    assert list(plain) == list(ranged) == list(ordered)
    for name, data in ordered.items():
        for facts in (plain[name], ranged[name]):
            assert facts["Operator"] == operators[name] and facts["hasChanged"] == "FALSE"
            assert facts["shape"] == "[" + ",".join(map(str, data.shape)) + "]"
            np.testing.assert_allclose(numbers(facts["data"]), data.reshape(-1), atol=6e-7)
            assert facts["BitWidth"] == "[UINT8,INT8]"
        assert (plain[name]["min"], plain[name]["max"]) == ("[]", "[]")
        assert plain[name]["AllowedBitWidth"] == ("[8]" if name == "c_w" else "[8,16]")  # a picture stays 8 bits
        assert "AllowedBitWidth" not in ranged[name]
        # a level above L1 may draw the ends in, to half at most
        for end, whole in (("min", rows[name].min(axis=1)), ("max", rows[name].max(axis=1))):
            share = numbers(ranged[name][end]) / whole
            assert share.shape == whole.shape and (share > 0.49).all() and (share < 1.000001).all()
            assert np.isclose(share, 1, atol=1e-6).any()


def test_channels_of_the_outputs_are_listed_within_the_tensor_s_range(log):
    lines = (log("--quant_level", "L1") / "tensor_chn.txt").read_text().splitlines()
    channels = {lines[i].removeprefix("Name:").split(", ")[0]: lines[i + 1] for i in range(0, len(lines), 2)}
    sizes = {lines[i].removeprefix("Name:").split(", ")[0]: lines[i].split(", ")[1] for i in range(0, len(lines), 2)}
    assert sizes["c"] == sizes["d"] == "4"
    low, high = channels["c"].removeprefix("min_chn: ").rstrip(";").split(", max_chn: ")
    ranges = (log("--quant_level", "L1") / "tensor_min_max.txt").read_text()
    assert f"Name:c, min: {numbers(low).min():f}, max: {numbers(high).max():f};" in ranges
