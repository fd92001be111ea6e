"""Signal-to-quantisation-noise ratio in dB: 10 log10(Σb² / Σ(a-b)²). About 6 dB are one bit."""

from __future__ import annotations

import math

from sgsdump.comparison.metrics.base import Metric, Sums, decibels, ratio


def sqnr(sums: Sums) -> float:
    """Infinite without noise, -Inf when only the benchmark is all zeros, NaN when both are."""
    return decibels(ratio(sums.bb, sums.dd))


SQNR = Metric("sqnr", "10 log10(Σb² / Σd²)", math.inf, True, sqnr)
