"""calibrate and simulate as a user types them, in an empty folder."""

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from json_documents import checked
from picture_folder import write_pictures
from platforms import open_on_windows
from small_nets import conv, model, node, residual_net, weights

from sgsdump.cli import main
from sgsdump.dumps.formats.sigmastar.side_files import with_side_files
from sgsdump.dumps.io import open_dump
from sgsdump.models.fixed_facts import read_facts
from sgsdump.models.model import open_model
from sgsdump.sidecars import parse_net
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
    write_pictures(tmp_path, 3, INI)
    return tmp_path


def debug(folder, *words):
    (folder / "DebugConfig.txt").write_text("\n".join((*words, "path=.")) + "\n")


def test_the_whole_way(folder, capsys):
    assert main(CALIBRATE) == 0
    out = capsys.readouterr().out
    assert "over 3 images" in out and "4 convolutions, 0 of them INT16" in out
    assert "r1" in read_ranges(folder / "log" / "tensor_min_max.txt")
    debug(folder, "dumpTensor", "eliminateGarbage", "dequantFixed")
    assert main(FIXED) == 0
    (folder / "sigma_outtensor_dump.bin").rename(folder / "fixed.bin")
    assert main(FLOAT) == 0
    fixed, floats = open_dump("fixed.bin"), open_dump("sigma_outtensor_dump.bin")
    assert set(fixed) < set(floats)
    assert np.abs(fixed["prob"].real() - floats["prob"].real()).max() < 0.05


@pytest.fixture
def wide_folder(folder):
    """A net whose UINT8 tensors have 24 and 32 channels: the hardware keeps them in blocks of 16."""
    constants = {**weights("a", (24, 3, 3, 3), 1), **weights("b", (32, 24, 3, 3), 2), **weights("c", (5, 32, 1, 1), 3)}
    nodes = [conv("a", "data", pads=[1] * 4), node("Relu", ["a"], "ra"), conv("b", "ra", pads=[1] * 4)]
    nodes += [node("Relu", ["b"], "rb"), conv("c", "rb"), node("Softmax", ["c"], "prob", axis=1)]
    onnx.save(model(nodes, constants, {"data": (1, 3, 8, 8)}, ["prob"]).proto, "net.onnx")
    main(CALIBRATE)
    debug(folder, "dumpTensor", "eliminateGarbage", "dequantFixed")
    main(FLOAT)
    (folder / "sigma_outtensor_dump.bin").rename(folder / "float.bin")
    main(FIXED)
    (folder / "sigma_outtensor_dump.bin").rename(folder / "plain.bin")
    debug(folder, "dumpTensor")
    main(FIXED)
    return folder


def test_padded_buffers_lie_as_the_sdks_and_our_parse_net_text_undoes_them(wide_folder, capsys):
    padded, plain = open_dump("sigma_outtensor_dump.bin"), open_dump("plain.bin")
    net = parse_net.read("sigma_outtensor_dump_parse_net.txt")
    orders = {name: tensor.ddr_type for name, tensor in net.tensors.items()}
    assert orders == {
        "data": "RGB", "ra": "IPU_U8_NHWX", "rb": "IPU_U8_NHWX", "c": "IPU_S16_NHWC", "prob": "IPU_S16_NHWC",
    }  # fmt: skip
    blocks = padded["ra"].raw().reshape(2, 8, 8, 16)
    quant = net.tensors["ra"]
    real = (blocks.astype(np.float64) - quant.zero_point) * (quant.high - quant.low) / 255
    np.testing.assert_allclose(real[0], plain["ra"].real()[0, ..., :16], atol=1e-5)
    np.testing.assert_allclose(real[1, ..., :8], plain["ra"].real()[0, ..., 16:], atol=1e-5)
    for record in with_side_files(padded, net=net).outputs.values():
        np.testing.assert_allclose(record.real(), plain[record.info.name].real(), rtol=1e-4, atol=1e-5)


def test_what_cannot_be_unpadded_is_not_compared(wide_folder, capsys):
    capsys.readouterr()
    compare = ["compare", "sigma_outtensor_dump.bin", "float.bin", "--ranges", "log/tensor_min_max.txt"]
    assert main(compare) != 0
    out = capsys.readouterr().out
    reason, names = re.search(
        r"\n  (is a padded hardware buffer of unknown order\. .*) \(\d+\):\n +(.*)\n", out
    ).groups()
    assert "--parse-net" in reason and {"ra", "rb"} <= set(names.split(", "))
    main(["compare", "sigma_outtensor_dump.bin", "float.bin", "--parse-net", "sigma_outtensor_dump_parse_net.txt",
          "--json", "rows.json"])  # fmt: skip
    rows = {row["name"]: row["cos"] for row in json.loads((wide_folder / "rows.json").read_text())["rows"]}
    assert {"ra", "rb", "c", "prob"} <= rows.keys() and min(rows.values()) > 0.99


def test_every_word_of_debug_config(folder):
    main(CALIBRATE)
    debug(folder, "dumpTensor", "eliminateGarbage", "dequantFixed")
    main(FIXED)
    with open_dump("sigma_outtensor_dump.bin") as dump:  # written over below
        expected = np.array(dump["prob"].real())
    debug(folder, "dumpTensor", "eliminateGarbage")
    main(FIXED)
    with open_dump("sigma_outtensor_dump.bin") as integers:
        sig, size = np.array(integers["sig"].stored()), integers["sig"].raw().size
        assert integers["r1"].stored().dtype == np.uint8 and sig.dtype == np.int16
    debug(folder, "dumpTensor", "eliminateGarbage", "dumpasstring")
    main(FIXED)
    with open_dump("sigma_outtensor_dump.bin") as text:
        assert text.format == "sigmastar_text"
        np.testing.assert_array_equal(text["sig"].stored().reshape(-1), sig.reshape(-1))
    debug(folder, "dumpTensor")
    main(FIXED)
    padded = open_dump("sigma_outtensor_dump.bin")
    assert padded["sig"].raw().size > size
    debug(folder, "dumpTensor", "eliminateGarbage", "dequantFixed", "dumpdonotrecovery")
    assert main([*FIXED[:-1], "pictures"]) == 0
    assert {p.name for p in folder.glob("sigma*")} >= {f"sigma_outtensor_dump_{n}.bin" for n in (1, 2, 3)}
    np.testing.assert_array_equal(open_dump("sigma_outtensor_dump_1.bin")["prob"].real(), expected)


def test_disable_domain_fuse_ops_keeps_layers_visible(folder):
    debug(folder, "disableDomainFuseOps")
    main(CALIBRATE)
    debug(folder, "dumpTensor", "eliminateGarbage", "dequantFixed")
    main(FIXED)
    assert {"c2", "add"} <= set(open_dump("sigma_outtensor_dump.bin"))


def test_a_newer_log_takes_the_place_of_the_older_one_and_of_nothing_else(folder, capsys):
    (folder / "log").mkdir()
    (folder / "log" / "mine.txt").write_text("mine")
    main(CALIBRATE)
    before = read_ranges(folder / "log" / "tensor_min_max.txt").keys()
    main([*CALIBRATE, "--json", "--quant-level", "L1"])
    files = {path.name for path in (folder / "log").iterdir()}
    assert files == {"mine.txt", "tensor_min_max.json", "tensor_chn.txt", "softmax_lut_range.txt"}
    assert read_ranges(folder / "log" / "tensor_min_max.json").keys() == before
    assert [path.name for path in folder.glob("*log*")] == ["log"]


def test_dequant_fixed_alone_is_refused_for_the_fixed_model_only(folder, capsys):
    debug(folder, "dumpTensor", "dequantFixed")
    assert main(CALIBRATE) == 0
    assert main(FLOAT) == 0
    floats = (folder / "sigma_outtensor_dump.bin").read_bytes()
    capsys.readouterr()
    assert main(FIXED) == 2
    assert "dequantFixed without eliminateGarbage" in capsys.readouterr().err
    debug(folder, "dumpTensor")
    assert main(FLOAT) == 0
    assert (folder / "sigma_outtensor_dump.bin").read_bytes() == floats


@pytest.mark.parametrize(
    ("trained", "given", "said"),
    [
        ("RGB", "GRAY", "warning: input 'data' is trained as RGB but GRAY in input_formats"),
        (
            "RGB",
            "YUV_NV12",
            "warning: input 'data' is YUV_NV12 on the board: the fixed model gets the image converted to YUV_NV12",
        ),
        ("BGR", "BGRA", None),
        ("RGB", "RGB", None),
    ],
)
def test_what_the_board_does_otherwise_is_told(folder, capsys, monkeypatch, trained, given, said):
    # half of a small search's time; tests/reports and test_tune look at it
    monkeypatch.setattr("sgsdump.fixedpoint.reports.pareto_chart.pareto_png", lambda result: b"png")
    ini = INI.replace("\ninput_formats = RGB", f"\ninput_formats = {given}")
    (folder / "input_config.ini").write_text(
        ini.replace("training_input_formats = RGB", f"training_input_formats = {trained}")
    )
    assert main(CALIBRATE) == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    assert len(warnings) == bool(said) and all(line.startswith(said) for line in warnings)
    explain = ["tune", "--explain", "--ranges", "log/tensor_min_max.txt", *CALIBRATE[1:3], *CALIBRATE[5:7]]
    tune = ["tune", *CALIBRATE[1:7], "-o", "tuned", "--budget", "0s"]
    for command in (explain, tune):
        assert main(command) == 0
        told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: input")]
        assert len(told) == bool(said) and all(line.startswith(said) for line in told)


def test_without_dumptensor_only_the_outputs_are_summed_up(folder, capsys):
    assert main(FLOAT) == 0
    out = capsys.readouterr().out
    assert "output prob [1, 5]" in out and "nothing was dumped;" in out
    assert not list(folder.glob("sigma*"))


@pytest.mark.parametrize(
    ("command", "words", "message"),
    [
        ([*FLOAT[:3], "-t", "Offline", *FLOAT[5:]], [], "net.onnx is not an offline image"),
        ([*FLOAT[:3], "-t", "Fixed", *FLOAT[5:]], [], "net.onnx is a float model; simulate it with -t Float"),
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


def test_a_dump_that_windows_has_open_is_one_line_that_says_what_to_close(folder, capsys, monkeypatch):
    debug(folder, "dumpTensor")
    assert main(FLOAT) == 0
    before = Path("sigma_outtensor_dump.bin").read_bytes()
    with open_on_windows(Path("sigma_outtensor_dump.bin"), monkeypatch):
        assert main(FLOAT) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot write sigma_outtensor_dump.bin: it is open; close the program that uses it" in line
    assert Path("sigma_outtensor_dump.bin").read_bytes() == before and not list(folder.glob(".*"))


def test_show_lists_the_plan_of_a_fixed_model(folder, capsys):
    ini = (folder / "input_config.ini").read_text()
    main(CALIBRATE)
    capsys.readouterr()
    assert main(["show", "fixed.onnx", "--json", "plan.json", "--csv", "plan.csv"]) == 0
    rows = {row["name"]: row for row in checked(Path("plan.json"))["tensors"]}
    facts = read_facts(open_model(folder / "fixed.onnx"))
    assert {name: (row["dtype"], row["scale"], row["zero_point"]) for name, row in rows.items()} == {
        name: (str(tensor.dtype), tensor.scale, tensor.zero_point) for name, tensor in facts.tensors.items()
    }
    out = capsys.readouterr().out
    assert f"{len(rows)} of {len(rows)} tensors" in out
    picture = next(name for name, tensor in facts.tensors.items() if tensor.picture)
    assert rows[picture]["decided"] == "image input" and "reads it" in rows["r1"]["decided"]
    assert rows["prob"]["decided"] and rows["prob"]["dtype"] == "int16"
    assert Path("plan.csv").read_text().splitlines()[0] == "name,dtype,scale,zero_point,decided"
    assert main(["show", "fixed.onnx", "--select", "r*"]) == 0 and "prob" not in capsys.readouterr().out
    assert main(["show", "fixed.onnx", "r1"]) == 2 and "whose plan is listed" in capsys.readouterr().err
    assert main(["show", "fixed.onnx", "--select", "none*"]) == 2
    (folder / "input_config.ini").write_text(ini + "[CONV_CONFIG]\ntensor_arrays='r1';\n")
    main(CALIBRATE)
    assert main(["show", "fixed.onnx", "--json", "plan.json"]) == 0
    raised = {row["name"]: row for row in checked(Path("plan.json"))["tensors"]}["r1"]
    assert raised["dtype"] == "int16" and raised["decided"] == "tensor_arrays: r1"
