"""What the SDK calls RMSE: Σ|a-b| / Σ|b|.

The name misleads: it is no root of a mean square but the relative L1 error, without unit. It is asymmetric, swapping
sample and benchmark changes it. We keep the name because the SDK's reports, manuals and thresholds use it.
"""

from __future__ import annotations

from dataclasses import replace

from sgsdump.comparison.metrics.base import Metric, Sums, ratio


def rmse(sums: Sums) -> float:
    """Σ|a-b| / Σ|b|; infinite when only the benchmark is all zeros, NaN when both are."""
    return ratio(sums.d1, sums.b1)


RMSE = Metric("RMSE", "Σ|a-b| / Σ|b|", ideal=0.0, higher_is_better=False, of=rmse)
DIFF1 = replace(RMSE, name="diff1")  # the name of the SDAA dump tools
