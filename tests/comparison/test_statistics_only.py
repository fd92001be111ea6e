"""Tensors of which only statistics were dumped: compared by these, never called equal, told where nothing is shared."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from sgsdump import Dump, Record, Tensor, TensorInfo, compare, open_dump
from sgsdump.comparison.pair_result import relative_errors
from sgsdump.comparison.row import Row, is_rounding
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.reports.comparison import REPORTS
from sgsdump.tensors.statistics import Statistics

VALUES = np.array([[-4, 1, 2], [0.5, 0.25, 0.25]], np.float32)
TRUE = Statistics(-4.0, 2.0, 0.0, float(np.linalg.norm(VALUES)), 6, 0, 0, 0)


def dump(*tensors: Tensor) -> Dump:
    return Dump([Record("out", 0, i, "Add", tensor) for i, tensor in enumerate(tensors)])


def told(figures: Statistics, shape: tuple[int, ...] | None = (2, 3)) -> Dump:
    return dump(Tensor.of_statistics(TensorInfo("x", shape, np.dtype(np.float32)), figures))


def row_of(sample: Dump, benchmark: Dump) -> Row:
    (row,) = compare(sample, benchmark).rows
    return row


def test_figures_against_values_either_way() -> None:
    plain = dump(Tensor.of("x", VALUES))
    for sample, benchmark, side in ((told(TRUE), plain, "sample has"), (plain, told(TRUE), "benchmark has")):
        row = row_of(sample, benchmark)
        assert row.statistics == pytest.approx(dict.fromkeys(("min", "max", "mean", "l2norm"), 0), abs=1e-6)
        assert f"{side} statistics only" in row.note and row.verdict() == "warn"
        assert math.isnan(row.cos) and math.isnan(row.mse) and row.passes()


def test_an_error_is_relative_to_what_the_benchmark_spans() -> None:
    row = row_of(told(Statistics(-4.0, 3.0, 0.4, 5.0)), told(Statistics(-4.0, 2.0, 0.0, 4.0)))
    assert row.statistics == {"min": 0.0, "max": 0.25, "mean": 0.1, "l2norm": 0.25}
    assert row.error == 0.25 and row.verdict() == "fail"
    assert row.passes(Thresholds(max_rmse=0.25)) and not row.passes(Thresholds(min_cos=0.9))


def test_what_is_not_finite_never_passes() -> None:
    row = row_of(told(Statistics(min=1.0, mean=math.nan)), told(Statistics(min=1.0, mean=math.nan)))
    assert row.error == math.inf and row.statistics["mean"] == 0 and (row.sample_nan, row.benchmark_nan) == (1, 1)
    counted = row_of(told(Statistics(min=1.0, nan=3, negative_inf=2, positive_inf=1)), told(Statistics(min=1.0)))
    assert (counted.sample_nan, counted.sample_inf, counted.sample_minus_inf) == (3, 3, 2)
    assert counted.verdict() == "fail"
    assert relative_errors(Statistics(l2norm=1.0), Statistics(l2norm=0.0)) == {"l2norm": math.inf}
    assert relative_errors(Statistics(min=math.inf), Statistics(min=1.0)) == {"min": math.inf}


def test_six_decimals_of_text_are_no_error_but_full_precision_is() -> None:
    assert relative_errors(Statistics(max=2e-6), Statistics(max=2.6e-6)) == {"max": 0.0}
    assert relative_errors(Statistics(max=2.2e-7), Statistics(max=1.1e-7))["max"] == pytest.approx(1)


def test_norms_and_deviations_against_values() -> None:
    norm, deviation = float(np.abs(VALUES).sum()), float(np.std(VALUES, ddof=1))
    plain = dump(Tensor.of("x", VALUES))
    row = row_of(told(Statistics(l1norm=norm, std=deviation)), plain)
    assert row.statistics == pytest.approx({"l1norm": 0.0, "std": 0.0}, abs=1e-6)
    row = row_of(plain, told(Statistics(l1norm=2 * norm)))
    assert row.statistics == {"l1norm": pytest.approx(0.5)} and row.verdict() == "fail"
    assert relative_errors(Statistics(std=3.0), Statistics(min=-4.0, std=2.0)) == {"std": 0.25}


def test_the_last_of_a_writers_digits_is_no_error() -> None:
    def errors(a: float, b: float, digits: int | None) -> float:
        return relative_errors(Statistics(max=a, digits=digits), Statistics(max=b))["max"]

    assert errors(1.2346e3, 1.2345e3, 5) == 0 < errors(1.2347e3, 1.2345e3, 5)
    assert errors(1.2346e3, 1.2345e3, None) > 0 and errors(1.0001e-9, 1.0e-9, 5) == 0
    assert errors(1e-5, 0.0, 5) == math.inf and errors(math.inf, 1.0, 5) == math.inf


def test_rounding_to_the_narrower_type_is_no_cause() -> None:
    def side(dtype: type, value: float) -> Dump:
        info = TensorInfo("x", (2, 3), np.dtype(dtype))
        return dump(Tensor.of_statistics(info, Statistics(l1norm=value)))

    (row,) = compare(side(np.float16, 1.001), side(np.float32, 1.0)).rows
    assert is_rounding(row) and row.error == pytest.approx(1e-3)
    (row,) = compare(side(np.float32, 1.001), side(np.float32, 1.0)).rows
    assert not is_rounding(row)


def test_nothing_in_common_and_other_sizes_are_not_comparable() -> None:
    for sample, said in (
        (told(Statistics(max=1.0)), "the two dumps have no common values or statistics of"),
        (told(Statistics()), "^has no values: only statistics were dumped"),
        (told(TRUE, (3, 3)), r"shapes differ: sample \[3, 3\], benchmark \[2, 3\]"),
    ):
        (failed,) = compare(sample, told(Statistics(min=1.0))).failed
        with pytest.raises(AssertionError, match=said):
            raise AssertionError(failed.reason)
    assert row_of(told(TRUE, None), told(TRUE)).error == 0


def test_reports_tell_it() -> None:
    found = compare(told(Statistics(max=3.0)), told(Statistics(max=2.0)))
    limits = Thresholds(max_rmse=0.1)
    for name in ("sdk_table", "csv", "json"):
        assert "statistics only; relative errors: max 0.5" in REPORTS[name](found, limits)
    assert "0.x (Add), statistics differ by 0.5." in REPORTS["verdict"](found, limits)


def test_a_run_of_statistics_against_one_of_values(shared: Path) -> None:
    trees = [open_dump(shared / "ascend/atb_dump_tree" / name, step=0) for name in ("stats", "all_f0")]
    for sample, benchmark in (trees, reversed(trees)):
        found = compare(sample, benchmark)
        figures = [row for row in found.rows if row.statistics]
        assert len(figures) > 10 and not any(row.error > 1e-3 for row in figures if row.finite)


@pytest.mark.parametrize(
    ("sample", "benchmark", "equal"),
    [
        (2e-6, 2.6e-6, True),
        (2e-6, 3e-6, True),  # one unit of the last decimal: the writer may cut instead of round
        (2e-6, 3.1e-6, False),
        (2e-6, 7e-6, False),
        (2e-6, 12e-6, False),
        (0.5, 0.500001, True),
        (0.5, 0.5000011, False),
        (0.12345678, 0.12345712, False),  # neither has six decimals
    ],
)
def test_six_decimals_forgive_one_unit_of_the_last(sample: float, benchmark: float, equal: bool) -> None:
    for pair in ((sample, benchmark), (benchmark, sample), (-sample, -benchmark)):
        assert (relative_errors(*(Statistics(mean=value) for value in pair))["mean"] == 0) is equal
