"""The median and the 0.99 quantile of |a-b|: what most values are off by, however large the worst error is.

All errors are kept until the pair is done, as float32: four bytes a value.
"""

from __future__ import annotations

import math

import numpy as np

from sgsdump.comparison.metrics.base import Accumulator, Metric, Settings


class Errors(Accumulator):
    def __init__(self, settings: Settings):
        super().__init__(settings)
        self.parts: list[np.ndarray] = []

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        self.parts.append(np.abs(d).astype(np.float32))

    def quantile(self, share: float) -> float:
        """Linear between the two nearest errors. NaN for an empty tensor and where an error is NaN."""
        if not self.parts:
            return math.nan
        self.parts = [np.concatenate(self.parts)]
        # numpy warns of Inf among the errors, which the result shows
        with np.errstate(invalid="ignore"):
            return float(np.quantile(self.parts[0], share))


def median_error(accumulator: Errors) -> float:
    return accumulator.quantile(0.5)


def error_p99(accumulator: Errors) -> float:
    return accumulator.quantile(0.99)


MEDIAN_ERROR = Metric("median_error", "median |d|", 0.0, False, median_error, Errors)
ERROR_P99 = Metric("error_p99", "0.99 quantile of |d|", 0.0, False, error_p99, Errors)
