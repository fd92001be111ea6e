"""Cosine similarity: Σab / (√Σa² √Σb²). Blind to scale: half the values of the benchmark still score 1."""

from __future__ import annotations

import math
from dataclasses import replace

from sgsdump.comparison.metrics.base import Metric, Sums, ratio


def cos(sums: Sums) -> float:
    """Σab / (√Σa² √Σb²), from -1 to 1; NaN when either side is all zeros."""
    value = ratio(sums.ab, math.sqrt(sums.aa) * math.sqrt(sums.bb))
    # by Cauchy and Schwarz what is beyond is rounding alone
    return math.copysign(1.0, value) if 1 < abs(value) < math.inf else value


COS = Metric("COS", "Σab / (√Σa² √Σb²)", ideal=1.0, higher_is_better=True, of=cos)
COSINE_SIMILARITY = replace(COS, name="CosineSimilarity")  # msaccucmp's name; it gives two sides of zeros a 1
