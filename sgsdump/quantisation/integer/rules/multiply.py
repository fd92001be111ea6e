"""Mul: the product's low bits are dropped first so that what is left has 15 bits.

    s = s_a * s_b;   P = max |range of out| / s;   h = ceil(log2 P) - 14;   n = shift(s / s_o)
    out = clip(half_up(half_up(a * b / 2^h) * half_up(s / s_o * 2^n) / 2^(n - h)) + z_o)

a and b without their zero points. Source: docs/formats/fixed_arithmetic.md#fused-chains. Exact.
"""

from __future__ import annotations

import numpy as np

from sgsdump.quantisation.integer.emitter import Emitter, Integers, Unrounded
from sgsdump.quantisation.integer.rounding import half_up, log2_ceiling, shift, step
from sgsdump.quantisation.integer.scaling import centred
from sgsdump.tensors.tensor import Quant

PRODUCT_BITS = 14


def multiply(emit: Emitter, a: Integers, b: Integers, output: Quant, largest: float) -> Unrounded:
    """a * b; ``largest``: the largest magnitude of the output's calibrated range."""
    s = step(a.quant) * step(b.quant)
    h = log2_ceiling(largest / s) - PRODUCT_BITS
    n = shift(s / step(output))
    product = emit.add("Mul", [centred(emit, a), centred(emit, b)])
    half = emit.add(
        "Add", [emit.add("Mul", [product, emit.constant(np.float64(2.0**-h))]), emit.constant(np.float64(0.5))]
    )
    multiplier = float(half_up(s / step(output) * 2.0**n)) * 2.0 ** (h - n)
    scaled = emit.add("Mul", [emit.add("Floor", [half]), emit.constant(np.float64(multiplier))])
    return Unrounded(scaled, output.zero_point)
