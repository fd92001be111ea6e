"""What the board reads, byte for byte as the SDK's simulator wrote it."""

from pathlib import Path

import numpy as np
import pytest

from sgsdump.errors import ConfigError
from sgsdump.quantisation.raw_input import raw_input

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "raw_inputs.npz")


@pytest.mark.parametrize("key", [name for name in GOLDEN.files if not name.endswith(".input")])
def test_the_bytes_are_the_sdks(key):
    name, form, trained, *scale = key.split(",")
    data = raw_input(GOLDEN[f"{name}.input"], form, trained == "BGR", float(scale[0]) if scale else None)
    assert np.array_equal(np.frombuffer(data, np.uint8), GOLDEN[key])


def test_every_format_is_among_them():
    forms = {name.split(",")[1] for name in GOLDEN.files if "," in name}
    assert forms == {"RGB", "BGR", "RGBA", "YUV_NV12", "GRAY", "RAWDATA_S16_NHWC"}


def test_of_floats_no_buffer_is_known():
    with pytest.raises(ConfigError, match="RAWDATA_F32_NHWC"):
        raw_input(np.zeros((1, 4, 4, 3)), "RAWDATA_F32_NHWC")
