"""Mean squared error: (1/n) Σ(a-b)². In squared units of the tensor, so compare it only within one layer."""

from __future__ import annotations

from sgsdump.comparison.metrics.base import Metric, Sums, ratio


def mse(sums: Sums) -> float:
    """(1/n) Σ(a-b)², NaN for an empty tensor."""
    return ratio(sums.dd, sums.count)


MSE = Metric("MSE", "(1/n) Σ(a-b)²", ideal=0.0, higher_is_better=False, of=mse)
