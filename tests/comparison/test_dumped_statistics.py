"""What is counted of values that were not dumped: NaN and Inf as far as the statistics tell."""

from __future__ import annotations

import math

import numpy as np
import pytest

import sgsdump
from sgsdump import Dump, Record, Tensor, TensorInfo
from sgsdump.tensors.statistics import Statistics


def dump(**known) -> Dump:
    tensor = Tensor.of_statistics(TensorInfo("x", (4,), np.dtype(np.float32)), Statistics(**known))
    return Dump([Record("out", 0, 0, "ADD", tensor)])


@pytest.mark.parametrize(
    ("known", "nan", "inf", "minus"),
    [
        ({"min": 0.0, "max": 1.0}, 0, 0, 0),
        ({"min": 0.0, "max": math.inf}, 0, 1, 0),
        ({"min": -math.inf, "max": 1.0}, 0, 1, 1),
        ({"min": -math.inf, "max": math.inf}, 0, 2, 1),
        ({"min": 0.0, "max": 1.0, "mean": math.nan}, 1, 0, 0),
        ({"min": 0.0, "max": math.inf, "nan": 3}, 3, 0, 0),  # counts go before what the others show
        ({"min": 0.0, "positive_inf": 2}, 0, 2, 0),
        ({"min": 0.0, "negative_inf": 2, "positive_inf": 5}, 0, 7, 2),
        ({"min": 0.0, "nan": 0}, 0, 0, 0),
    ],
)
def test_what_statistics_say_of_nan_and_inf(known, nan, inf, minus):
    sound = dump(min=0.0, max=1.0, mean=0.5, count=4)
    (row,) = sgsdump.compare(dump(**known), sound).rows
    assert (row.sample_nan, row.sample_inf, row.sample_minus_inf) == (nan, inf, minus)
    assert (row.benchmark_nan, row.benchmark_inf, row.benchmark_minus_inf) == (0, 0, 0)
    assert row.finite is (nan + inf == 0) and math.isnan(row.cos) and math.isnan(row.mse) and math.isnan(row.rmse)
    (row,) = sgsdump.compare(sound, dump(**known)).rows
    assert (row.benchmark_nan, row.benchmark_inf, row.benchmark_minus_inf) == (nan, inf, minus)


@pytest.mark.parametrize(("sample", "benchmark", "count"), [(4, 5, 5), (4, None, 4), (None, 5, 5), (None, None, 0)])
def test_the_count_is_the_benchmark_s_where_it_has_one(sample, benchmark, count):
    (row,) = sgsdump.compare(dump(min=0.0, count=sample), dump(min=0.0, count=benchmark)).rows
    assert row.count == count
