"""MAPE of the SDAA dump tools: mean(|a-b| / (|b| + 1e-9)). Where b is 0 an error of 1 counts as 1e9."""

from __future__ import annotations

import numpy as np

from sgsdump.comparison.metrics.accumulators import EPSILON
from sgsdump.comparison.metrics.base import Accumulator, Metric, Settings, ratio


class Percentage(Accumulator):
    def __init__(self, settings: Settings):
        super().__init__(settings)
        self.total, self.count = 0.0, 0

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        self.total += float((np.abs(d) / (np.abs(b) + EPSILON)).sum())
        self.count += d.size


def mape(accumulator: Percentage) -> float:
    """NaN for an empty tensor."""
    return ratio(accumulator.total, accumulator.count)


MAPE = Metric("mape", "mean(|d| / (|b| + 1e-9))", 0.0, False, mape, Percentage)
