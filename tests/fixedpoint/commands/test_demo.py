"""The demo finds what was planted."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from sgsdump.cli import main
from sgsdump.dumps.io import open_dump
from sgsdump.errors import ConfigError
from sgsdump.fixedpoint.commands import demo
from sgsdump.sidecars.tensor_min_max import read_ranges


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    import contextlib
    import io

    folder = tmp_path_factory.mktemp("demo") / "sgsdump_demo"
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        assert main(["demo", "-o", str(folder)]) == 0
    return folder, text.getvalue()


def test_it_names_the_planted_convolutions_as_where_the_error_jumps(printed):
    """The first two named are the operators that the planted convolutions belong to: what is fused has the name of its
    last part."""
    folder, text = printed
    told = re.search(r"Made hard to quantise on purpose: (.*) \(read by (.*)\)", text)
    assert told[1] == "block2/dw/relu, block4/dw/relu"
    planted = told[2].split(" and ")
    section = text[text.index("RMSE rises most at") : text.index("because they are inside fused operators")]
    named = re.findall(r"^  \d+\.(block\d/\S+) \(", section, re.M)
    fixed = open_dump(folder / "fixed.bin")
    operators = {record.op_index for record in fixed.records if record.io == "out" and record.name in named[:2]}
    weights = {r.name for r in fixed.records if r.op_index in operators and r.name.endswith("_filter")}
    assert weights == {f"{name}_filter" for name in planted}


def test_it_prints_the_accuracy_of_float_and_fixed(printed):
    _, text = printed
    accuracy = {kind.strip(): float(value) for kind, value in re.findall(r"^  (.*?)  +([01]\.\d\d)$", text, re.M)}
    assert accuracy["float"] >= 0.98
    assert accuracy["fixed, INT8"] <= 0.6
    assert accuracy["fixed, INT16 (ALL_INT16)"] == accuracy["fixed, tuned"] == accuracy["float"]


def test_tune_raises_the_planted_convolutions_and_no_other(printed):
    folder, _ = printed
    ini = (folder / "tuned" / "input_config.ini").read_text()
    assert re.search(r"tensor_arrays *= *'?block2/dw/relu,block4/dw/relu'?;?\s", ini)


def test_it_leaves_everything_to_type_the_commands_again(printed):
    folder, text = printed
    assert (folder / "Histograms" / "overview.png").is_file()
    for name in ("digits.onnx", "fixed.onnx", "float.bin", "fixed.bin", "input_config.ini", "digit.png"):
        assert (folder / name).is_file(), name
    assert text.count("$ sgsdump ") == 7
    assert (folder / "report.html").is_file() and (folder / "tuned" / "report.html").is_file()


def test_an_older_demo_is_moved_aside(tmp_path, capsys, monkeypatch):
    def stop():
        raise ConfigError("the rest of the loop is as the first time")

    monkeypatch.setattr(demo, "_digits", stop)
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "mine.txt").write_text("mine")
    assert main(["demo", "-o", str(tmp_path / "demo")]) == 2
    assert "moved the older" in capsys.readouterr().out
    assert not list((tmp_path / "demo").iterdir()) and [*tmp_path.glob("demo_*/mine.txt")]


def test_the_readmes_verdict_on_its_model_is_true(printed, monkeypatch, capsys):
    """The block of the README is what diagnose prints first, and its two tensors are those that stand out."""
    folder, text = printed
    readme = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    told = re.search(r"```text\n(FAIL: .*\nCause: .*\nNext: .*\n)```", readme)[1]
    raised = re.search(r"\nNext: raise (.*?) to INT16\.", told)[1].split(", ")
    monkeypatch.chdir(folder)
    line = "diagnose -m digits.onnx -i pictures --input-config input_config.ini --quant-level L3 -o diagnosed"
    main(line.split())
    assert capsys.readouterr().out.startswith(told)
    assert re.search(r"^24 charts in \S*Histograms;", text, re.M)
    assert re.search(
        r"Range wider than 30, but 99 % .*\n  7\. block2/dw/relu +44 of 256 levels, 99 % in 0 to 13\.", text
    )
    ranges = read_ranges(folder / "log" / "tensor_min_max.txt")
    values = open_dump(folder / "float.bin")
    for name in raised:
        assert int(ranges[name].high) == 77 and np.percentile(values[name].real(), 90) < 0.1 * 77


def test_the_error_falls_by_three_orders_of_magnitude_on_the_way_to_int16(printed, monkeypatch):
    folder, _ = printed
    monkeypatch.chdir(folder)
    tune = "tune -m digits.onnx -i pictures --input-config input_config.ini -o searched --budget 0s --quant-level L1"
    assert main(tune.split()) == 0  # the ends of the table are not searched
    with (folder / "searched" / "pareto.csv").open() as table:
        errors = {row["label"]: float(row["error"]) for row in csv.DictReader(table)}
    assert round(np.log10(errors["INT8"] / errors["INT16"])) == 3
