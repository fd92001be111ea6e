"""The way of docs/exact_integers.md on tiny: the SDK's ranges and dumps, our calibrate, simulate and compare.

Every layer that both dumps have has to be the SDK's, integer by integer.
"""

import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image
from small_nets import conv, model, node, weights

from sgsdump.cli import main
from sgsdump.dumps.io import open_dump

L5 = ("L5", "input_config.ini", "tiny_L5", ())
CASES = {
    "tiny_L1_elim_dequant": ("L1", "input_config.ini", "tiny_L1", ()),
    "tiny_all16_elim": ("L1", "input_config_all16.ini", "tiny_all16", ()),
    "tiny_all16_plain": ("L1", "input_config_all16.ini", "tiny_all16", ()),
    "tiny_arr16_elim_dequant": ("L1", "input_config_arr16.ini", "tiny_arr16", ()),
    "tiny_nofuse_elim_dequant": ("L1", "input_config.ini", "tiny_nofuse", ("disableDomainFuseOps",)),
    "tiny_fixed_a_elim_dequant": L5,
    "tiny_fixed_b_elim": L5,
    "tiny_fixed_d_plain": L5,
}
LAYERS = {"relu1", "block/dw", "add", "pool1", "conv2", "conv3", "cat", "sig", "fc", "prob"}


@pytest.fixture
def simulated(shared, tmp_path, monkeypatch):
    """A function: case -> the SDK's dump and ours of the same switches, as paths."""
    monkeypatch.chdir(tmp_path)
    folder = shared / "sigmastar"
    model = folder / "model"

    def run(case):
        level, config, log, at_conversion = CASES[case]
        switches = (folder / "dumps" / case / "DebugConfig.txt").read_text().splitlines()
        lines = [line for line in switches if not line.startswith("path")]
        (tmp_path / "DebugConfig.txt").write_text("\n".join([*lines, *at_conversion, "path=."]) + "\n")
        ranges = folder / "calibration" / log / "tensor_min_max.txt"
        calibrate = f"calibrate -m {model}/tiny.prototxt --weight-file {model}/tiny.caffemodel -i {model}/in_norm.txt"
        calibrate += f" --input-config {model}/{config} --quant-level {level} --quant-file {ranges} -o fixed.onnx"
        assert main(calibrate.split()) == 0
        assert main(f"simulate -t Fixed -m fixed.onnx -i {model}/in_raw.txt".split()) == 0
        return folder / "dumps" / case / "sigma_outtensor_dump.bin", tmp_path / "sigma_outtensor_dump.bin"

    return run


@pytest.mark.parametrize("case", [case for case in CASES if not case.endswith("plain")])
def test_layers_are_identical(simulated, case, capsys):
    genuine, ours = simulated(case)
    capsys.readouterr()
    assert main(["compare", str(genuine), str(ours), "--json", "rows.json"]) == 0
    rows = json.loads(ours.with_name("rows.json").read_text())["rows"]
    assert {row["name"] for row in rows} >= LAYERS
    assert f"integers: {len(rows)} of {len(rows)} layers identical\n" in capsys.readouterr().out
    assert all(row["integers"]["count"] == row["count"] for row in rows)


@pytest.mark.parametrize("case", [case for case in CASES if case.endswith("plain")])
def test_constants_of_a_padded_dump_are_the_sdks_byte_for_byte(simulated, case):
    genuine, ours = (open_dump(path) for path in simulated(case))
    own = {record.name: record.tensor.raw().tobytes() for record in ours.records if record.constant}
    compared = 0
    for record in genuine.records:
        # fc_weight#28 is numbered by the converter, whose parameters of reshapes have no counterpart
        if record.constant and not record.name.startswith(("Reshape", "gap#")):
            assert own[record.name.partition("#")[0]] == record.tensor.raw().tobytes(), record.name
            compared += 1
    assert compared == 12


def test_calibrate_names_what_has_no_integer_rule(tmp_path, monkeypatch, capsys):
    """Four Softplus and an Erf: the same text once, at most three names of each; not a Cast of floats."""
    monkeypatch.chdir(tmp_path)
    names = ["same", "soft0", "soft1", "soft2", "soft3"]
    nodes = [conv("c", "data", pads=[1] * 4), node("Cast", ["c"], "same", to=onnx.TensorProto.FLOAT)]
    nodes += [node("Softplus", [before], after) for before, after in pairwise(names)]
    nodes += [node("Erf", ["soft3"], "bent")]
    onnx.save(model(nodes, weights("c", (4, 3, 3, 3), 1), {"data": (1, 3, 8, 8)}, ["bent"]).proto, "net.onnx")
    text = (Path(__file__).parents[3] / "cfg/input_config.ini").read_text()
    text = re.sub(r"(?m)^outputs\s*=.*$", "outputs = bent;", re.sub(r"(?m)^inputs\s*=.*$", "inputs = data;", text))
    (tmp_path / "input_config.ini").write_text(text)
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3)).astype(np.uint8)
    Image.fromarray(pixels).save("0.png")
    assert main("calibrate -m net.onnx -i 0.png --input-config input_config.ini --quant-level L1".split()) == 0
    last = [line for line in capsys.readouterr().out.splitlines() if line.startswith("no exact integer rule")]
    assert last == ["no exact integer rule for Softplus (soft0 and 3 more), Erf (bent): a table with ideal rounding"]


def test_a_narrowed_picture_is_dumped_as_its_bytes(shared, tmp_path, monkeypatch, capsys):
    """At L5 the SDK narrowed the picture's range: it computes with rescaled bytes, and dumps the picture's own."""
    monkeypatch.chdir(tmp_path)
    probe = shared / "sigmastar/probes/c_dw_L5"
    (tmp_path / "raw.py").write_text(
        "import numpy as np\n"
        "def get_image(path, norm=True, nchw=False):\n"
        "    picture = np.round(np.load(path)).astype(np.float32)[None]\n"
        "    picture = (picture - 127) / 128 if norm else picture\n"
        "    return picture.transpose(0, 3, 1, 2) if nchw else picture\n"
    )
    (tmp_path / "DebugConfig.txt").write_text("dumpTensor\neliminateGarbage\npath=.\n")
    calibrate = f"calibrate -m {probe}/net.prototxt --weight-file {probe}/net.caffemodel -i {probe}/input.npy -n raw.py"
    calibrate += f" --input-config {probe}/input_config.ini --quant-file {probe}/tensor_min_max.txt -o fixed.onnx"
    assert main(calibrate.split()) == 0
    assert main(f"simulate -t Fixed -m fixed.onnx -i {probe}/input.npy -n raw.py".split()) == 0
    capsys.readouterr()
    assert main(["compare", str(probe / "fixed.bin"), "sigma_outtensor_dump.bin", "--inputs"]) == 0
    assert "integers: 21 of 21 layers identical\n" in capsys.readouterr().out
