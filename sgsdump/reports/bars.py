"""How long the bar of an error is, beside its number in a table."""

from __future__ import annotations

import math

DECADES = 5  # how much of the error a bar shows, below the largest


def share(error: float, top: float) -> float:
    """The length of the bar, of 1 for the largest finite error ``top`` and for NaN and infinity; logarithmic."""
    if not math.isfinite(error):
        return 1.0
    if error <= 0 or top <= 0:
        return 0.0
    return max(1 + math.log10(error / top) / DECADES, 0.02)
