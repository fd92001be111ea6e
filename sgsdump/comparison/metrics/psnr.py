"""Peak signal-to-noise ratio in dB: 10 log10((max b - min b)² / mean d²), the peak being the benchmark's span."""

from __future__ import annotations

import math

import numpy as np

from sgsdump.comparison.metrics.base import Accumulator, Metric, Settings, decibels, ratio


class SpanAndNoise(Accumulator):
    def __init__(self, settings: Settings):
        super().__init__(settings)
        self.low, self.high = math.inf, -math.inf
        self.squares = 0.0
        self.count = 0

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        self.low = float(np.minimum(self.low, b.min()))
        self.high = float(np.maximum(self.high, b.max()))
        self.squares += float(d.dot(d))
        self.count += d.size


def psnr(accumulator: SpanAndNoise) -> float:
    """Infinite without noise; -Inf where a constant benchmark has some; NaN for an empty tensor."""
    if not accumulator.count:
        return math.nan
    return decibels(ratio((accumulator.high - accumulator.low) ** 2, accumulator.squares / accumulator.count))


PSNR = Metric("psnr", "10 log10((max b - min b)² / mean d²)", math.inf, True, psnr, SpanAndNoise)
