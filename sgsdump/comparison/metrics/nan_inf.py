"""How many values of either side are NaN or infinite."""

from __future__ import annotations

from sgsdump.comparison.metrics.base import Metric, Sums


def nan_inf(sums: Sums) -> float:
    return float(sums.sample_nan + sums.sample_inf + sums.benchmark_nan + sums.benchmark_inf)


NAN_INF = Metric("nan_inf", "NaN and Inf of a and b", ideal=0.0, higher_is_better=False, of=nan_inf)
