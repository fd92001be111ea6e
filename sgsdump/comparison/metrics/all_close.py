"""Whether all values are close, as ``numpy.testing.assert_allclose`` has it: |a-b| <= atol + rtol |b|.

NaN is close to NaN and Inf to Inf of the same sign, to nothing else.
"""

from __future__ import annotations

import numpy as np

from sgsdump.comparison.metrics.base import Accumulator, Metric, Settings


class Close(Accumulator):
    def __init__(self, settings: Settings):
        super().__init__(settings)
        self.close = True
        self.rtol = settings.th1 if settings.rtol is None else settings.rtol
        self.atol = settings.th1 if settings.atol is None else settings.atol

    def add(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        within = np.abs(d) <= self.atol + self.rtol * np.abs(b)
        if within.all() and np.isfinite(b).all():
            return
        equal = (np.isinf(b) & (a == b)) | (np.isnan(a) & np.isnan(b))
        self.close = self.close and bool(((within & np.isfinite(b)) | equal).all())


def all_close(accumulator: Close) -> float:
    """1.0 or 0.0; 1.0 for an empty tensor."""
    return float(accumulator.close)


ALL_CLOSE = Metric("all_close", "all |d| <= atol + rtol |b|", 1.0, True, all_close, Close, min)
