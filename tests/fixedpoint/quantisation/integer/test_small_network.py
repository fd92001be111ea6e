"""The small network of the SDK's examples, as its user gets it: calibrated and simulated by the command line with the
SDK's own log folder, against the SDK's own dumps."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from vendor_probes import fixed_of_log

from sgsdump.cli import main
from sgsdump.dumps.io import open_dump
from sgsdump.fixedpoint.verbs.network import open_float_model
from sgsdump.sidecars.input_config import read

# dump -> level, input_config.ini, log folder of the SDK's calibrator.
CASES = {
    "tiny_L1_elim_dequant": ("L1", "input_config.ini", "tiny_L1"),
    "tiny_all16_elim": ("L1", "input_config_all16.ini", "tiny_all16"),
    "tiny_all16_elim_dequant": ("L1", "input_config_all16.ini", "tiny_all16"),
    "tiny_all16_plain": ("L1", "input_config_all16.ini", "tiny_all16"),
    "tiny_arr16_elim_dequant": ("L1", "input_config_arr16.ini", "tiny_arr16"),
    "tiny_nofuse_elim_dequant": ("L1", "input_config.ini", "tiny_nofuse"),
    "tiny_fixed_a_elim_dequant": ("L5", "input_config.ini", "tiny_L5"),
    "tiny_fixed_b_elim": ("L5", "input_config.ini", "tiny_L5"),
    "tiny_fixed_d_plain": ("L5", "input_config.ini", "tiny_L5"),
}
# The Sigmoid and what is computed from it.
COMMON = {"relu1", "block/dw", "add", "pool1", "conv2", "conv3", "cat", "sig", "fc", "prob"}
COMMON |= {f"{name}_bias" for name in ("conv1", "block/dw", "block/pw", "conv2", "conv3", "fc")}


@pytest.fixture
def dumps(shared, tmp_path, monkeypatch, request):
    """The case, our dump and the vendor's."""
    case = request.param
    level, ini, log = CASES[case]
    genuine, model = shared / f"sigmastar/dumps/{case}", shared / "sigmastar/model"
    monkeypatch.chdir(tmp_path)
    words = [line for line in (genuine / "DebugConfig.txt").read_text().splitlines() if not line.startswith("path")]
    config = "\n".join([*words, f"path={tmp_path}/"])
    if log == "tiny_nofuse":
        config = f"disableDomainFuseOps\n{config}"
    Path("DebugConfig.txt").write_text(config)
    # Its ranges come from the log folder, all of them; one picture is enough to have been shown.
    Path("pictures").mkdir()
    Image.fromarray(np.full((20, 24, 3), 99, np.uint8)).save("pictures/0.png")
    ranges = shared / f"sigmastar/calibration/{log}/tensor_min_max.txt"
    files = ["-m", f"{model}/tiny.prototxt", "--weight-file", f"{model}/tiny.caffemodel"]
    how = ["-i", "pictures", "--input-config", f"{model}/{ini}", "--quant-level", level, "--quant-file", str(ranges)]
    assert main(["calibrate", *files, *how, "-o", "fixed.onnx"]) == 0
    shutil.rmtree("pictures")
    assert main(["simulate", "-t", "Fixed", "-m", "fixed.onnx", "-i", f"{model}/in_raw.txt"]) == 0
    return case, open_dump("sigma_outtensor_dump.bin"), open_dump(genuine / "sigma_outtensor_dump.bin")


@pytest.mark.parametrize("dumps", CASES, indirect=True)
def test_every_number_is_the_vendors(dumps):
    case, ours, vendor = dumps
    mine = {(r.io, r.name): r.tensor for r in ours.records}
    compared = []
    for record in vendor.records:
        name, tensor = record.name, mine.get((record.io, record.name))
        if tensor is None or (record.io == "in" and not record.constant):
            continue
        if name.endswith("_bias"):
            # With eliminateGarbage off both pad its two rows.
            own, theirs = tensor.raw().reshape(-1), record.tensor.raw().reshape(-1)
        elif record.constant:
            continue  # weights lie in an order of the hardware's own
        else:
            own, theirs = tensor.raw().reshape(-1), record.tensor.raw().reshape(-1)
        assert own.dtype == theirs.dtype and own.size == theirs.size, name
        if case.endswith("plain"):
            # Where our buffer has zeros for padding, the SDK's keeps what was there before.
            theirs = np.where(own == 0, 0, theirs)
        np.testing.assert_array_equal(own, theirs, err_msg=f"{record.io} {name}")
        compared.append(name)
    assert set(compared) >= COMMON


def test_what_has_no_rule_is_named_and_nothing_else(shared, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = shared / "sigmastar/model"
    ranges = shared / "sigmastar/calibration/tiny_L1/tensor_min_max.txt"
    net = open_float_model(model / "tiny.prototxt", model / "tiny.caffemodel", read(model / "input_config.ini"))
    fixed = fixed_of_log(net, ranges, read(model / "input_config.ini"), False)
    assert not fixed.approximate
