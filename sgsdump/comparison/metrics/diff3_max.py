"""diff3_max of the SDAA dump tools: the largest error, relative where |b| > th1, else absolute.

Those tools advise th1 = 1e-6 for float32 and 1e-4 for float16.
"""

from __future__ import annotations

from sgsdump.comparison.metrics.accumulators import Diff3
from sgsdump.comparison.metrics.base import Metric, largest


def diff3_max(accumulator: Diff3) -> float:
    """0 for an empty tensor."""
    return accumulator.largest


DIFF3_MAX = Metric("diff3_max", "max(|b| > th1 ? |d| / (|b| + 1e-9) : |d|)", 0.0, False, diff3_max, Diff3, largest)
