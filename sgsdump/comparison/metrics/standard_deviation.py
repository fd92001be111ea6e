"""msaccucmp's StandardDeviation as one number: how far the standard deviations of both sides are apart.

msaccucmp prints means and deviations of both sides, which rank nothing (``vendor_metrics/msaccucmp.py`` does so too).
Chunks are merged as in Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
variances" (1979): exact where values lie far from 0.
"""

from __future__ import annotations

import math

import numpy as np

from sgsdump.comparison.metrics.base import Accumulator, Metric, Settings, ratio


class Spread(Accumulator):
    def __init__(self, settings: Settings):
        super().__init__(settings)
        self.count = 0
        self.mean = np.zeros(2)
        self.squares = np.zeros(2)  # of the distances from the mean

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        mean = np.array([a.mean(), b.mean()])
        squares = np.array([np.square(a - mean[0]).sum(), np.square(b - mean[1]).sum()])
        total = self.count + a.size
        apart = mean - self.mean
        self.squares += squares + apart**2 * (self.count * a.size / total)
        self.mean += apart * (a.size / total)
        self.count = total


def standard_deviation(accumulator: Spread) -> float:
    """NaN for an empty tensor."""
    a, b = (math.sqrt(ratio(float(squares), accumulator.count)) for squares in accumulator.squares)
    return abs(a - b)


STANDARD_DEVIATION = Metric("StandardDeviation", "|σ(a) - σ(b)|", 0.0, False, standard_deviation, Spread)
