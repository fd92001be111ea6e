"""msaccucmp's MaxAbsoluteError: the largest |a-b|. NaN anywhere makes it NaN."""

from __future__ import annotations

import numpy as np

from sgsdump.comparison.metrics.base import Accumulator, Metric, Settings, largest


class Largest(Accumulator):
    def __init__(self, settings: Settings):
        super().__init__(settings)
        self.value = 0.0

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        self.value = float(np.maximum(self.value, max(float(d.max()), -float(d.min()))))


def max_absolute_error(accumulator: Largest) -> float:
    """0 for an empty tensor."""
    return accumulator.value


MAX_ABSOLUTE_ERROR = Metric("MaxAbsoluteError", "max |d|", 0.0, False, max_absolute_error, Largest, largest)
