"""Mean absolute error: (1/n) Σ|a-b|, in units of the tensor."""

from __future__ import annotations

from sgsdump.comparison.metrics.base import Metric, Sums, ratio


def mae(sums: Sums) -> float:
    """(1/n) Σ|a-b|, NaN for an empty tensor."""
    return ratio(sums.d1, sums.count)


MAE = Metric("mae", "(1/n) Σ|d|", ideal=0.0, higher_is_better=False, of=mae)
