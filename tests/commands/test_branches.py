"""Networks with Ifs in every command: what is inside is dumped, quantised and judged where all data take one branch."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from branching_nets import OTHER_RATE, RATE, by_rate, feed

from sgsdump import open_dump
from sgsdump.cli import main
from sgsdump.sidecars.tensor_min_max import read_ranges

INI = """[INPUT_CONFIG]
inputs = data,sr;
training_input_formats = RAWDATA_F32_NHWC,RAWDATA_F32_NHWC;
input_formats = RAWDATA_F32_NHWC,RAWDATA_F32_NHWC;
quantizations = TRUE,FALSE;
[OUTPUT_CONFIG]
outputs = y;
dequantizations = TRUE;
"""
TAKEN = "replaced by the branch that all 3 inputs take: b.if (then), s.if (then)"
STAYS = "b.if (If) stays: different inputs take different branches"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(by_rate().proto, "net.onnx")
    for number in range(3):
        for name, array in feed(seed=number).items():
            np.save(f"{name}{number}.npy", array)
    np.save("other.npy", OTHER_RATE)
    Path("same.txt").write_text("".join(f"data{number}.npy,sr{number}.npy\n" for number in range(3)))
    Path("mixed.txt").write_text("data0.npy,sr0.npy\ndata1.npy,other.npy\n")
    Path("input_config.ini").write_text(INI)
    return tmp_path


def test_dump_and_simulate_show_what_is_inside(folder, capsys):
    assert main("dump -m net.onnx -i same.txt -o same.bin".split()) == 0
    assert TAKEN in capsys.readouterr().out
    dump = open_dump("same_data1.bin")
    assert {"c2", "small", "b", "c3"} <= set(dump)
    (y,) = ort.InferenceSession("net.onnx").run(None, feed(seed=1))
    np.testing.assert_allclose(np.moveaxis(dump["y"].real(), -1, 1), y, rtol=1e-4, atol=1e-5)
    assert main("dump -m net.onnx -i mixed.txt -o mixed.bin".split()) == 0
    assert STAYS in capsys.readouterr().out and "c2" not in set(open_dump("mixed_data1.bin"))
    assert main("simulate -m net.onnx -t Float -i same.txt".split()) == 0
    assert TAKEN in capsys.readouterr().out


def test_pipeline_and_its_bisection(folder, capsys):
    inputs = ["-m", "net.onnx", "-i", "data:data0.npy,sr:sr0.npy"]
    assert main(["pipeline", "full", *inputs, "-o", "d"]) == 0
    said = capsys.readouterr().out
    assert "b.if (then), s.if (then)" in said and "inside a body" not in said
    assert any(path.name.endswith("__c2.npy") for path in Path("d/outputs").iterdir())
    assert main(["pipeline", "once", *inputs, "--name", "c2", "-o", "o"]) == 0
    assert main(["pipeline", "full", *inputs, "--bisect", "reference"]) == 0
    for name, rate in (("a", RATE), ("b", OTHER_RATE)):
        Path("many", name).mkdir(parents=True)
        for key, array in feed(rate).items():
            np.save(f"many/{name}/{key}.npy", array)
    capsys.readouterr()
    assert main("pipeline full -m net.onnx --input-dir many -o m".split()) == 0
    assert STAYS in capsys.readouterr().out


def test_it_is_quantised_and_other_branches_are_refused(folder, capsys):
    ini = ["--input-config", "input_config.ini", "--quant-level", "L1"]
    assert main(["calibrate", "-m", "net.onnx", "-i", "same.txt", *ini]) == 0
    assert TAKEN in capsys.readouterr().out and {"c2", "b"} <= set(read_ranges(Path("log/tensor_min_max.txt")))
    assert not any(node.op_type == "If" for node in onnx.load("net_fixed.onnx").graph.node)
    assert main("simulate -m net_fixed.onnx -t Fixed -i data0.npy,sr0.npy".split()) == 0
    before = set(folder.iterdir())
    for command in ("simulate -t Fixed", "dump"):
        capsys.readouterr()
        assert main([*command.split(), "-m", "net_fixed.onnx", "-i", "data0.npy,other.npy"]) == 2
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1 and "If 'b.if' takes a different branch than 'then'" in lines[0]
    assert set(folder.iterdir()) <= {*before, folder / "dumpData"}
    given = ["--fixed", "net_fixed.onnx", "-o", "d"]
    assert main(["diagnose", "-m", "net.onnx", "-i", "same.txt", *given]) == 0
    assert TAKEN in capsys.readouterr().out
    with open("d/layers.csv", newline="") as file:
        assert {"c2", "b"} <= {row["name"] for row in csv.DictReader(file)}
    assert main(["diagnose", "-m", "net.onnx", "-i", "data0.npy,other.npy", *given]) == 2
    assert "created for the If branches" in capsys.readouterr().err
    explained = ["tune", "--explain", "--ranges", "log/tensor_min_max.txt", "-m", "net.onnx", *ini]
    assert main([*explained, "-i", "same.txt"]) == 0
    assert "c2" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["tune --evaluate", "tune --first --debug-image"])
def test_pictures_to_judge_on_take_the_branches_of_those_to_calibrate_on(folder, capsys, option):
    *command, given = option.split()
    Path("judge.txt").write_text("data2.npy,other.npy\n")
    ini = ["--input-config", "input_config.ini", "--quant-level", "L1", "-o", "out"]
    assert main([*command, "-m", "net.onnx", "-i", "same.txt", given, "judge.txt", *ini]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert len(lines) == 1 and "takes a different branch than 'then'" in lines[0]
    assert not Path("out").exists()


def test_calibration_data_that_differ_leave_the_if(folder, capsys):
    ini = ["--input-config", "input_config.ini", "--quant-level", "L1"]
    assert main(["calibrate", "-m", "net.onnx", "-i", "mixed.txt", *ini]) == 0
    assert STAYS in capsys.readouterr().out
    for rate in ("sr0", "other"):
        assert main(f"simulate -m net_fixed.onnx -t Fixed -i data0.npy,{rate}.npy".split()) == 0


def test_a_program_of_onnxruntime(folder, capfd):
    Path("program.py").write_text(
        "import numpy as np, onnxruntime as ort\n"
        "session = ort.InferenceSession('net.onnx')\n"
        "for number in range(2):\n"
        "    session.run(None, {'data': np.load(f'data{number}.npy'), 'sr': np.load('sr0.npy')})\n"
    )
    assert main(["exec", "-o", "out", "-er", "0,1", "--", sys.executable, "program.py"]) == 0
    text = capfd.readouterr()
    assert "b.if (then), s.if (then)" in text.out + text.err
    (tree,) = Path("out").iterdir()
    (dump,) = tree.rglob("1.bin")
    assert {"c2", "b", "y"} <= set(open_dump(dump))
