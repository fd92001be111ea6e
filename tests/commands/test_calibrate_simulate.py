"""calibrate and simulate as a user types them, in an empty folder."""

import numpy as np
import onnx
import pytest
from PIL import Image
from small_nets import residual_net

from sgsdump.cli import main
from sgsdump.dumps.io import open_dump
from sgsdump.sidecars.tensor_min_max import read_ranges

INI = """[INPUT_CONFIG]
inputs = data;
training_input_formats = RGB;
input_formats = RGB;
mean_red = 127;
mean_green = 127;
mean_blue = 127;
std_value = 128;
[OUTPUT_CONFIG]
outputs = prob;
dequantizations = TRUE;
"""
CALIBRATE = "calibrate -m net.onnx -i pictures --input-config input_config.ini -o fixed.onnx".split()
FIXED = "simulate -m fixed.onnx -t Fixed -i pictures/0.png".split()
FLOAT = "simulate -m net.onnx -t Float -i pictures/0.png --input-config input_config.ini".split()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    onnx.save(residual_net().proto, "net.onnx")
    (tmp_path / "input_config.ini").write_text(INI)
    (tmp_path / "pictures").mkdir()
    for seed in range(3):
        pixels = np.random.default_rng(seed).integers(0, 256, (8, 8, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / "pictures" / f"{seed}.png")
    return tmp_path


def debug(folder, *words):
    (folder / "DebugConfig.txt").write_text("\n".join((*words, "path=.")) + "\n")


def test_the_whole_way(folder, capsys):
    assert main(CALIBRATE) == 0
    out = capsys.readouterr().out
    assert "over 3 pictures" in out and "4 convolutions, 0 of them INT16" in out
    assert "r1" in read_ranges(folder / "log" / "tensor_min_max.txt")
    debug(folder, "dumpTensor", "eliminateGarbage", "dequantFixed")
    assert main(FIXED) == 0
    (folder / "sigma_outtensor_dump.bin").rename(folder / "fixed.bin")
    assert main(FLOAT) == 0
    fixed, floats = open_dump("fixed.bin"), open_dump("sigma_outtensor_dump.bin")
    assert set(fixed) < set(floats)
    assert np.abs(fixed["prob"].real() - floats["prob"].real()).max() < 0.05


def test_every_word_of_debug_config(folder):
    main(CALIBRATE)
    debug(folder, "dumpTensor", "eliminateGarbage", "dequantFixed")
    main(FIXED)
    dequantised = open_dump("sigma_outtensor_dump.bin")
    debug(folder, "dumpTensor", "eliminateGarbage")
    main(FIXED)
    integers = open_dump("sigma_outtensor_dump.bin")
    assert integers["r1"].stored().dtype == np.uint8 and integers["c3"].stored().dtype == np.int16
    debug(folder, "dumpTensor", "eliminateGarbage", "dumpasstring")
    main(FIXED)
    text = open_dump("sigma_outtensor_dump.bin")
    assert text.format == "sigmastar_text"
    np.testing.assert_array_equal(text["c3"].stored().reshape(-1), integers["c3"].stored().reshape(-1))
    debug(folder, "dumpTensor")
    main(FIXED)
    padded = open_dump("sigma_outtensor_dump.bin")
    assert padded["c3"].raw().size > integers["c3"].raw().size
    debug(folder, "dumpTensor", "eliminateGarbage", "dequantFixed", "dumpdonotrecovery")
    assert main([*FIXED[:-1], "pictures"]) == 0
    assert {p.name for p in folder.glob("sigma*")} >= {f"sigma_outtensor_dump_{n}.bin" for n in (1, 2, 3)}
    np.testing.assert_array_equal(open_dump("sigma_outtensor_dump_1.bin")["prob"].real(), dequantised["prob"].real())


def test_disable_domain_fuse_ops_keeps_layers_visible(folder):
    debug(folder, "disableDomainFuseOps")
    main(CALIBRATE)
    debug(folder, "dumpTensor", "eliminateGarbage", "dequantFixed")
    main(FIXED)
    assert {"c2", "add"} <= set(open_dump("sigma_outtensor_dump.bin"))


def test_an_older_log_is_moved_aside(folder, capsys):
    main(CALIBRATE)
    before = (folder / "log" / "tensor_min_max.txt").read_text()
    main([*CALIBRATE, "--json"])
    assert "moved the older log aside" in capsys.readouterr().out
    aside = next(folder.glob("log_*"))
    assert (aside / "tensor_min_max.txt").read_text() == before
    assert (
        read_ranges(folder / "log" / "tensor_min_max.json").keys() == read_ranges(aside / "tensor_min_max.txt").keys()
    )


def test_without_dumptensor_only_the_outputs_are_summed_up(folder, capsys):
    assert main(FLOAT) == 0
    out = capsys.readouterr().out
    assert "output prob [1, 5]" in out and "no dump" in out
    assert not list(folder.glob("sigma*"))


@pytest.mark.parametrize(
    ("command", "words", "message"),
    [
        ([*FLOAT[:3], "-t", "Offline", *FLOAT[5:]], [], "offline models cannot be dumped per layer"),
        ([*FLOAT[:3], "-t", "Fixed", *FLOAT[5:]], [], "net.onnx is a float model; simulate it with -t Float"),
        ([*FLOAT[:6], "pictures", *FLOAT[7:]], ["dumpTensor"], "3 pictures"),
        (FLOAT, ["dumpTensor", "dequantFixed"], "dequantFixed without eliminateGarbage"),
        (FLOAT, ["dumpTensr"], "did you mean 'dumpTensor'"),
        ([*CALIBRATE[:-1], "no/such/fixed.onnx"], [], "there is no folder no/such"),
        ([*CALIBRATE[:4], "none", *CALIBRATE[5:]], [], "none"),
    ],
)
def test_trouble_is_one_line_and_status_2(folder, capsys, command, words, message):
    debug(folder, *words)
    before = sorted(folder.rglob("*"))
    assert main(command) == 2
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if line.startswith("sgsdump")]
    assert len(lines) == 1 and message in lines[0], captured.err
    assert sorted(folder.rglob("*")) == before, "nothing was written"


def test_a_failed_write_is_an_error(folder, capsys, monkeypatch):
    debug(folder, "dumpTensor")
    (folder / "sigma_outtensor_dump.bin").mkdir()
    assert main(FLOAT) == 2
    assert "it is a folder" in capsys.readouterr().err
