"""msaccucmp's KullbackLeiblerDivergence: Σ p ln(p/q), of values scaled to distributions, p of a and q of b.

Each side is scaled from its own minimum and maximum to 0 … 1, floored at float32's epsilon (a constant side is the
floor throughout), and divided by its sum. So it sees neither scale nor offset: twice the benchmark scores 0.
Two passes: the extremes first; then, with P and Q the scaled values before the division,
Σ p ln(p/q) = ΣP ln(P/Q) / ΣP + ln(ΣQ/ΣP).
"""

from __future__ import annotations

import math

import numpy as np

from sgsdump.comparison.metrics.base import Accumulator, Metric, Settings

FLOOR = float(np.finfo(np.float32).eps)


class Distributions(Accumulator):
    def __init__(self, settings: Settings):
        super().__init__(settings)
        self.low = np.full(2, np.inf)
        self.high = np.full(2, -np.inf)
        self.scaling = False
        self.p = self.q = self.logs = 0.0

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        if not self.scaling:
            self.low = np.minimum(self.low, [a.min(), b.min()])
            self.high = np.maximum(self.high, [a.max(), b.max()])
            return
        p, q = self._scaled(a, 0), self._scaled(b, 1)
        self.p += float(p.sum())
        self.q += float(q.sum())
        self.logs += float((p * np.log(p / q)).sum())

    def wants_again(self) -> bool:
        first, self.scaling = not self.scaling, True
        return first

    def _scaled(self, values: np.ndarray, side: int) -> np.ndarray:
        width = self.high[side] - self.low[side]
        if width == 0:
            return np.full(values.shape, FLOOR)
        return np.maximum((values - self.low[side]) / width, FLOOR)


def kullback_leibler_divergence(accumulator: Distributions) -> float:
    """0 or more but for rounding; NaN for an empty tensor and where NaN or Inf is among the values."""
    if not accumulator.p or not accumulator.q:
        return float("nan")
    return accumulator.logs / accumulator.p + math.log(accumulator.q / accumulator.p)


KULLBACK_LEIBLER_DIVERGENCE = Metric(
    "KullbackLeiblerDivergence", "Σ p ln(p/q)", 0.0, False, kullback_leibler_divergence, Distributions
)
