"""Convolution, depthwise convolution, transposed convolution, fully connected: accumulator, bias, multiplier.

    A   = half_away(acc / 2^K)                                for K <= 16
          half_away(floor(acc / 2^(K - 16)) / 2^16)           for K > 16 (16-bit inputs only)
    out = clip(half_up((A + bias_c) * mul_c * 2^(K - n)))     not below the zero point where a ReLU is fused in

Source: docs/formats/fixed_arithmetic.md#convolution. Exact: every integer of every convolution seen.
"""

from __future__ import annotations

import numpy as np

from sgsdump.quantisation.integer.accumulator import Accumulator, accumulate
from sgsdump.quantisation.integer.emitter import DOUBLE, FLOAT, Emitter, Integers, Unrounded
from sgsdump.quantisation.integer.kernel import Kernel
from sgsdump.quantisation.integer.requantisation import Requantisation

FLOOR_BITS = 16
# v * (1 + e) moves ties away from zero before they are rounded half to even, and nothing else past a tie, as long as
# |acc| * e is less than one: that is the division by 1 - 2^-22 in float32, the product with 1 + 2^-44 in double.
FLOAT_TIES = np.float32(1 - 2.0**-22)
FLOAT_TIES_BELOW = 3.3e6
DOUBLE_TIES = 1 + 2.0**-44


def convolve(emit: Emitter, value: Integers, kernel: Kernel, numbers: Requantisation, rows: str) -> Unrounded:
    """A convolution up to its last rounding. ``rows``: the name of the constant (2, C), bias and multiplier."""
    accumulator = accumulate(emit, value, kernel, numbers.k, numbers.zero)
    return _requantised(emit, accumulator, numbers, rows, kernel.shape)


def _requantised(
    emit: Emitter, accumulator: Accumulator, numbers: Requantisation, rows: str, shape: tuple[int, ...]
) -> Unrounded:
    rounded = _half_away(emit, accumulator, numbers.k, shape)
    along = emit.constant(np.array(shape, np.int64))
    wide = emit.cast(rows, DOUBLE)
    bias, mul = (
        emit.add("Reshape", [emit.add("Gather", [wide, emit.constant(np.int64(row))], axis=0), along]) for row in (0, 1)
    )
    shifts = 2.0 ** (numbers.k - numbers.n)
    scale = emit.add("Mul", [mul, emit.constant(shifts.reshape(shape) if np.ptp(shifts) else shifts[0])])
    return Unrounded(emit.add("Mul", [rounded, scale]), emit.add("Mul", [bias, scale]))


def _half_away(emit: Emitter, accumulator: Accumulator, k: np.ndarray, shape: tuple[int, ...]) -> str:
    """Whole doubles of an accumulator over 2^K."""
    name = accumulator.name
    if not np.any(k > 0):
        return name if accumulator.dtype == DOUBLE else emit.cast(name, DOUBLE)
    if accumulator.dtype == FLOAT and accumulator.largest < FLOAT_TIES_BELOW and np.all(k <= FLOOR_BITS):
        return emit.cast(emit.add("Round", [emit.add("Div", [name, emit.constant(FLOAT_TIES)])]), DOUBLE)
    name = name if accumulator.dtype == DOUBLE else emit.cast(name, DOUBLE)
    if np.any(k > FLOOR_BITS):
        kept = (2.0 ** np.clip(k, 0, FLOOR_BITS)).reshape(shape)
        floor = emit.add("Floor", [emit.add("Mul", [name, emit.constant(kept)])])
        name = emit.add("Mul", [floor, emit.constant(1 / kept)])
    return emit.add("Round", [emit.add("Mul", [name, emit.constant(DOUBLE_TIES)])])
