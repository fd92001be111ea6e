"""msaccucmp's CosineSimilarity, honest: Σab / (√Σa² √Σb²) in float64, NaN where a side is all zeros."""

from __future__ import annotations

import math

from sgsdump.comparison.metrics.base import Metric, Sums, ratio


def cosine_similarity(sums: Sums) -> float:
    """From -1 to 1; msaccucmp gives two sides of zeros a 1."""
    return ratio(sums.ab, math.sqrt(sums.aa) * math.sqrt(sums.bb))


COSINE_SIMILARITY = Metric("CosineSimilarity", "Σab / (√Σa² √Σb²)", 1.0, True, cosine_similarity)
