"""Add: both operands brought to the output's step by 15-bit multipliers.

    n   = shift(max(s_a, s_b) / s_o)
    out = clip(half_up(((a - z_a) * half_up(s_a / s_o * 2^n) + (b - z_b) * half_up(s_b / s_o * 2^n)) / 2^n) + z_o)

Source: docs/formats/fixed_arithmetic.md#fused-chains. Exact.
"""

from __future__ import annotations

from sgsdump.quantisation.integer.emitter import Emitter, Integers, Unrounded
from sgsdump.quantisation.integer.rounding import shift, step
from sgsdump.quantisation.integer.scaling import scaled
from sgsdump.tensors.tensor import Quant


def add(emit: Emitter, a: Integers, b: Integers, output: Quant, sign: int = 1) -> Unrounded:
    """a + b, or a - b with ``sign`` -1."""
    n = shift(max(step(a.quant), step(b.quant)) / step(output))
    terms = [scaled(emit, a, output, n), scaled(emit, b, output, n)]
    return Unrounded(emit.add("Add" if sign > 0 else "Sub", terms), output.zero_point)
