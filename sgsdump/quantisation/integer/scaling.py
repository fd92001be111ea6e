"""Bring integers to another scale by a 15-bit multiplier.

    n = shift(s_a / s_o);   out = clip(half_up((a - z_a) * half_up(s_a / s_o * 2^n) / 2^n) + z_o)

The SDK's converter inserts it as a MUL by the constant 1.0 where 16-bit values go to an 8-bit tensor.
Source: docs/formats/fixed_arithmetic.md#fused-chains. Exact.
"""

from __future__ import annotations

import numpy as np

from sgsdump.quantisation.integer.emitter import Emitter, Integers, Unrounded
from sgsdump.quantisation.integer.rounding import half_up, shift, step
from sgsdump.tensors.tensor import Quant


def requantise(emit: Emitter, value: Integers, output: Quant) -> Unrounded:
    """The same values with another scale or type."""
    n = shift(step(value.quant) / step(output))
    return Unrounded(scaled(emit, value, output, n), output.zero_point)


def scaled(emit: Emitter, value: Integers, output: Quant, n: int) -> str:
    """(q - z) * half_up(s / s_o * 2^n) / 2^n as doubles, not rounded."""
    multiplier = float(half_up(step(value.quant) / step(output) * 2.0**n)) * 2.0**-n
    return emit.add("Mul", [centred(emit, value), emit.constant(np.float64(multiplier))])


def centred(emit: Emitter, value: Integers) -> str:
    """q - z as doubles."""
    name = emit.doubles(value)
    if not value.quant.zero_point:
        return name
    return emit.add("Sub", [name, emit.constant(np.float64(value.quant.zero_point))])
