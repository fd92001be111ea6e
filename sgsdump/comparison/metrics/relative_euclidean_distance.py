"""msaccucmp's RelativeEuclideanDistance, honest: sqrt(Σ(a-b)² / Σb²). A benchmark of zeros is no 0 here."""

from __future__ import annotations

import math
from dataclasses import replace

from sgsdump.comparison.metrics.base import Metric, Sums, ratio


def relative_euclidean_distance(sums: Sums) -> float:
    """Infinite when only the benchmark is all zeros, NaN when both are (msaccucmp: 0)."""
    return math.sqrt(ratio(sums.dd, sums.bb))


RELATIVE_EUCLIDEAN_DISTANCE = Metric(
    "RelativeEuclideanDistance", "sqrt(Σd² / Σb²)", 0.0, False, relative_euclidean_distance
)
DIFF2 = replace(RELATIVE_EUCLIDEAN_DISTANCE, name="diff2")  # of the SDAA dump tools, which list a tensor past 1e-3
