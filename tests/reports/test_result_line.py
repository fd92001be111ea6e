"""The first line of ``compare``: the verdict, the number that decided and its limit; nothing in the SDK's form."""

import json
from dataclasses import replace

import numpy as np
import pytest

import sgsdump
from sgsdump.cli import main
from sgsdump.comparison.finding import Finding
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.dumps.dump import Dump, Record
from sgsdump.reports.three_lines import result_line
from sgsdump.tensors.tensor import Tensor

VALUES = np.random.default_rng(0).choice([-1.0, 1.0], (1, 4, 4, 8))


def compared(errors, **facts):
    """Layers ``l0``, ``l1`` … that are off by these relative errors."""
    signs = np.random.default_rng(1).choice([-1.0, 1.0], VALUES.shape)

    def dump(share):
        arrays = [(VALUES * (1 + share * error * signs)).astype(np.float32) for error in errors]
        return Dump([Record("out", 0, i, "Conv", Tensor.of(f"l{i}", a)) for i, a in enumerate(arrays)])

    sample = dump(1)
    if "keep" in facts:
        sample = sample.select(*facts["keep"])
    return sgsdump.compare(sample, dump(0))


@pytest.mark.parametrize(
    ("errors", "limits", "line"),
    [
        ([0, 0.02], {"max_rmse": 0.1}, "PASS: layer l1 RMSE 0.02, limit 0.1; all 2 layers are within the limits."),
        ([0.5], {"max_rmse": 0.1}, "FAIL: layer l0 RMSE 0.5, limit 0.1; 1 of 1 layer exceeds the limits."),
        ([0.02, 0.5, 0.3], {"max_rmse": 0.1}, "FAIL: layer l1 RMSE 0.5, limit 0.1; 2 of 3 layers exceed the limits."),
        ([0.02, 0.5], {"max_mse": 0.1}, "FAIL: layer l1 MSE 0.25, limit 0.1; 1 of 2 layers exceeds the limits."),
        ([np.nan, 0.1], {"max_rmse": 0.5}, "FAIL: layer l0 has NaN or Inf; 1 of 2 layers exceeds the limits."),
        ([0, 0, 0], None, "EQUAL: all 3 layers are equal."),
        ([0, 1e-7], None, "WITHIN ROUNDING: layer l1 RMSE 1.19e-07; 1 of 2 layers differs, all by rounding."),
        ([1e-7, 0.5, 0.02], None, "DIFFERS: layer l1 RMSE 0.5; 2 of 3 layers differ."),
        ([np.nan, 0.1], None, "DIFFERS: layer l1 RMSE 0.1; 1 of 2 layers differs; NaN or Inf in 1 layer."),
        ([np.nan, 0], None, "EQUAL: all 2 layers are equal; NaN or Inf in 1 layer."),
    ],
)
def test_the_number_that_decided(errors, limits, line):
    given = None if limits is None else Thresholds(**limits)
    comparison = compared(errors)
    assert result_line(comparison.verdict(given)) == line
    if given:
        assert line.startswith("PASS") == comparison.passes(given)


def test_equal_layers_with_a_cause_outside_them():
    causes = (Finding("between rounds", "aten.div", "aten.div", evidence="by value"),)
    comparison = replace(compared([0, 0]), causes=causes)
    assert result_line(comparison.verdict()) == "DIFFERS: no layer differs, but a cause was found outside the layers."


def test_cos_and_a_limit_of_a_layer_of_its_own():
    comparison = compared([0.5, 0.02])
    assert result_line(comparison.verdict(Thresholds(min_cos=0.95))).startswith("FAIL: layer l0 COS 0.897, limit 0.95;")
    own = Thresholds(max_rmse=0.6, layers=(("l1", "rmse", 0.01),))
    assert result_line(comparison.verdict(own)).startswith("FAIL: layer l1 RMSE 0.02, limit 0.01; 1 of 2")


def test_what_is_missing_is_incomplete_and_never_opens_as_equal_alone():
    comparison = compared([0, 0, 0], keep=["l1", "l2"])
    limited = comparison.verdict(Thresholds(max_rmse=0.1))
    missing = "the sample lacks 1 layer (l0)"
    assert result_line(limited) == f"INCOMPLETE: {missing}; the 2 compared layers are within the limits."
    assert limited.exit_status() == 1 and comparison.verdict().exit_status() == 0
    assert result_line(comparison.verdict()) == f"EQUAL: all 2 layers are equal; {missing}."
    assert result_line(comparison.verdict(Thresholds(max_rmse=0.1), allow_missing=True)).startswith("PASS: ")


def test_the_command_opens_with_it_but_in_the_sdks_form(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.savez("a.npz", x=VALUES * 1.02, y=VALUES)
    np.savez("b.npz", x=VALUES, y=VALUES)
    for words, status, first in (
        (["--max-rmse", "0.1"], 0, "PASS: layer x RMSE 0.02, limit 0.1"),
        (["--max-rmse", "0.1", "--only-bad"], 0, "PASS: "),
        (["--max-rmse", "0.01"], 1, "FAIL: layer x RMSE 0.02, limit 0.01"),
        ([], 0, "DIFFERS: layer x RMSE 0.02; 1 of 2 layers differs."),
    ):
        assert main(["compare", "a.npz", "b.npz", *words, "--json", "c.json"]) == status
        out = capsys.readouterr().out
        assert out.startswith(first) and "0 of 2 compared layers" not in out
        assert json.loads((tmp_path / "c.json").read_text())["rows"]
    assert main(["compare", "a.npz", "b.npz", "--format", "sdk", "--max-rmse", "0.1"]) == 0
    out = capsys.readouterr().out
    assert "OP_TYPE" in out.splitlines()[0] and "\nPASS: " in out
