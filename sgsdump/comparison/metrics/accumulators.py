"""The accumulators that several metrics share."""

from __future__ import annotations

import numpy as np

from sgsdump.comparison.metrics.base import Accumulator, Settings, ratio

EPSILON = 1e-9


class RelativeErrors(Accumulator):
    """|d| / |b|: the largest, the sum and how many.

    Where only the benchmark is 0 there is no relative error: those values are left out and counted. Where both are 0
    the error is 0. NaN and Inf are never left out and show in the results.
    """

    def __init__(self, settings: Settings):
        super().__init__(settings)
        self.largest = float("nan")
        self.total = 0.0
        self.count = 0

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        zero = b == 0
        if zero.any():
            defined = ~zero | (d == 0) | ~np.isfinite(d)
            self.left_out += int(np.count_nonzero(~defined))
            b, d = np.where(zero, 1.0, b)[defined], d[defined]
        if not d.size:
            return
        errors = np.abs(d) / np.abs(b)
        largest = float(errors.max())
        self.largest = float(np.maximum(self.largest, largest)) if self.count else largest
        self.total += float(errors.sum())
        self.count += errors.size


class Diff3(Accumulator):
    """|b| > th1: |d| / (|b| + 1e-9), else |d|: the largest and the sum. NaN and Inf are kept."""

    def __init__(self, settings: Settings):
        super().__init__(settings)
        self.largest = 0.0
        self.total = 0.0
        self.count = 0

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        base = np.abs(b)
        small = ~(base > self.settings.th1)
        base += EPSILON
        base[small] = 1.0
        errors = np.abs(d)
        errors /= base
        self.largest = float(np.maximum(self.largest, errors.max()))
        self.total += float(errors.sum())
        self.count += errors.size

    def mean(self) -> float:
        """NaN for an empty tensor."""
        return ratio(self.total, self.count)
