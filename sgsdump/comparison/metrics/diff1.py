"""diff1 of the SDAA dump tools: Σ|a-b| / Σ|b|, the relative L1 error (the SDK's ``rmse`` by another name)."""

from __future__ import annotations

from sgsdump.comparison.metrics.base import Metric, Sums, ratio


def diff1(sums: Sums) -> float:
    """Σ|a-b| / Σ|b|; infinite when only the benchmark is all zeros, NaN when both are."""
    return ratio(sums.d1, sums.b1)


DIFF1 = Metric("diff1", "Σ|d| / Σ|b|", ideal=0.0, higher_is_better=False, of=diff1)
