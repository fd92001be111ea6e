"""The numbers of the hardware's integer arithmetic: scales as float32, 15-bit multipliers, its two ways to round.

Source: docs/formats/fixed_arithmetic.md. Everything is computed in double unless it says float32.
"""

from __future__ import annotations

import numpy as np

from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range

U8_MAX = 255
S16_MAX = 32767
S8_MAX = 127


def half_up(value: np.ndarray | float) -> np.ndarray:
    """floor(v + 0.5)."""
    return np.floor(np.asarray(value, np.float64) + 0.5)


def half_away(value: np.ndarray | float) -> np.ndarray:
    """Round to nearest, ties away from zero."""
    value = np.asarray(value, np.float64)
    return np.copysign(np.floor(np.abs(value) + 0.5), value)


def step(quant: Quant) -> float:
    """A tensor's scale as every product uses it: float32."""
    return float(np.float32(quant.scale))


def steps(quant: Quant, channels: int) -> np.ndarray:
    """The scales of weights as float32 values, one per output channel.

    The groups of a ConvTranspose have theirs in common: its weights are (I, O / group, ...).
    """
    values = np.asarray(quant.scale, np.float32).astype(np.float64).reshape(-1)
    return np.tile(values, channels // values.size)


def shift(largest: float) -> int:
    """The n that makes ``largest * 2**n`` a 15-bit multiplier, 16384 to 32767: floor(log2(32767 / largest))."""
    return int(np.frexp(S16_MAX / largest)[1]) - 1


def log2_ceiling(value: float) -> int:
    """ceil(log2(value)); 0 for nothing at all."""
    mantissa, exponent = np.frexp(value)
    return int(exponent) - int(mantissa == 0.5)


def limits(quant: Quant) -> tuple[int, int]:
    """The smallest and largest stored value: 0 to 255, -32767 to 32767 (never -32768)."""
    return (0, U8_MAX) if quant.dtype == np.uint8 else (-S16_MAX, S16_MAX)


def store_weight(weight: np.ndarray, quant: Quant) -> np.ndarray:
    """The integers of a weight: w / scale rounded half away from zero, within the symmetric limits of its type."""
    assert quant.dtype is not None, "weights have a type"
    scale: np.ndarray = np.asarray(quant.scale, np.float64)
    if quant.axis is not None:
        scale = scale.reshape([-1 if i == quant.axis else 1 for i in range(weight.ndim)])
    top = np.iinfo(quant.dtype).max
    return np.clip(half_away(weight.astype(np.float64) / scale), -top, top).astype(quant.dtype)


def reach(quant: Quant) -> Range:
    """All that a stored tensor can hold."""
    low, high = limits(quant)
    return Range.of((low - quant.zero_point) * step(quant), (high - quant.zero_point) * step(quant))
