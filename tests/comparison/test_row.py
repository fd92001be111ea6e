"""A row's verdict, error and limits, one fact at a time."""

import math

import numpy as np
import pytest

from sgsdump.comparison.compare import compare
from sgsdump.comparison.row import Misnamed, Row
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.dumps.dump import Dump, Record
from sgsdump.tensors.tensor import Tensor

OTHER = Misnamed("benchmark", "y", 3, "Relu", 1.0, 0.0)


def row(**facts):
    plain = {"name": "x", "io": "out", "slot": 0, "op_index": 0, "op_type": "Conv", "type_name": "float"}
    plain |= {"sample_name": "x", "paired": "name", "count": 4, "mse": 0.5, "cos": 1.0, "rmse": 0.05}
    plain |= dict.fromkeys(("sample_nan", "sample_inf", "benchmark_nan", "benchmark_inf"), 0)
    return Row(**plain | facts)


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        ({}, "pass"),
        ({"cos": 0.99, "rmse": 0.1}, "pass"),
        ({"cos": math.nextafter(0.99, 0)}, "fail"),
        ({"rmse": math.nextafter(0.1, 1)}, "fail"),
        ({"sample_nan": 1}, "fail"),
        ({"sample_inf": 1}, "fail"),
        ({"benchmark_nan": 1}, "fail"),
        ({"benchmark_inf": 1}, "fail"),
        ({"mse": 0.0, "cos": math.nan, "rmse": math.nan}, "pass"),
        ({"mse": 0.0, "sample_nan": 1}, "fail"),
        ({"dtype_note": "dtypes differ"}, "warn"),
        ({"left_out": {"MaxRelativeError": 1}}, "warn"),
        ({"note": "benchmark transposed NHWC to NCHW"}, "warn"),
        ({"misnamed": OTHER}, "warn"),
        ({"note": "compared flat", "rmse": 0.2}, "fail"),
        ({"statistics": {"max": 0.1}, "note": "statistics only", "cos": math.nan}, "warn"),
        ({"statistics": {"min": 0.0, "max": math.nextafter(0.1, 1)}, "note": "statistics only"}, "fail"),
    ],
)
def test_verdict(facts, verdict):
    assert row(**facts).verdict() == verdict


@pytest.mark.parametrize(
    ("limits", "within"),
    [
        (DOCUMENTED, 0.1),
        (Thresholds(max_rmse=0.25), 0.25),
        (Thresholds(max_rmse=0.0), 0.0),
        (Thresholds(min_cos=0.5), 0.1),  # no limit on RMSE was given: the documented one holds
    ],
)
def test_statistics_have_the_limit_on_rmse(limits, within):
    assert row(statistics={"mean": within}).passes(limits)
    assert not row(statistics={"mean": math.nextafter(within, 1)}).passes(limits)


@pytest.mark.parametrize(
    ("facts", "error"),
    [
        ({}, 0.05),
        ({"benchmark_inf": 1}, math.inf),
        ({"mse": 0.0, "rmse": math.nan}, 0.0),
        ({"statistics": {"min": 0.25, "max": 0.125}, "rmse": math.nan, "mse": math.nan}, 0.25),
    ],
)
def test_rows_are_ranked_by_error(facts, error):
    assert row(**facts).error == error


def only_row(sample, benchmark):
    sides = [Dump([Record("out", 0, 0, "Add", Tensor.of("x", np.asarray(side)))]) for side in (sample, benchmark)]
    (row,) = compare(*sides).rows
    return row


def test_a_mask_of_minus_infinity_is_equal_to_itself():
    mask = np.triu(np.full((4, 4), -np.inf, np.float32), 1)
    row = only_row(mask, mask.copy())
    assert row.equal and row.passes() and row.error == 0 and row.verdict() == "warn"
    assert row.note == "all values are equal, 6 of them -Inf"
    other = mask.copy()
    other[3, 0] = 1
    assert not only_row(other, mask).passes()


@pytest.mark.parametrize("odd", [np.inf, np.nan])
def test_overflow_and_nan_are_faults_even_where_both_have_them(odd):
    values = np.array([1, odd, 2, -np.inf], np.float32)
    row = only_row(values, values.copy())
    assert not row.equal and row.verdict() == "fail"


def test_two_empty_tensors_are_equal():
    row = only_row(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32))
    assert row.passes() and row.note == "both are empty"


def test_a_flat_side_is_noted_where_both_shapes_are_known():
    values = np.arange(24, dtype=np.float32)
    row = only_row(values.reshape(2, 3, 4), values)
    assert row.note == "compared flat: sample [2, 3, 4], benchmark [24]" and row.verdict() == "warn"
    assert only_row(values.reshape(1, 24), values).note == ""


def test_saturated_float16_is_noted_on_either_side():
    """A mask's -65504 too: what a device cut cannot be told from what was meant, so it warns and does not fail."""
    values = np.float16([1, 65504, -65504, 2])
    row = only_row(values, values)
    assert row.note == "float16 values at ±65504: 2 in sample, 2 in benchmark"
    assert row.passes() and row.verdict() == "warn"
    assert only_row(values, values.astype(np.float32)).note == "float16 values at ±65504: 2 in sample"
    assert only_row(values[:1], values[:1]).note == ""
