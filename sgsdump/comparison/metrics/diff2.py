"""diff2 of the SDAA dump tools: sqrt(Σ(a-b)² / Σb²), the relative L2 error. Past 1e-3 those tools list a tensor."""

from __future__ import annotations

import math

from sgsdump.comparison.metrics.base import Metric, Sums, ratio


def diff2(sums: Sums) -> float:
    """sqrt(Σ(a-b)² / Σb²); infinite when only the benchmark is all zeros, NaN when both are."""
    return math.sqrt(ratio(sums.dd, sums.bb))


DIFF2 = Metric("diff2", "sqrt(Σd² / Σb²)", ideal=0.0, higher_is_better=False, of=diff2)
