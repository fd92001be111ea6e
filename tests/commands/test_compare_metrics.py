"""``sgsdump compare`` with further metrics, a vendor's numbers, and a golden run."""

import csv
import json
import re

import numpy as np
import pytest

import sgsdump
from sgsdump.cli import main
from sgsdump.comparison.metrics import METRICS
from sgsdump.errors import ConfigError
from sgsdump.tensors.tensor import Tensor


@pytest.fixture
def dumps(tmp_path):
    values = np.random.default_rng(0).standard_normal((2, 1, 40)).astype(np.float32)
    values[1, 0, 0] = 0

    def save(name: str, factor: float, names=("conv1", "relu/2"), offset: float = 0) -> str:
        path = tmp_path / name
        arrays = zip(names, values * np.float32(factor) + np.float32(offset))
        sgsdump.save_dump([Tensor.of(n, a, op_type="Conv") for n, a in arrays], path)
        return str(path)

    return {
        "golden": save("golden.bin", 1),
        "good": save("good.bin", 1.001),
        "near": save("near.bin", 1.005),
        "far": save("far.bin", 1.5),
        "off": save("off.bin", 1, offset=0.5),
        "alien": save("alien.bin", 1, ("x", "y")),
    }


def table_of(out):
    """The lines of the table, after the verdict."""
    lines = out.splitlines()
    return lines[next(number for number, line in enumerate(lines) if line.split()[:2] == ["#", "layer"]) :]


def test_further_metrics_stand_in_the_table_and_the_files(dumps, tmp_path, capsys):
    table, document = tmp_path / "a.csv", tmp_path / "a.json"
    options = ["--metrics", "diff2, mae,MaxRelativeError", "--csv", str(table), "--json", str(document)]
    assert main(["compare", dumps["off"], dumps["golden"], *options]) == 0
    head, first = table_of(capsys.readouterr().out)[:2]
    assert dict(zip(head.split()[-3:], first.split()[-3:]))["mae"] == "0.500000"
    assert main(["compare", dumps["off"], dumps["golden"], "--format", "sdk", *options]) == 0
    out = capsys.readouterr().out
    assert "  diff2:" in out and " mae:0.5" in out and " without 1 values where only the benchmark is 0" in out
    assert "Largest error by RMSE: " in out and "Layers: 2 fail." in out
    lines = list(csv.DictReader(table.open()))
    rows = json.loads(document.read_text())["rows"]
    for line, row in zip(lines, rows):
        assert line["verdict"] == row["verdict"] == "fail"
        assert float(line["mae"]) == row["extra"]["mae"] == pytest.approx(0.5)
    assert lines[1]["MaxRelativeError left out"] == "1" and rows[1]["left_out"] == {"MaxRelativeError": 1}


def test_all_metrics(dumps, capsys):
    assert main(["compare", dumps["near"], dumps["golden"], "--metrics", "all", "--format", "sdk"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert all(f" {name}:" in first for name in set(METRICS) - {"mse", "cos", "rmse"})


def test_nothing_changes_where_nothing_is_asked(dumps, capsys):
    main(["compare", dumps["near"], dumps["golden"]])
    plain = capsys.readouterr().out
    main(["compare", dumps["near"], dumps["golden"], "--metrics", "cos,rmse,mse"])
    assert capsys.readouterr().out == plain and "Layers: " not in plain


@pytest.mark.parametrize(
    ("limits", "status"),
    [
        ("mae=0.6", 0),
        ("mae=0.4", 1),
        ("MaxAbsoluteError=0.6,CosineSimilarity=0.5", 0),
        ("MaxAbsoluteError=0.6,CosineSimilarity=0.99", 1),
        ("all_close=1", 1),
        ("MaxRelativeError=inf", 0),
    ],
)
def test_limits_on_further_metrics(dumps, capsys, limits, status):
    assert main(["compare", dumps["off"], dumps["golden"], "--limit", limits, "--format", "sdk"]) == status
    out = capsys.readouterr().out
    assert f" {limits.partition('=')[0]}:" in out and ("Layers with " in out) == (status == 1)


def test_a_limit_on_what_cannot_be_told_is_passed(dumps, tmp_path):
    zeros = tmp_path / "zeros.bin"
    sgsdump.save_dump([Tensor.of(n, np.zeros((1, 40), np.float32)) for n in ("conv1", "relu/2")], zeros)
    assert main(["compare", dumps["good"], str(zeros), "--limit", "MaxRelativeError=inf"]) == 1
    assert main(["compare", str(zeros), str(zeros), "--limit", "MaxRelativeError=0,diff2=0"]) == 0


def test_equal_names_of_ours_and_a_vendors_are_told_apart(dumps, capsys):
    main(["compare", dumps["off"], dumps["golden"], "--metrics", "MeanAbsoluteError,msaccucmp", "--format", "sdk"])
    out = capsys.readouterr().out
    assert " MeanAbsoluteError:0.5 " in out and " vendor MeanAbsoluteError:0.500000 " in out


def test_help_names_every_metric(capsys):
    with pytest.raises(SystemExit):
        main(["compare", "--help"])
    words = re.split(r"[\s:;]+", capsys.readouterr().out)
    assert set(METRICS) - {"mse", "cos", "rmse"} <= set(words)


@pytest.mark.parametrize(
    ("tool", "shown"), [("msaccucmp", "StandardDeviation:("), ("msprobe", "One Thousandth Err Ratio:0.0")]
)
def test_a_vendors_numbers(dumps, tmp_path, capsys, tool, shown):
    table = tmp_path / "a.csv"
    words = ["compare", dumps["near"], dumps["golden"], "--csv", str(table), "--format", "sdk"]
    assert main([*words, "--metrics", tool]) == 0
    assert capsys.readouterr().out.count(shown) == 2
    assert any(name.startswith("vendor ") for name in next(csv.DictReader(table.open())))


def test_three_runs(dumps, tmp_path, capsys):
    table, document = tmp_path / "a.csv", tmp_path / "a.json"
    files = ["--csv", str(table), "--json", str(document)]
    assert main(["judge", dumps["near"], dumps["good"], dumps["golden"], "--format", "sdk", *files]) == 0
    out = capsys.readouterr().out
    assert out.startswith("index: 0 | conv1.npy | nan_inf: False | diff2: 0.00399")
    assert out.count("diff3_max=pass | diff3_mean=pass") == 2 and out.endswith("other list: []\n")
    assert f"Files only in {dumps['near']}: set()" in out
    lines, found = list(csv.DictReader(table.open())), json.loads(document.read_text())
    assert [line["verdict"] for line in lines] == ["pass", "pass"] and found["passes"]
    assert float(lines[0]["max_sw"]) == found["rows"][0]["max_sw"] and lines[1]["name"] == "relu/2"


def test_a_sample_worse_than_the_tag_allows(dumps, capsys):
    three = [dumps["near"], dumps["good"], dumps["golden"], "--format", "sdk"]
    assert main(["judge", *three, "--times", "4"]) == 1
    told = capsys.readouterr().out
    assert "other list: ['conv1.npy', 'relu/2.npy']" in told
    # the former spelling
    assert main(["judge", *three, "--input-tag", "4"]) == 1 and capsys.readouterr().out == told


def test_a_judgement_is_a_table_too(dumps, capsys):
    assert main(["judge", dumps["near"], dumps["good"], dumps["golden"]]) == 0
    head, first, *_ = table_of(capsys.readouterr().out)
    assert head.split()[:3] == ["#", "layer", "max_sw"] and first.split()[:3] == ["pass", "0", "conv1.npy"]


@pytest.mark.parametrize(
    ("limit", "said"), [("mae", "is not NAME=X"), ("mae=x", "is not a number"), ("cos=1", "--min-cos")]
)
def test_a_limit_that_cannot_be_read(dumps, capsys, limit, said):
    with pytest.raises(SystemExit) as stopped:
        main(["compare", dumps["near"], dumps["good"], "--limit", limit])
    assert stopped.value.code == 2 and said in capsys.readouterr().err


OWN = """
import numpy as np

def sqnr_by_hand(sample, benchmark):
    return 10 * np.log10(np.sum(benchmark.astype(float)**2) / np.sum((sample.astype(float) - benchmark) ** 2))

def writes(sample, benchmark):
    sample[0] = 1

def says(sample, benchmark):
    return "good"

def mse(sample, benchmark):
    return 0
"""


def test_a_metric_of_the_users_own(dumps, tmp_path, capsys):
    (tmp_path / "own.py").write_text(OWN)
    table = tmp_path / "t.csv"
    own = ["--metric", f"{tmp_path / 'own.py'}:sqnr_by_hand", "--metrics", "sqnr", "--csv", str(table)]
    assert main(["compare", dumps["near"], dumps["golden"], *own]) == 0
    assert capsys.readouterr().out.count("46.0206") == 4  # sqnr says the same
    for line in csv.DictReader(table.open()):
        assert float(line["sqnr_by_hand"]) == pytest.approx(float(line["sqnr"]), rel=1e-9)
    for limit, status in (("46.1", 1), ("46", 0), ("-50", 0)):
        assert main(["compare", dumps["near"], dumps["golden"], *own, "--limit", f"sqnr_by_hand={limit}"]) == status
    assert "exceed" not in capsys.readouterr().out.splitlines()[-1]
    limits = ["--limit", "relu*:sqnr_by_hand=50"]
    assert main(["compare", dumps["near"], dumps["golden"], *own, *limits]) == 1


def test_a_metric_of_the_users_own_that_fails_is_one_line(dumps, tmp_path, capsys):
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "other.py").write_text(OWN)
    for names, said in (
        (["own.py:writes"], "own.py:8: the metric failed: ValueError: 'assignment destination is read-only'"),
        (["own.py:says"], "own.py: says returned 'good', which is not a number"),
        (["own.py:mse"], "mse is a metric of sgsdump; give your function another name"),
        (["own.py:none"], "own.py has no function none(sample, benchmark)"),
        (["none.py:f"], "there is no metric file"),
        (["own.py:says", "other.py:says"], "another metric function is already named says"),
        (["mae"], "--metric 'mae' is not FILE.py:function"),
    ):
        given = [word for name in names for word in ("--metric", str(tmp_path / name) if "." in name else name)]
        assert main(["compare", dumps["near"], dumps["good"], *given]) == 2
        captured = capsys.readouterr()
        assert said in captured.err and captured.err.count("\n") == 1 and not captured.out


def test_functions_of_ones_own_in_python(dumps):
    def seen(sample, benchmark):
        assert sample.shape == benchmark.shape and not sample.flags.writeable
        return float(np.abs(sample - benchmark).max())

    rows = sgsdump.compare(dumps["off"], dumps["golden"], metrics={"mine": seen, "MaxAbsoluteError": None})
    assert [list(row.extra) for row in rows] == [["MaxAbsoluteError", "mine"]] * 2
    assert all(row.extra["mine"] == row.extra["MaxAbsoluteError"] == pytest.approx(0.5) for row in rows)
    with pytest.raises(ConfigError, match="mae is a metric of sgsdump"):
        sgsdump.compare(dumps["off"], dumps["golden"], metrics={"mae": seen})


def test_trouble_is_one_line(dumps, capsys):
    compare, golden = ["compare", dumps["near"], dumps["good"]], dumps["golden"]
    judge = ["judge", *compare[1:]]
    for words, said in (
        ([*compare, "--metrics", "dif2"], "unknown metric 'dif2'; did you mean 'diff2'"),
        ([*compare, "--metrics", "msprob"], "unknown metric 'msprob'"),
        ([*compare, "--limit", "mea=1"], "unknown metric 'mea'"),
        ([*compare, "--limit", "mae=-1"], "no value of the metric mae can be within the limit -1"),
        ([*judge, golden, "--th1", "-1"], "th1 must be 0 or more"),
        ([*judge, golden, "--times", "nan"], "the input tag must be 0 or more"),
        ([*judge, dumps["alien"]], "no tensor in common"),
        ([*judge, "absent"], "no such file: absent"),
    ):
        assert main(words) == 2
        captured = capsys.readouterr()
        assert said in captured.err and captured.err.count("\n") == 1 and not captured.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--golden", "g.npz"], "--golden; sgsdump judge SAMPLE BENCHMARK GOLDEN compares with a golden run"),
        (["--input-tag", "4"], "--input-tag; sgsdump judge SAMPLE BENCHMARK GOLDEN --times X does this"),
        (["--th1=1"], "--th1; sgsdump judge has this option"),
        (["--compatible", "msprobe"], "--compatible; use --metrics TOOL"),
    ],
)
def test_a_former_option_names_what_replaces_it(words, said, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["compare", "a.npz", "b.npz", *words])
    error = capsys.readouterr().err
    assert ended.value.code == 2 and said in error and error.count("\n") == 1


@pytest.mark.parametrize(("factor", "status"), [(1.0099, 0), (1.0101, 1)])
def test_the_tag_is_ten_and_th1_a_millionth_where_none_is_given(dumps, tmp_path, capsys, factor, status):
    """The benchmark is off by a thousandth, so the sample may be off by a hundredth."""
    golden = sgsdump.open_dump(dumps["golden"])
    path = tmp_path / "sample.bin"
    sgsdump.save_dump([Tensor.of(n, golden[n].stored() * np.float32(factor)) for n in ("conv1", "relu/2")], path)
    assert main(["judge", str(path), dumps["good"], dumps["golden"], "--format", "sdk"]) == status
    assert "*10.0=" in capsys.readouterr().out


@pytest.mark.parametrize(("value", "status"), [(1e-6, 0), (1.1e-6, 1)])
def test_all_close_within_a_millionth_where_no_th1_is_given(tmp_path, value, status):
    for name, array in (("a.bin", [0.0, value]), ("b.bin", [0.0, 0.0])):
        sgsdump.save_dump([Tensor.of("x", np.array([array], np.float64).astype(np.float32))], tmp_path / name)
    value = float(np.float32(value))
    assert (value <= 1e-6) is (status == 0)
    assert main(["compare", str(tmp_path / "a.bin"), str(tmp_path / "b.bin"), "--limit", "all_close=1"]) == status


def layers(folder, name, **arrays):
    path = folder / f"{name}.npz"
    np.savez(path, **arrays)
    return str(path)


def test_limits_of_layers_and_layers_left_out(tmp_path, capsys):
    b = np.linspace(1, 2, 40, dtype=np.float32)
    sample = layers(tmp_path, "a", conv1=b * 1.2, conv2=b * 1.01, bad=b * 5)
    benchmark = layers(tmp_path, "b", conv1=b, conv2=b, bad=b)

    def status(*options):
        return main(["compare", sample, benchmark, *options])

    assert status("--limit", "diff2=0.1") == 1
    assert status("--limit", "diff2=0.1", "--exclude", "bad") == 1
    assert status("--limit", "diff2=0.1,conv1:diff2=0.3", "--exclude", "b*") == 0
    assert "Excluded: 1 (bad)." in capsys.readouterr().out
    assert status("--limit", "conv*:rmse=0.3") == 0
    assert status("--limit", "conv*:sqnr=30") == 1
    assert status("--limit", "convv1:diff2=1") == 2
    assert "did you mean 'conv1'" in capsys.readouterr().err
    assert status("--exclude", "nothing") == 2


def test_a_missing_layer_fails_where_causes_do(tmp_path):
    values = np.ones(8, np.float32)
    sample, benchmark = layers(tmp_path, "a", conv1=values), layers(tmp_path, "b", conv1=values, conv2=values)
    assert main(["compare", sample, benchmark]) == 0
    assert main(["compare", sample, benchmark, "--fail-on", "cause"]) == 1
    assert main(["compare", sample, benchmark, "--fail-on", "cause", "--allow-missing"]) == 0
