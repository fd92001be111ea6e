"""diff3_mean of the SDAA dump tools: the mean error, relative where |b| > th1, else absolute."""

from __future__ import annotations

from sgsdump.comparison.metrics.accumulators import Diff3
from sgsdump.comparison.metrics.base import Metric

DIFF3_MEAN = Metric("diff3_mean", "mean(|b| > th1 ? |d| / (|b| + 1e-9) : |d|)", 0.0, False, Diff3.mean, Diff3)
