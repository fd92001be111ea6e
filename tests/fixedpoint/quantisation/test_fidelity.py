"""Our fixed model against the vendor's fixed simulator, on its own ranges and its own input, layer by layer.

``flat`` stands for the vendor's ``gap#/Mul0Output#35``; its reshape copies have no counterpart. To the last integer the
same network stands in ``integer/test_small_network.py``, read from its Caffe files. What is asked: COS of
0.9999 or more, 99 % of the elements of a UINT8 layer within one step, and an error against the float model within 5 %
of the vendor's own (0.002 for tensors of fewer than 300 elements).
"""

import numpy as np
import pytest

from sgsdump.dumps.io import open_dump
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.quantisation.simulation import simulate
from sgsdump.models.model import open_model
from sgsdump.sidecars import input_config, input_text
from sgsdump.sidecars.tensor_min_max import read_ranges
from sgsdump.tensors.types import to_nchw

CASES = {
    "tiny_L1_elim_dequant": ("tiny_L1", "input_config.ini", {}),
    "tiny_all16_elim_dequant": ("tiny_all16", "input_config_all16.ini", {}),
    "tiny_arr16_elim_dequant": ("tiny_arr16", "input_config_arr16.ini", {}),
    "tiny_nofuse_elim_dequant": ("tiny_nofuse", "input_config.ini", {"fuse": False}),
    "tiny_fixed_a_elim_dequant": ("tiny_L5", "input_config.ini", {"per_channel": True}),
}
VENDOR_GAP = "gap#/Mul0Output#35"
REQUANTISED = ("tiny_nofuse_elim_dequant", "gap")


def sim(shared, case):
    """Our fixed model's records by output name, made with the vendor's ranges and run on the vendor's raw input."""
    from dataclasses import replace

    folder = shared / "sigmastar"
    level, config, how = CASES[case]
    ranges = read_ranges(folder / "calibration" / level / "tensor_min_max.txt")
    model = simplify(open_model(folder / "model" / "tiny.onnx"))
    fixed = make_fixed(model, ranges, input_config.read(folder / "model" / config), **how)
    raw = input_text.read(folder / "model" / "in_raw.txt").values.reshape(1, 20, 24, 3)
    feed = {"data": np.ascontiguousarray(to_nchw(raw)).astype(np.float32)}
    records = simulate(replace(model, proto=fixed.proto), feed).records
    return {r.name: r.tensor for r in records if r.io == "out"}


def flat(tensor):
    return tensor.real().reshape(-1).astype(np.float64)


@pytest.mark.parametrize("case", CASES)
def test_every_common_layer_is_the_vendors(shared, case):
    ours = sim(shared, case)
    dumps = shared / "sigmastar" / "dumps"
    vendor = open_dump(dumps / case / "sigma_outtensor_dump.bin")
    floats = open_dump(dumps / "tiny_float_a_full" / "sigma_outtensor_dump.bin")
    compared = 0
    for name in vendor.outputs:
        own = "flat" if name == VENDOR_GAP else name
        if own not in ours:
            assert "reshape" in name or name == "fc#32", f"{name} is missing"
            continue
        compared += 1
        a, v, b = flat(ours[own]), flat(vendor[name]), flat(floats[name])
        quant, header = ours[own].info.quant, vendor[name].info.quant
        if (case, name) != REQUANTISED:
            assert (quant.dtype, f"{quant.scale:f}", quant.zero_point) == (
                header.dtype, f"{header.scale:f}", header.zero_point,
            ), name  # fmt: skip
        assert a @ v / np.sqrt((a @ a) * (v @ v)) >= 0.9999, name
        if header.dtype == np.uint8:
            assert np.mean(np.abs(a - v) <= 1.01 * quant.scale) >= 0.99, name
        error, theirs = (np.abs(x - b).sum() / np.abs(b).sum() for x in (a, v))
        allowed = 0.05 * theirs if a.size >= 300 else 0.002
        assert abs(error - theirs) <= allowed, (name, error, theirs)
    assert compared >= 11


def test_the_header_of_the_picture_is_the_vendors_and_its_bytes_are_the_pictures(shared):
    from dataclasses import replace

    folder = shared / "sigmastar"
    model = simplify(open_model(folder / "model" / "tiny.onnx"))
    ranges = read_ranges(folder / "calibration" / "tiny_L1" / "tensor_min_max.txt")
    fixed = make_fixed(model, ranges, input_config.read(folder / "model" / "input_config.ini"))
    raw = input_text.read(folder / "model" / "in_raw.txt").values.reshape(1, 20, 24, 3)
    feed = {"data": np.ascontiguousarray(to_nchw(raw)).astype(np.float32)}
    records = simulate(replace(model, proto=fixed.proto), feed, dequantise=False).records
    first = next(iter(records)).tensor
    vendor = open_dump(folder / "dumps" / "tiny_fixed_b_elim" / "sigma_outtensor_dump.bin").records[0].tensor
    np.testing.assert_array_equal(first.stored().reshape(-1), vendor.raw())
    assert f"{first.info.quant.scale:f}" == f"{vendor.info.quant.scale:f}"
