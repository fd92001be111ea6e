"""What the board reads, byte for byte as the SDK's simulator wrote it."""

from pathlib import Path

import numpy as np
import pytest
from small_nets import model, node

from sgsdump.errors import ConfigError
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.quantisation.raw_input import raw_input, raw_inputs
from sgsdump.models.model import Model
from sgsdump.sidecars.input_config import InputConfig, ModelInput
from sgsdump.tensors.types import Range

GOLDEN = np.load(Path(__file__).parents[2] / "golden" / "raw_inputs.npz")


LEFTOVERS = [name for name in GOLDEN.files if name.startswith("leftovers_") and not name.endswith(".input")]


@pytest.mark.parametrize(
    "key", [name for name in GOLDEN.files if not name.endswith(".input") and name not in LEFTOVERS]
)
def test_the_bytes_are_the_sdks(key):
    name, form, trained, *scale = key.split(",")
    data = raw_input(GOLDEN[f"{name}.input"], form, trained == "BGR", float(scale[0]) if scale else None)
    assert np.array_equal(np.frombuffer(data, np.uint8), GOLDEN[key])


@pytest.mark.parametrize("key", LEFTOVERS)
def test_where_no_pixel_stands_the_sdk_leaves_the_packed_picture(key):
    """1028 bytes further on than it was, at the ends of rows of RGBA and in place of U and V of GRAY; ours are 0."""
    name, form, trained = key.split(",")
    pixels = GOLDEN[f"{name}.input"]
    _, height, width, _ = pixels.shape
    ours = np.frombuffer(raw_input(pixels, form, trained == "BGR"), np.uint8)
    place = np.arange(ours.size)
    pitch = ours.size // height
    empty = place % pitch >= 4 * width if form != "GRAY" else place >= ours.size * 2 // 3
    packed = np.zeros(ours.size, np.uint8)
    reach = max(min(pixels.size, ours.size - 1028), 0)
    packed[1028 : 1028 + reach] = pixels.reshape(-1)[:reach]
    np.testing.assert_array_equal(GOLDEN[key], np.where(empty, packed, ours))
    assert packed[empty].any() and not ours[empty].any()


@pytest.mark.parametrize("largest", [4.989146, 4.98914551])
def test_the_scale_is_that_of_a_range_in_six_decimals(largest):
    """As the SDK's file of ranges has it, and in float32: of its probe this value is 12182 steps, and 12183 without."""
    net = model([node("Mul", ["data", "k"], "y")], {"k": np.ones((1, 20), np.float32)}, {"data": (1, 20)}, ["y"])
    entry = ModelInput("data", "RAWDATA_S16_NHWC", "RAWDATA_S16_NHWC")
    ranges = {"data": Range.of(-4.0, largest), "y": Range.of(-4.0, largest)}
    fixed = make_fixed(simplify(net), ranges, InputConfig((entry,)))
    ((name, data),) = raw_inputs(
        Model(fixed.proto, Path("fixed.onnx")), {"data": np.full((1, 20), 1.8549994230270386, np.float32)}
    )
    assert name == "data"
    assert np.frombuffer(data, "<i2")[:20].tolist() == [12182] * 20


def test_every_format_is_among_them():
    forms = {name.split(",")[1] for name in GOLDEN.files if "," in name}
    assert forms == {"RGB", "BGR", "RGBA", "BGRA", "YUV_NV12", "GRAY", "RAWDATA_S16_NHWC"}


def test_of_floats_no_buffer_is_known():
    with pytest.raises(ConfigError, match="RAWDATA_F32_NHWC"):
        raw_input(np.zeros((1, 4, 4, 3)), "RAWDATA_F32_NHWC")
