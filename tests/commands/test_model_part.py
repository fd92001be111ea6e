"""``--model-inputs`` and ``--model-outputs``: commands work on a part of the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from small_nets import residual_net

from sgsdump import open_dump
from sgsdump.cli import main
from sgsdump.sidecars.tensor_min_max import read_ranges

INI = """[INPUT_CONFIG]
inputs = data;
training_input_formats = RAWDATA_F32_NHWC;
input_formats = RAWDATA_F32_NHWC;
quantizations = TRUE;
[OUTPUT_CONFIG]
outputs = {output};
dequantizations = TRUE;
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(residual_net().proto, "net.onnx")
    np.save("data.npy", np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32))
    return tmp_path


def test_a_part_dumps_what_the_whole_does(folder):
    assert main("dump -m net.onnx -i data.npy -o whole.bin".split()) == 0
    whole = open_dump("whole.bin")
    assert main("dump -m net.onnx -i data.npy --model-outputs r1 c2 -o begin.bin".split()) == 0
    begin = open_dump("begin.bin")
    assert set(begin) == {"c1", "r1", "c2"}
    np.save("r1.npy", np.moveaxis(np.asarray(begin["r1"].real()), -1, 1))
    assert main("dump -m net.onnx -i r1.npy --model-inputs r1 --model-outputs add -o middle.bin".split()) == 0
    middle = open_dump("middle.bin")
    assert set(middle) == {"c2", "add"}
    for name, tensor in {**begin, **middle}.items():
        assert np.array_equal(tensor.real(), whole[name].real()), name


def test_pipeline_takes_a_part(folder):
    assert main("pipeline full -m net.onnx --model-inputs r1 --model-outputs add -o d".split()) == 0
    assert [path.name for path in sorted(Path("d/outputs").iterdir())] == [
        "topoidx_00000__c2.npy",
        "topoidx_00001__add.npy",
    ]
    assert [path.name for path in Path("d/inputs").iterdir()] == ["r1.npy"]


def test_a_part_is_quantised_and_judged(folder, capsys):
    Path("input_config.ini").write_text(INI.format(output="pool"))
    part = ["-m", "net.onnx", "-i", "data.npy", "--model-outputs", "pool"]
    assert main(["calibrate", *part, "--input-config", "input_config.ini", "--quant-level", "L1"]) == 0
    assert [info.name for info in onnx.load("net_fixed.onnx").graph.output] == ["pool"]
    assert not {"c3", "prob"} & set(read_ranges(Path("log/tensor_min_max.txt")))
    assert main(["simulate", *part, "-t", "Float"]) == 0
    assert "output pool" in capsys.readouterr().out
    assert main(["diagnose", *part, "--quant-level", "L1", "-o", "d"]) == 0
    assert "c3" not in Path("d/layers.csv").read_text()
    ranges = ["log/tensor_min_max.txt", "--input-config", "input_config.ini"]
    assert main(["tune", "--explain", "--ranges", *ranges, *part, "--quant-level", "L1"]) == 0
    assert "c3" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("dump -i data.npy --model-outputs poool", "no tensor 'poool'; did you mean 'pool'"),
        ("simulate -t Float -i data.npy --model-inputs datum", "no tensor 'datum'; did you mean 'data'"),
        ("pipeline full --model-outputs prop", "no tensor 'prop'; did you mean 'prob'"),
        ("dump -i data.npy --model-inputs r1 --model-outputs c1", "no output of the selected part depends on 'r1'"),
        ("dump -i data.npy --model-outputs data", "no operator lies between"),
        ("simulate -t Fixed -i data.npy --model-outputs r1", "cut a fixed model, pass these options to calibrate"),
        ("diagnose -i data.npy --model-outputs sigg", "did you mean 'sig'"),
    ],
)
def test_a_part_that_is_none_is_one_line(folder, capsys, command, said):
    assert main([*command.split(), "-m", "net.onnx"]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and said in lines[0]
    assert sorted(path.name for path in folder.iterdir()) == ["data.npy", "net.onnx"]
