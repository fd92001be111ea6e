"""The range of a tensor, as calibration finds it and quantisation uses it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Range:
    """``min`` and ``max``: float64 arrays of one value per tensor or C per channel; ``bit``: 8, 16 … or None.

    ``wide``: what holds instead where the tensor is stored with 16 bits, whose steps are fine enough to clip nothing.
    """

    min: np.ndarray
    max: np.ndarray
    bit: int | None = None
    wide: Range | None = None

    @classmethod
    def of(cls, low: float, high: float, bit: int | None = None) -> Range:
        """The range of a whole tensor."""
        return cls(np.array([low], np.float64), np.array([high], np.float64), bit)

    def at(self, dtype: np.dtype) -> Range:
        """The range for values stored as ``dtype``."""
        return self.wide if self.wide is not None and dtype.itemsize > 1 else self

    def same(self, other: Range) -> bool:
        """Equal numbers and bits."""
        return np.array_equal(self.min, other.min) and np.array_equal(self.max, other.max) and self.bit == other.bit

    @property
    def low(self) -> float:
        """The smallest min of all channels."""
        return float(self.min.min())

    @property
    def high(self) -> float:
        """The largest max of all channels."""
        return float(self.max.max())
