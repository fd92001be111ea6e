"""What a comparison looks like: columns, verdict, and that CSV and JSON hold every layer in full precision."""

import csv
import io
import json
import re

import numpy as np
import pytest
from verdict_words import sentences

import sgsdump
from sgsdump.comparison.thresholds import DOCUMENTED
from sgsdump.dumps.dump import Dump, Record
from sgsdump.reports.comparison import REPORTS
from sgsdump.reports.report import report_of
from sgsdump.tensors.statistics import Statistics
from sgsdump.tensors.tensor import Tensor

MANUAL = """\
3.conv1_xx_xx_xx.xx.output0             OP_TYPE:CONV_2D     MSE:0.000000    COS:1.000000    RMSE:0.000000
4.pool1.xx.output0                      OP_TYPE:MAX_POOL_2D MSE:0.000000    COS:1.000000    RMSE:0.000000
"""


def out(index: int, name: str, array, op_type: str = "CONV_2D") -> Record:
    return Record("out", 0, index, op_type, Tensor.of(name, np.asarray(array, np.float32)))


@pytest.fixture(scope="module")
def comparison():
    """A fine layer, a bad one, one with NaN and Inf, a wrong size, and one on each side only."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 1, 50))
    odd = np.array([[np.nan, np.inf, 1, 2]])
    sample = [out(0, "a/b:0 x", a * 1.001), out(1, "bad", b * 1.5), out(2, "odd", odd), out(3, "size", a[:, :9])]
    benchmark = [out(5, "a/b:0 x", a), out(6, "bad", b), out(7, "odd", np.ones((1, 4))), out(8, "size", b[:, ::-1])]
    return sgsdump.compare(Dump([*sample, out(4, "mine", a)]), Dump([*benchmark, out(9, "yours", b)]))


def render(name: str, comparison) -> str:
    return REPORTS[name](comparison, DOCUMENTED)


def test_columns_are_the_manuals():
    dump = Dump([out(3, "conv1/xx/xx/xx", [1, 2]), out(4, "pool1", [3, 4], "MAX_POOL_2D")])
    assert render("sdk_table", sgsdump.compare(dump, dump)) == MANUAL


def test_long_names_widen_the_columns_and_never_collide():
    dump = Dump([out(3, "n" * 200, [1, 2], "T" * 60), out(4, "pool1", [1e30, 4]), out(5, "c", [1, 1])])
    other = Dump([out(3, "n" * 200, [1, 3], "T" * 60), out(4, "pool1", [2e30, 4]), out(5, "c", [1, 1])])
    lines = render("sdk_table", sgsdump.compare(dump, other)).splitlines()
    assert len({tuple(m.start() for m in re.finditer(r"OP_TYPE:|RMSE:|MSE:|COS:", line)) for line in lines}) == 1
    assert all(re.search(r"\S OP_TYPE:\S+ +MSE:\S+ +COS:\S+ +RMSE:", " " + re.sub(" +", " ", line)) for line in lines)


def test_verdict_names_the_layers_and_every_one_not_compared(comparison):
    text = render("verdict", comparison)
    for line in (
        "Compared: 3 of 5 layers; 1 not comparable; 1 missing from the sample; 1 only in sample.",
        "Largest error: 7.odd (CONV_2D), COS nan, RMSE nan.",
        "Layers with COS < 0.99 or RMSE > 0.1: 2 of 3; the first is 6.bad (CONV_2D), COS 1.000000, RMSE 0.500000.",
        "RMSE rises most, in file order, at:",
        "  7.odd (CONV_2D), to inf",
        "  7.odd (CONV_2D): NaN: 1 in sample, 0 in benchmark; Inf: 1 in sample, 0 in benchmark",
        "Not compared: 3",
        "  size: sizes differ: sample 9 values [1, 9], benchmark 50 values [1, 50]",
        "  yours: no output of this name in the sample",
        "  mine: no output of this name in the benchmark",
    ):
        assert line in text.splitlines()


def test_equal_dumps_have_no_worst_layer():
    dump = Dump([out(0, "a", [1, 2])])
    assert render("verdict", sgsdump.compare(dump, dump)) == (
        "PASS: layer a RMSE 0, limit 0.1; the only layer is within the limits.\n"
        "No cause: no layer exceeds the limits.\n"
        "Next: nothing to do.\n"
        "Compared: 1 of 1 layer.\n"
    )


def test_csv_holds_every_layer_in_full_precision(comparison):
    lines = list(csv.DictReader(io.StringIO(render("csv", comparison))))
    assert [line["status"] for line in lines] == ["compared"] * 3 + ["failed", "only in benchmark", "only in sample"]
    assert float(lines[0]["rmse"]) == comparison.rows[0].rmse and lines[0]["name"] == "a/b:0 x"
    assert (lines[2]["mse"], lines[2]["sample_nan"], lines[2]["sample_inf"]) == ("nan", "1", "1")
    assert [line["within"] for line in lines] == ["yes", "no", "no", "", "", ""]
    assert "sizes differ" in lines[3]["remark"]


def test_json_is_strict_and_complete(comparison):
    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    document = json.loads(render("json", comparison), parse_constant=refuse)
    assert [row["name"] for row in document["rows"]] == ["a/b:0 x", "bad", "odd"]
    assert document["rows"][1]["rmse"] == comparison.rows[1].rmse
    assert document["rows"][2]["mse"] == "nan" and np.isnan(float(document["rows"][2]["mse"]))
    assert document["verdict"]["past_thresholds"] == ["bad", "odd"] and document["thresholds"]["min_cos"] == 0.99
    assert [entry["name"] for entry in document["failed"]] == ["size"]
    assert document["only_in_sample"][0]["reason"] and document["only_in_benchmark"][0]["name"] == "yours"


def test_every_report_of_the_table_renders(comparison):
    assert all(render(name, comparison).endswith("\n") for name in REPORTS)


@pytest.mark.parametrize(("second", "marked"), [(7.0, False), (7.0001, True)])
def test_the_scripts_mark_is_a_rise_by_more_than_one(second, marked):
    """RMSE 0.5 first, then 1.5: one more, to the bit."""
    sample = Dump([out(0, "a", [6, 6]), out(1, "b", [10, 3 + second])])
    benchmark = Dump([out(0, "a", [4, 4]), out(1, "b", [4, 4])])
    comparison = sgsdump.compare(sample, benchmark)
    assert comparison["a"].rmse == 0.5 and (comparison["b"].rmse == 1.5) is not marked
    assert ("OVER threshold" in render("sdk_lines", comparison)) is marked


def test_the_verdict_shows_the_three_steepest_rises():
    rng = np.random.default_rng(4)
    arrays = {name: rng.standard_normal((1, 50)) for name in "abcd"}
    errors = {"a": 0.1, "b": 0.3, "c": 0.6, "d": 1.0}
    sample = Dump([out(i, name, array * (1 + errors[name])) for i, (name, array) in enumerate(arrays.items())])
    comparison = sgsdump.compare(sample, Dump([out(i, name, array) for i, (name, array) in enumerate(arrays.items())]))
    assert [row.name for row in comparison.jumps] == ["d", "c", "b", "a"]
    lines = render("verdict", comparison).splitlines()
    first = lines.index("RMSE rises most, in file order, at:") + 1
    assert [line.split()[0] for line in lines[first:] if line.startswith("  ")] == ["3.d", "2.c", "1.b"]


def test_json_keeps_the_names_its_readers_know(comparison):
    rows = json.loads(render("json", comparison))["rows"]
    assert all({"misnamed", "figures"} <= row.keys() and not {"twin", "statistics"} & row.keys() for row in rows)


def test_the_table_does_not_mangle_names():
    dump = Dump([out(0, "conv1:input:0", [1, 2]), out(1, "a b", [1, 2])])
    first, second = render("sdk_table", sgsdump.compare(dump, dump)).splitlines()
    assert first.startswith("0.conv1:input:0.xx.output0 ") and second.startswith("1.a b.xx.output0 ")


def test_rows_of_statistics_show_their_error():
    sides = [
        Dump([Record("out", 0, 0, "Add", Tensor.of_statistics(Tensor.of("x", np.ones(4)).info, Statistics(0.0, top)))])
        for top in (2.5, 2.0)
    ]
    comparison = sgsdump.compare(*sides)
    line = render("sdk_table", comparison)
    assert "nan" not in line and "STATISTICS:0.250000" in line
    (row,) = csv.DictReader(io.StringIO(render("csv", comparison)))
    assert row["statistics_error"] == "0.25"


@pytest.mark.parametrize("name", ["=1+1", "+x", "@SUM(A1)", "-x"])
def test_cells_that_a_spreadsheet_would_run_are_escaped(name):
    dump = Dump([out(0, name, [1, 2])])
    (row,) = csv.DictReader(io.StringIO(render("csv", sgsdump.compare(dump, dump, compatible="msaccucmp"))))
    assert row["name"] == row["sample_name"] == f"'{name}"
    opposite = sgsdump.compare(Dump([out(0, "x", [-1, -2])]), Dump([out(0, "x", [1, 2])]), compatible="msaccucmp")
    (row,) = csv.DictReader(io.StringIO(render("csv", opposite)))
    assert row["vendor CosineSimilarity"] == "-1.000000"


def test_one_layer_is_spoken_of_as_one():
    values = np.random.default_rng(0).normal(0, 1, (4, 8, 8)).astype(np.float32)
    sides = [Dump([Record("out", 0, 0, "Conv", Tensor.of("only", v))]) for v in (values, values + np.float32(0.01))]
    lines = sentences(sgsdump.compare(*sides))
    assert lines[0] == "DIFFERS: layer only RMSE 0.0122; 1 of 1 layer differs."
    assert not any("rises" in line for line in lines)


def test_what_is_missing_is_not_good():
    values = np.random.default_rng(0).normal(0, 1, (4, 8, 8)).astype(np.float32)
    records = [Record("out", 0, n, "Conv", Tensor.of(name, values)) for n, name in enumerate(("inner", "end"))]
    comparison = sgsdump.compare(Dump(records[:1]), Dump(records))
    assert sentences(comparison)[2] == "Next: dump the missing layers, then compare again."
    assert report_of(comparison).good is False
    assert report_of(sgsdump.compare(Dump(records), Dump(records))).good is None
