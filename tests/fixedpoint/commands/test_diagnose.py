"""diagnose as a user types it: on the demo's digits, of which two convolutions were made sick on purpose."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from json_documents import checked
from PIL import Image
from small_nets import conv, model, node, weights

from sgsdump.cli import main
from sgsdump.dumps.io import open_dump
from sgsdump.fixedpoint.commands import demo
from sgsdump.models.fixed_facts import read_facts
from sgsdump.models.model import open_model
from sgsdump.sidecars import input_config

DIAGNOSE = "diagnose -m digits.onnx -i pictures --input-config input_config.ini".split()
PLANTED = {"block2/dw/relu", "block4/dw/relu"}
FEW = 10  # pictures, of 64
ROOM = {"advised.quant.json", "advised.quant.pkl"}
GRAPH = {"model_explorer.json", "model_explorer_errors.json", "netron.onnx"}
FILES = {"report.html", "layers.csv", "layers.json", "fixed.onnx", "input_config.ini", "log", *GRAPH}
PREPROCESS = """
import numpy as np
from PIL import Image
def image_preprocess(path, norm=True):
    pixels = np.asarray(Image.open(path), np.float32)[None, :, :, None]
    return (pixels - 127) / 128 if norm else pixels
"""


@pytest.fixture
def digits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    demo._lay_out(demo._digits())
    for path in sorted((tmp_path / "pictures").iterdir())[FEW:]:
        path.unlink()
    return tmp_path


def data_of(page):
    return json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page.read_text(), re.DOTALL)[1])


def test_the_planted_convolutions_are_named_and_raising_them_repairs(digits, capsys):
    assert main([*DIAGNOSE, "--quant-level", "L3", "--json", "d.json"]) == 0
    out = capsys.readouterr().out
    assert {path.name for path in (digits / "diagnosis").iterdir()} == FILES | ROOM
    assert {"brings", "resolution"} <= checked(digits / "d.json")["rows"][2].keys()
    assert set(input_config.read("diagnosis/input_config.ini").tensor_arrays) == PLANTED
    assert "[CONV_CONFIG]" in out and all(name in out for name in PLANTED)
    assert "within the limits" in out
    page = (digits / "diagnosis" / "report.html").read_text()
    assert page.count('id="tensor-') > 1, "the page shows the tensors of an image"
    assert "[CONV_CONFIG]" in page and all(name in page for name in PLANTED)
    # the advice taken: nothing is left to raise
    again = [*DIAGNOSE[:-1], "diagnosis/input_config.ini", "--quant-level", "L3", "-o", "again"]
    assert main(again) == 0
    assert "No more INT16 needed" in capsys.readouterr().out
    assert set(input_config.read("again/input_config.ini").tensor_arrays) == PLANTED


def test_its_figures_are_those_of_the_commands_it_replaces(digits):
    """calibrate, simulate of each picture, and compare of all runs: the same numbers, layer by layer."""
    assert main([*DIAGNOSE, "--max-images", "3", "-o", "d"]) == 0
    assert main("calibrate -m digits.onnx -i pictures --input-config input_config.ini -o fixed.onnx".split()) == 0
    names = sorted(path.name for path in (digits / "pictures").iterdir())
    facts = (digits / "d" / "report.html").read_text()
    chosen = re.search(r"<bdi>3, those with the largest output error: ([^<]*)</bdi>", facts)[1].split(", ")
    assert len(chosen) == 3 and set(chosen) < set(names)
    for kind, file in (("Float", "digits.onnx"), ("Fixed", "fixed.onnx")):
        (digits / kind).mkdir()
        for name in chosen:
            config = ["--input-config", "input_config.ini"] if kind == "Float" else []
            assert main(["simulate", "-m", file, "-t", kind, "-i", f"pictures/{name}", *config]) == 0
            (digits / "sigma_outtensor_dump.bin").rename(digits / kind / f"{name}.bin")
    assert main(["compare", "Fixed", "Float", "--runs", "--csv", "runs.csv"]) == 0
    (ours, theirs) = (
        list(csv.DictReader(path.open(newline=""))) for path in (digits / "d/layers.csv", digits / "runs.csv")
    )
    assert [row["name"] for row in ours] == [row["name"] for row in theirs] and len(ours) > 10
    for mine, other in zip(ours, theirs):
        for column in ("mse", "cos", "rmse"):
            assert float(mine[column] or "nan") == pytest.approx(float(other[column] or "nan"), rel=1e-6, nan_ok=True)
    # and both are the plain formulas over all pictures' values laid end to end
    dumps = [[open_dump(digits / kind / f"{name}.bin") for name in chosen] for kind in ("Fixed", "Float")]
    for row in ours:
        if row["mse"]:
            a, b = (np.concatenate([d[row["name"]].real().ravel() for d in side]).astype(np.float64) for side in dumps)
            plain = ((a - b) ** 2).mean(), a @ b / np.sqrt((a @ a) * (b @ b)), np.abs(a - b).sum() / np.abs(b).sum()
            assert [float(row[name]) for name in ("mse", "cos", "rmse")] == pytest.approx(plain, rel=1e-6)
    worst = {row["name"]: row["worst_run"] for row in ours if row.get("worst_run")}
    assert worst and set(worst.values()) <= set(chosen)
    fixed = [read_facts(open_model(path)).tensors for path in ("d/fixed.onnx", "fixed.onnx")]
    assert fixed[0] == fixed[1]
    assert {row["name"] for row in ours if row["mse"]} <= set(open_dump(digits / "Float" / f"{chosen[0]}.bin").outputs)


def test_what_is_advised_is_run_and_the_bits_of_each_convolution_are_told(digits):
    """The figures with what is advised are those of calibrating anew with its files, and who raised what is known."""
    (digits / "few").mkdir()
    for path in sorted((digits / "pictures").iterdir())[:3]:
        path.rename(digits / "few" / path.name)
    line = "diagnose -m digits.onnx -i few --quant-level L2 --input-config".split()
    assert main([*line, "input_config.ini", "-o", "d"]) == 0
    first, page = json.loads(Path("d/layers.json").read_text())["rows"], data_of(digits / "d" / "report.html")
    assert {row["name"] for row in first if row.get("advised_bits") == 16} == {"block2/add", "block4/pw/relu"}
    assert all(row["bits"] == 8 and row["raised_by"] == "" for row in first if "bits" in row)
    names = set(input_config.read("d/input_config.ini").tensor_arrays)
    files = ["d/input_config.ini", "--quant-file", "d/advised.quant.json", "-o", "room.onnx"]
    assert main(["calibrate", *line[1:], *files]) == 0
    assert main([*line[:5], "--fixed", "room.onnx", "-o", "room"]) == 0
    room = {row["name"]: row for row in json.loads(Path("room/layers.json").read_text())["rows"]}
    assert main([*line, "d/input_config.ini", "-o", "again"]) == 0
    second = {row["name"]: row for row in json.loads(Path("again/layers.json").read_text())["rows"]}
    for row, figures in zip(first, page["other"]["figures"], strict=True):
        assert row["advised_rmse"] == room[row["name"]]["rmse"] == figures[2]
    assert page["other"]["label"] == "with the recommendation"
    assert {name for name, row in second.items() if row.get("bits") == 16} == {"block2/add", "block4/pw/relu"}
    assert {row["raised_by"] for row in second.values() if row.get("bits") == 16} == {"you"} and names == PLANTED
    assert "other" not in {k for k, v in data_of(digits / "again" / "report.html").items() if v}
    table = list(csv.DictReader(Path("again/layers.csv").read_text().splitlines()))
    assert {line["raised_by"] for line in table if line["bits"] == "16"} == {"you"}
    # as the fixed model remembers it
    assert main([*line[:5], "--fixed", "again/fixed.onnx", "-o", "given"]) == 0
    bits = [layer["bits"] for layer in data_of(digits / "given" / "report.html")["layers"] if "bits" in layer]
    assert [(each["now"], each["by"]) for each in bits if each["now"] == 16] == [(16, "the fixed model")] * 2


def test_a_fixed_model_or_ranges_stand_in_for_a_calibration(digits, capsys):
    few = ["--max-images", "2", "--quant-level", "L3"]
    assert main([*DIAGNOSE, "-o", "whole", *few]) == 0
    whole = data_of(digits / "whole" / "report.html")
    for option in (["--fixed", "whole/fixed.onnx"], ["--ranges", "whole/log/tensor_min_max.txt"]):
        assert main([*DIAGNOSE, "-o", "part", *few, *option]) == 0
        assert {path.name for path in (digits / "part").iterdir()} == FILES - {"fixed.onnx", "log"}
        part = data_of(digits / "part" / "report.html")
        for one, other in zip(whole["layers"], part["layers"], strict=True):
            # the text of ranges has six decimals
            assert one["name"] == other["name"] and one["rmse"] == pytest.approx(other["rmse"], rel=1e-5)
    # the fixed model remembers how its pictures are normalised
    assert (
        main(["diagnose", "-m", "digits.onnx", "-i", "pictures", "--fixed", "whole/fixed.onnx", "-o", "alone", *few])
        == 0
    )
    assert "assumed" not in capsys.readouterr().out


def test_what_is_assumed_is_said_first(digits, capsys):
    (digits / "pre.py").write_text(PREPROCESS)
    assert main("diagnose -m digits.onnx -i pictures -n pre.py --max-images 2 --quant-level L2".split()) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("assumed: no --input-config given")
    assert (
        lines[1] == "assumed: input 'image' has mean 127:127:127, std_value 128:128:128 and is GRAY, measured by "
        "running the preprocess file on an image"
    )
    made = input_config.read("diagnosis/input_config.ini").inputs[0]
    assert (made.training_format, made.input_format) == ("RGB", "GRAY")
    assert (made.mean, made.std) == ((127.0,) * 3, (128.0,) * 3)
    assert "measured by running the preprocess file" in (digits / "diagnosis/report.html").read_text()
    assert main("diagnose -m digits.onnx -i pictures --max-images 2 --quant-level L2 -o plain".split()) == 0
    assert "GRAY image divided by 255" in capsys.readouterr().err.splitlines()[1]


def test_a_preprocess_file_that_disagrees_is_said(digits, capsys):
    (digits / "pre.py").write_text(PREPROCESS.replace("127", "100"))
    assert main([*DIAGNOSE, "-n", "pre.py", "--max-images", "2", "--quant-level", "L2"]) == 1
    said = capsys.readouterr()
    assert re.search(r"warning: .*input 'image': .* \(.*27 grey levels", said.err)
    cause = said.out.splitlines()[1]
    assert cause.startswith("Cause: the preprocess file and input_config.ini normalise the input image differently")
    assert "mean 100," in cause and "mean 127," in cause
    assert "27 grey levels" in (digits / "diagnosis/report.html").read_text()


def test_operators_without_an_integer_rule_are_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    nodes = [conv("c", "data"), node("Erf", ["c"], "e"), node("Softsign", ["e"], "s"), node("Erf", ["s"], "out")]
    onnx.save(model(nodes, weights("c", (4, 3, 1, 1)), {"data": (1, 3, 8, 8)}, ["out"]).proto, "net.onnx")
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8, 3)).astype(np.uint8)).save("0.png")
    assert main("diagnose -m net.onnx -i 0.png".split()) == 0
    said = "no exact integer rule for Erf (e and 1 more), Softsign (s): a table with ideal rounding"
    assert said in capsys.readouterr().err.splitlines() and said in Path("diagnosis/report.html").read_text()


def test_nothing_is_said_before_the_folder_is_known_to_be_writable(digits, capsys):
    (digits / "taken").write_text("")
    assert main("diagnose -m digits.onnx -i pictures -o taken".split()) == 2
    assert capsys.readouterr().out == ""


def test_a_network_that_does_not_take_the_first_picture_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    nodes = [conv("c1", "data"), node("Reshape", ["c1", "shape"], "flat"), conv("out", "flat")]
    constants = {**weights("c1", (2, 3, 1, 1)), "shape": np.array([1, 2, 48, -1]), **weights("out", (2, 2, 1, 1))}
    onnx.save(model(nodes, constants, {"data": (1, 3, "h", "w")}, ["out"]).proto, "net.onnx")
    Image.fromarray(np.zeros((32, 40, 3), np.uint8)).save("picture.png")
    assert main(["diagnose", "-m", "net.onnx", "-i", "picture.png"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and "Reshape" in said.err
    assert not Path("diagnosis").exists()


def test_both_spellings_and_exit_status_by_a_limit(digits):
    spelled = [word.replace("--input-config", "--input_config") for word in DIAGNOSE]
    assert main([*spelled, "--max-images", "2", "--quant-level", "L1", "--max-rmse", "0.0001"]) == 1
    assert main([*spelled, "--max-images", "2", "--max-rmse", "100"]) == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-m", "none.onnx"], "none.onnx"),
        (["-m", "half.onnx"], "half.onnx"),
        (["-i", "empty"], "empty"),
        (["-i", "none"], "none"),
        (["-i", "broken"], "broken"),
        (["--fixed", "digits.onnx"], "is a float model"),
        (["--ranges", "input_config.ini"], "input_config.ini"),
        (["--input-config", "none.ini"], "none.ini"),
        (["-n", "none.py"], "none.py"),
        (["-o", "input_config.ini"], "reads or writes that file already"),
        (["-o", "."], "it contains the input"),
        (["-o", "pictures"], "cannot write pictures: this command reads or writes that file already"),
        (["-o", "pictures", "-i", "pictures/15.png"], "cannot write pictures: it contains the input pictures/15.png"),
        (["-o", "pictures", "--evaluate", "pictures"], "cannot write pictures: this command"),
        (["--max-images", "0"], "--max-images"),
        (["--quant-level", "L9"], "L9"),
        (["--min-cos", "2"], "COS"),
        (["--fixed", "digits.onnx", "--ranges", "x"], "not allowed with"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_options_are_one_line_and_leave_nothing(digits, capsys, options, words):
    (digits / "empty").mkdir()
    (digits / "broken").mkdir()
    (digits / "broken" / "a.png").write_bytes(b"\x89PNG nothing")
    (digits / "half.onnx").write_bytes((digits / "digits.onnx").read_bytes()[:3000])
    before = sorted(digits.rglob("*"))
    try:
        status = main([*DIAGNOSE, *options])
    except SystemExit as ended:
        status = ended.code
    error = capsys.readouterr().err.strip().splitlines()
    assert status == 2 and words in error[-1], error
    assert not any(line.startswith("Traceback") for line in error)
    assert sorted(path for path in digits.rglob("*") if "__pycache__" not in path.parts) == before


def test_an_output_that_cannot_be_written_leaves_nothing(digits, capsys, monkeypatch):
    monkeypatch.setattr("sgsdump.reports.html.document.render", lambda report: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main([*DIAGNOSE, "--max-images", "1", "--quant-level", "L1"])
    assert not (digits / "diagnosis").exists()
    assert not [path for path in digits.iterdir() if "partial" in path.name]


def test_an_older_folder_is_moved_aside(digits, capsys):
    for _ in range(2):
        assert main([*DIAGNOSE, "--max-images", "1", "--quant-level", "L1"]) == 0
    assert "moved the older diagnosis aside" in capsys.readouterr().out
    assert len([path for path in digits.iterdir() if path.name.startswith("diagnosis")]) == 2


def test_a_picture_of_another_size_is_resized_and_one_is_enough(digits):
    Image.fromarray(np.full((30, 20), 90, np.uint8)).save("one.png")
    assert main([*DIAGNOSE[:3], "-i", "one.png", *DIAGNOSE[5:]]) == 0


def test_what_good_outputs_cannot_show_is_said(digits, capsys):
    (digits / "same.py").write_text(PREPROCESS)
    step = "If the device still fails, check mean, std, colour order and post-processing"
    assumed = "No preprocess file was given (-n); the preprocessing was assumed."
    words = [*DIAGNOSE, "--max-images", "2", "--quant-level", "L5"]
    assert main(words) == 0
    out = capsys.readouterr().out
    bad = out.startswith("FAIL: ")
    assert (step in out) == (not bad) and (assumed in out) == (not bad)
    assert ("To measure the loss of accuracy, add --metric." in out) == bool(bad)
    assert main([*words, "-n", "same.py"]) == 0
    out = capsys.readouterr().out
    assert step in out and assumed not in out
    (digits / "other.py").write_text(PREPROCESS.replace("127", "60"))
    assert main([*words, "-n", "other.py"]) == 1
    out = capsys.readouterr().out
    assert step not in out and "To measure the loss of accuracy, add --metric." in out
