"""calibrate's levels and quant files, as a user types them."""

import json
import pickle
import re

import numpy as np
import onnx
import pytest
from picture_folder import write_pictures
from small_nets import residual_net

from sgsdump.cli import main
from sgsdump.fixedpoint.commands import demo
from sgsdump.models.fixed_facts import read_facts
from sgsdump.models.model import open_model

CALIBRATE = "calibrate -m net.onnx -i pictures --input-config input_config.ini -o fixed.onnx".split()
LOGS = {"tensor_min_max.txt", "tensor_chn.txt", "softmax_lut_range.txt"}
WEIGHTS = {"tensor_weight.txt", "tensor_weight_calibration.txt"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(residual_net().proto, "net.onnx")
    write_pictures(tmp_path, 3)
    return tmp_path


def files(folder):
    return {path.name for path in (folder / "log").iterdir()}


@pytest.mark.parametrize(("level", "expected"), [("L1", LOGS), ("L2", LOGS | WEIGHTS), ("L5", LOGS | WEIGHTS)])
def test_the_log_folder_holds_what_the_sdks_holds(folder, level, expected):
    assert main([*CALIBRATE, "--quant-level", level]) == 0
    assert files(folder) == expected


def test_l5_is_the_default_and_its_proposal_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    demo._lay_out(demo._digits())
    command = "calibrate -m digits.onnx -i pictures --input-config input_config.ini -o fixed.onnx".split()
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "INT16 proposed for block4/pw (tensor_arrays block4/dw/relu)" in out and "block2/pw" in out
    assert out.count("INT16 proposed") == 2 and "10 convolutions, 2 of them INT16" in out
    assert main([*command, "-sth", "100"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"no INT16 proposed: \d+ tensors at INT8 together change the outputs by .* not more than 100", out)
    assert "0 of them INT16" in out


def test_processes_change_nothing(folder):
    assert main(CALIBRATE) == 0
    first = {path.name: path.read_bytes() for path in (*(folder / "log").iterdir(), folder / "fixed.onnx")}
    assert main([*CALIBRATE, "--num-process", "2"]) == 0
    assert first == {path.name: path.read_bytes() for path in (*(folder / "log").iterdir(), folder / "fixed.onnx")}


def test_a_quant_file_decides_and_what_it_does_not_name_is_the_levels(folder, capsys):
    entries = [{"name": "pool", "min": [-1.0], "max": [7.0], "bit": 16}, {"name": "elsewhere", "min": [0], "max": [1]}]
    (folder / "q.json").write_text(json.dumps(entries))
    assert main([*CALIBRATE, "--quant-file", "q.json"]) == 0
    out = capsys.readouterr().out
    assert "q.json: 1 ranges used; level L3 gives all others" in out and "not in this model: elsewhere" in out
    assert "4 convolutions, 1 of them INT16" in out
    assert "Name:pool, min: -1.000000, max: 7.000000;" in (folder / "log/tensor_min_max.txt").read_text()
    assert files(folder) == LOGS | {"tensor_weight.txt", "tensor_weight_calibration.txt"}
    assert main([*CALIBRATE, "--quant-file", "q.json", "--quant-level", "L1"]) == 0
    assert "level L1 gives all others" in capsys.readouterr().out and files(folder) == LOGS


@pytest.mark.parametrize(("level", "per_channel"), [("L1", False), ("L2", True)])
def test_a_tensor_min_max_is_a_quant_file_too(folder, level, per_channel):
    assert main([*CALIBRATE, "--quant-level", level, "-o", "first.onnx"]) == 0
    ranges = (folder / "log/tensor_min_max.txt").read_text()
    (folder / "ranges.txt").write_text(ranges)
    assert main([*CALIBRATE, "--quant-level", level, "-o", "again.onnx", "--quant-file", "ranges.txt"]) == 0
    first, again = (read_facts(open_model(folder / name)) for name in ("first.onnx", "again.onnx"))
    for name, tensor in first.tensors.items():
        assert tensor.scale == pytest.approx(again.tensors[name].scale, rel=1e-3), name
    assert {isinstance(w.scale, tuple) for w in again.weights.values()} == {per_channel}


@pytest.mark.parametrize(("times", "told"), [(100, "warning: q.txt: 13 of 17 ranges"), (3, None), (1, None)])
def test_ranges_that_are_too_wide_are_told(folder, capsys, times, told):
    """The ranges of these very pictures, each end so many times as far from 0: 13 tensors and 4 weights."""
    assert main(CALIBRATE) == 0
    number = r"(-?\d+\.\d+)"
    measured = re.findall(rf"Name:(.*), min: {number}, max: {number};", (folder / "log/tensor_min_max.txt").read_text())
    lines = [f"Name:{name}, min: {times * float(low)}, max: {times * float(high)};\n" for name, low, high in measured]
    (folder / "q.txt").write_text("".join(lines))
    capsys.readouterr()
    assert main([*CALIBRATE, "--quant-file", "q.txt"]) == 0
    warnings = [line for line in capsys.readouterr().out.splitlines() if "times as wide" in line]
    assert len(warnings) == (told is not None)
    assert all(told in line and "100 times" in line for line in warnings), warnings


def test_new_weights_are_marked_as_changed(folder):
    weight = onnx.numpy_helper.to_array(next(t for t in residual_net().proto.graph.initializer if t.name == "c2.w"))
    entry = {"name": "c2.w", "min": [-1.0], "max": [1.0], "bit": 8, "data": weight / 2}
    (folder / "q.pkl").write_bytes(pickle.dumps([entry], 3))
    assert main([*CALIBRATE, "--quant-file", "q.pkl"]) == 0
    blocks = (folder / "log/tensor_weight.txt").read_text().split("Name:[")
    assert [block.partition("]")[0] for block in blocks if "hasChanged:TRUE" in block] == ["r1,c2.w"]


@pytest.mark.parametrize(
    ("words", "content", "message"),
    [
        (["--quant-file", "q"], '[{"name": "zz", "min": [0], "max": [1]}]', "q: no entry names a tensor of the model"),
        (["--quant-file", "q"], '[{"name": "r1", "min": [3], "max": [1]}]', "min above its max"),
        (["--quant-file", "q"], '[{"name": "r1", "min": [0], "max": [1], "bit": 4}]', "is set to bit = 4"),
        (["--quant-file", "none"], "", "cannot read none"),
        (["-i", "broken"], "", "broken"),
    ],
)
def test_trouble_is_one_line_and_nothing_is_left(folder, capsys, words, content, message):
    (folder / "q").write_text(content)
    before = sorted(folder.rglob("*"))
    assert main([*CALIBRATE, *words]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("sgsdump")]
    assert len(lines) == 1 and message in lines[0]
    assert sorted(folder.rglob("*")) == before


def test_a_log_that_cannot_be_written_leaves_the_older_one(folder, monkeypatch):
    from sgsdump.errors import OutputError
    from sgsdump.sidecars import tensor_chn

    assert main(CALIBRATE) == 0
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def full(*_):
        raise OutputError("no space left")

    monkeypatch.setattr(tensor_chn, "write", full)
    assert main([*CALIBRATE, "--quant-level", "L1"]) == 2
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("words", [["--num-process", "0"], ["--num-process", "x"], ["-sth", "-1"], ["-sth", "nan"]])
def test_numbers_that_mean_nothing_are_refused(folder, words, capsys):
    with pytest.raises(SystemExit):
        main([*CALIBRATE, *words])
    assert words[0] in capsys.readouterr().err


PREPROCESS = """import numpy as np
from PIL import Image

def get_image(path, norm=True, nchw=False):
    pixels = np.asarray(Image.open(path)).astype(np.float32)[None]
    pixels = (pixels - {mean}) / 128 if norm else pixels
    return pixels.transpose(0, 3, 1, 2) if nchw else pixels
"""


@pytest.mark.parametrize(("mean", "said"), [(127, False), (4, True)])
def test_a_preprocess_file_that_disagrees_with_input_config_is_said_before_the_work(folder, capsys, mean, said):
    (folder / "preprocess.py").write_text(PREPROCESS.format(mean=mean))
    assert main([*CALIBRATE, "-n", "preprocess.py", "--quant-level", "L1"]) == 0
    out = capsys.readouterr().out
    assert ("warning: " in out.splitlines()[0] and "0.png: input 'data': " in out) == said
    assert ("(difference up to 0.961, 123 grey levels)" in out) == said


def test_what_a_quant_file_clips_of_the_calibrated_values_is_named(folder, capsys):
    entries = [{"name": name, "min": [0.0], "max": [0.01], "bit": 8} for name in ("r2", "pool")]
    (folder / "q.json").write_text(json.dumps(entries))
    assert main([*CALIBRATE, "--quant-file", "q.json", "--quant-level", "L1"]) == 0
    out = capsys.readouterr().out
    assert "warning: r2: the calibration range 0 to " in out and "warning: pool: the calibration range 0 to " in out
    assert out.count("is clipped to the range 0 to 0.01") == 2 == out.count("warning: ")


def test_weights_that_lie_beside_the_model_are_read_one_at_a_time_at_l1_and_l2_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sgsdump.models.external_data.MANY_BYTES", 1)
    np.save("x.npy", np.random.default_rng(0).normal(0, 1, (1, 3, 8, 8)).astype(np.float32))
    onnx.save(residual_net().proto, "net.onnx", save_as_external_data=True, size_threshold=0)
    for level, is_said in (("L2", False), ("L3", True)):
        assert main(["calibrate", "-m", "net.onnx", "-i", "x.npy", "--quant-level", level]) == 0
        assert ("GB of weights are held in memory" in capsys.readouterr().out) == is_said, level
