"""Mul and Add by a constant, of one value or one per channel: the BatchNorm and Scale that no convolution takes in.

    mul:  M_c = f32(f32(s_a / s_o) * c);  n = shift(max |M_c|)
          out = clip(half_up((a - z_a) * half_away(M_c * 2^n) / 2^n) + z_o)
    add:  n = shift(s_a / s_o);  T = half_up((a - z_a) * half_up(s_a / s_o * 2^n) / 2^(n-1))
          out = clip(half_up((T + half_away(2 * f32(c / s_o))) / 2) + z_o)

The constants are the float ones, neither is quantised by a scale of its own: the converter keeps a 16-bit multiplier
for one and a 32-bit addend for the other. An addition has one bit more than its output while it adds. Requantisation is
this Mul with c = 1. A constant as large as what it is added to or multiplied by is no such constant: see ``Walk``.

Exact: every integer of the probe o_bn, behind a convolution and behind a max pool, and of the public networks that
tests/golden/README.md names. Where M_c * 2^n or 2 * c / s_o is within 0.001 of a half, the float32 decides: all of 12
such factors and 3 such addends, which no other order of the two operations explains.
"""

from __future__ import annotations

import numpy as np

from sgsdump.quantisation.integer.emitter import Emitter, Integers, Unrounded
from sgsdump.quantisation.integer.rounding import half_away, half_up, shift, step
from sgsdump.quantisation.integer.scaling import centred
from sgsdump.tensors.tensor import Quant


def multiply_by(emit: Emitter, value: Integers, factor: np.ndarray, output: Quant) -> Unrounded:
    """value * factor; ``factor``: shaped to broadcast over the value."""
    single = np.float32(value.quant.scale) / np.float32(output.scale)
    ratio = (single * np.asarray(factor, np.float32)).astype(np.float64)
    n = shift(float(np.abs(ratio).max()) or 1.0)
    multiplier = half_away(ratio * 2.0**n) * 2.0**-n
    return Unrounded(emit.add("Mul", [centred(emit, value), emit.constant(multiplier)]), output.zero_point)


def add_to(emit: Emitter, value: Integers, addend: np.ndarray, output: Quant) -> Unrounded:
    """value + addend; ``addend``: shaped to broadcast over the value."""
    ratio = step(value.quant) / step(output)
    n = shift(ratio)
    multiplier = float(half_up(ratio * 2.0**n)) * 2.0 ** (1 - n)
    doubled = emit.add("Mul", [centred(emit, value), emit.constant(np.float64(multiplier))])
    whole = emit.add("Floor", [emit.add("Add", [doubled, emit.constant(np.float64(0.5))])])
    addend = half_away(2 * (np.asarray(addend, np.float32) / np.float32(output.scale)).astype(np.float64))
    total = emit.add("Add", [whole, emit.constant(addend)])
    return Unrounded(emit.add("Mul", [total, emit.constant(np.float64(0.5))]), output.zero_point)
