"""compare of two calibrations: whose range is wider, what is missing, and the exit status."""

import csv
import json
import math
import pickle

import numpy as np
import pytest

from sgsdump.cli import main
from sgsdump.comparison.range_change import compare_ranges
from sgsdump.tensors.types import Range


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = {
        "one.txt": {"data": (-1, 1), "c1": (0, 4), "c2": (0, 4), "odd": (0, 4)},
        "two.txt": {"data": (-1, 1), "c1": (0, 8), "c2": (-2, 2), "other": (0, 1)},
    }
    for name, ranges in lines.items():
        text = "".join(f"Name:{tensor}, min: {low:f}, max: {high:f};\n" for tensor, (low, high) in ranges.items())
        (tmp_path / name).write_text(text)
    entries = [{"name": "c1", "min": [0.0, 0.0], "max": [1.0, 9.0], "bit": 16}, {"name": "data", "min": -1, "max": 1}]
    (tmp_path / "quant.json").write_text(json.dumps(entries))
    (tmp_path / "quant.pkl").write_bytes(pickle.dumps(entries, protocol=2))
    return tmp_path


def test_worst_first_with_the_side_that_is_wider(files, capsys):
    assert main("compare one.txt two.txt --csv o.csv --json o.json".split()) == 0
    with open("o.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["name"], row["apart"], row["wider"]) for row in rows] == [
        ("c1", "2.0", "benchmark"),
        ("c2", "1.5", "shifted"),
        ("data", "1.0", "equal"),
        ("odd", "", "only in the sample"),
        ("other", "", "only in the benchmark"),
    ]
    document = json.loads((files / "o.json").read_text())
    assert document["only_in_sample"] == ["odd"] and document["changes"][1]["benchmark"] == [-2, 2]
    printed = capsys.readouterr().out
    assert printed.splitlines()[1].split()[:2] == ["2.000", "benchmark"]
    assert "Ranges that exist only in the benchmark (1): other" in printed


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ("", 0),
        ("--limit apart=2 --allow-missing", 0),
        ("--limit apart=2", 1),  # ranges are missing
        ("--limit apart=1.9 --allow-missing", 1),
        ("--limit apart=1.6,c1:apart=2 --allow-missing", 0),
        ("--limit apart=2,c*:apart=1.4 --allow-missing", 1),
    ],
)
def test_the_exit_status_is_that_of_the_limits(files, options, status):
    assert main(["compare", "one.txt", "two.txt", *options.split()]) == status


@pytest.mark.parametrize("name", ["quant.json", "quant.pkl"])
def test_a_quant_file_by_channel_and_bit(files, capsys, name):
    assert main(["compare", "one.txt", name]) == 0
    first = capsys.readouterr().out.splitlines()[1]
    assert first.startswith("2.250  benchmark") and first.endswith("c1, bit none against 16")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("one.txt o.npz", "one.txt holds calibration ranges, but o.npz does not"),
        ("one.txt absent.txt", "absent.txt"),
        ("one.txt cut.txt", "cut.txt:1: 'Name:c1, min: 0' is not"),
        ("one.txt third.txt", "no tensor in common"),
        ("one.txt two.txt --limit sqnr=3", "for calibration ranges, only the metric 'apart' can have a limit"),
        ("one.txt two.txt --csv one.txt", "cannot write one.txt"),
    ],
)
def test_what_cannot_be_compared_is_one_line(files, capsys, words, said):
    (files / "cut.txt").write_text("Name:c1, min: 0")
    (files / "third.txt").write_text("Name:z, min: 0, max: 1;\n")
    np.savez("o.npz", c1=np.zeros(2))
    assert main(["compare", *words.split()]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_the_worst_channel_counts_and_no_width_is_infinitely_far():
    one = {"a": Range(np.zeros(3), np.float64([1, 2, 4])), "b": Range.of(0, 0), "c": Range.of(0, 0)}
    other = {"a": Range(np.zeros(3), np.float64([1, 1, 3])), "b": Range.of(0, 1), "c": Range.of(0, 0)}
    changes = {change.name: change for change in compare_ranges(one, other).changes}
    assert (changes["a"].channel, changes["a"].channels, changes["a"].apart) == (1, 3, 2.0)
    assert changes["b"].apart == math.inf and changes["c"].apart == 1.0
    assert changes["a"].wider == "sample" and changes["b"].wider == "benchmark"
