"""Convolution, depthwise convolution, transposed convolution, fully connected: accumulator, bias, multiplier.

    A   = half_away(acc / 2^K)                                for K <= 16
          half_away(floor(acc / 2^(K - 16)) / 2^16)           for K > 16 (16-bit inputs only)
    out = clip(half_up((A + bias_c) * mul_c * 2^(K - n)))     not below the zero point where a ReLU is fused in

Source: docs/formats/fixed_arithmetic.md#convolution. Exact: every integer of every convolution seen.
"""

from __future__ import annotations

import numpy as np

from sgsdump.quantisation.integer.convolution.accumulator import Accumulator, accumulate
from sgsdump.quantisation.integer.convolution.kernel import Kernel
from sgsdump.quantisation.integer.convolution.quotient import divisors
from sgsdump.quantisation.integer.convolution.requantisation import Requantisation
from sgsdump.quantisation.integer.emitter import DOUBLE, FLOAT, Emitter, Integers, Unrounded

FLOOR_BITS = 16
# Multiplied by 1 + e, a tie lies past the middle, away from zero, and rounding half to even takes it there; nothing
# else moves past a tie as long as |acc| * e is less than one.
FLOAT_TIES = 1 - 2.0**-22
FLOAT_TIES_BELOW = 3.3e6
DOUBLE_TIES = 1 + 2.0**-44


def convolve(
    emit: Emitter, value: Integers, kernel: Kernel, numbers: Requantisation, rows: str, stored: str = ""
) -> Unrounded | str:
    """A convolution up to its last rounding, or the name ``stored`` of what is stored already.

    rows    the name of the constant (2, C), bias and multiplier.
    stored  the name to store under, where the output is UINT8 with no narrower limits than its type's; else "".
    """
    accumulator = accumulate(emit, value, kernel, np.maximum(numbers.k - FLOOR_BITS, 0), numbers.zero)
    if stored and len(kernel.shape) > 1 and _in_floats(accumulator, numbers.k):
        divisor = divisors(numbers)
        if divisor is not None:
            return _divided(emit, accumulator, numbers, rows, divisor, kernel.shape, stored)
    return _requantised(emit, accumulator, numbers, rows, kernel.shape)


def _divided(
    emit: Emitter,
    accumulator: Accumulator,
    numbers: Requantisation,
    rows: str,
    divisor: np.ndarray,
    shape: tuple[int, ...],
    stored: str,
) -> str:
    """(A + bias) / divisor, rounded and saturated; see ``quotient``."""
    rounded = _rounded_floats(emit, accumulator, numbers.k, shape)
    bias = emit.add("Gather", [emit.cast(rows, FLOAT), emit.constant(np.int64(0))], axis=0)
    bias = emit.add("Reshape", [bias, emit.constant(np.array(shape, np.int64))])
    zero = emit.constant(np.zeros(divisor.shape, np.uint8))
    total = emit.add("Add", [rounded, bias])
    return emit.add("QuantizeLinear", [total, emit.constant(divisor), zero], stored, axis=1)


def _requantised(
    emit: Emitter, accumulator: Accumulator, numbers: Requantisation, rows: str, shape: tuple[int, ...]
) -> Unrounded:
    """(A + bias) * mul * 2^(K - n), as A * scale + bias * scale."""
    wide = emit.cast(rows, DOUBLE)
    bias, mul = (emit.add("Gather", [wide, emit.constant(np.int64(row))], axis=0) for row in (0, 1))
    shifts = 2.0 ** (numbers.k - numbers.n)
    scale = emit.add("Mul", [mul, emit.constant(shifts if np.ptp(shifts) else shifts[0])])
    offset = emit.add("Mul", [bias, scale])
    rounded = _half_away(emit, accumulator, numbers.k, shape)
    if len(shape) > 1 and np.any(numbers.k > 0):
        # One pass in place of two; onnxruntime merges it with a MatMul, but not with the rounding that is before it.
        zeros, ones = (emit.constant(fill(numbers.k.shape)) for fill in (np.zeros, np.ones))
        offset = emit.add("Add", [offset, emit.constant(np.float64(0.5))])
        line = emit.add("BatchNormalization", [rounded, scale, offset, zeros, ones], epsilon=0.0)
        return Unrounded(line, halved=True)
    along = emit.constant(np.array(shape, np.int64))
    scale, offset = (emit.add("Reshape", [name, along]) for name in (scale, offset))
    return Unrounded(emit.add("Mul", [rounded, scale]), offset)


def _half_away(emit: Emitter, accumulator: Accumulator, k: np.ndarray, shape: tuple[int, ...]) -> str:
    """Whole doubles: an accumulator over 2^K, of which 2^max(K - 16, 0) is taken off already, rounded."""
    if _in_floats(accumulator, k):
        return emit.cast(_rounded_floats(emit, accumulator, k, shape), DOUBLE)
    name, left = accumulator.name, _along(2.0 ** np.minimum(k, FLOOR_BITS), shape)
    name = name if accumulator.dtype == DOUBLE else emit.cast(name, DOUBLE)
    if np.any(k > FLOOR_BITS):
        name = emit.add("Floor", [name])
    if not np.any(k > 0):
        return emit.add("Mul", [name, emit.constant(1 / left)]) if np.any(k) else name
    return emit.add("Round", [emit.add("Mul", [name, emit.constant(DOUBLE_TIES / left)])])


def _in_floats(accumulator: Accumulator, k: np.ndarray) -> bool:
    """Whether float32 rounds the accumulator over 2^K right."""
    small = accumulator.largest < FLOAT_TIES_BELOW and np.all(k <= FLOOR_BITS)
    return bool(accumulator.dtype == FLOAT and small and np.all(k > 0))


def _rounded_floats(emit: Emitter, accumulator: Accumulator, k: np.ndarray, shape: tuple[int, ...]) -> str:
    ties = _along(2.0**k * FLOAT_TIES, shape).astype(np.float32)
    return emit.add("Round", [emit.add("Div", [accumulator.name, emit.constant(ties)])])


def _along(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """One value per channel, or one for all."""
    return values.reshape(shape) if np.ptp(values) else values[0]
