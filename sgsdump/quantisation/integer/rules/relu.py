"""ReLU, leaky ReLU and PReLU of 16-bit values: a multiplier for each side of zero.

    M = s_a / s_16;   n = shift(M)                      q >= 0: half_up(q * half_up(M * 2^n) / 2^n)
    k = shift(M * max slope)                            q <  0: half_up(q * half_up(M * slope_c * 2^k) / 2^k)

s_16 = max(|lo|, |hi|) / 32767 of the operator's output range; a UINT8 output takes one more requantisation from there.
So does one that is an operator of its own. A ReLU directly behind a convolution is only the convolution's lower limit.
Source: docs/formats/fixed_arithmetic.md#fused-chains. Exact.
"""

from __future__ import annotations

import numpy as np

from sgsdump.quantisation.integer.emitter import Emitter, Integers, Unrounded
from sgsdump.quantisation.integer.rounding import half_up, shift, step
from sgsdump.quantisation.integer.scaling import centred, requantise
from sgsdump.quantisation.scales import INT16, int16_quant
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range


def relu(emit: Emitter, value: Integers, output: Quant, bounds: Range, slope: np.ndarray | float = 0.0) -> Unrounded:
    """max(q, 0) + slope * min(q, 0); ``slope``: one value, or shaped per channel; ``bounds``: the output's range."""
    if output.dtype == INT16:
        return _sides(emit, value, output, slope)
    wide = int16_quant(bounds.low, bounds.high)
    return requantise(emit, emit.inner(_sides(emit, value, wide, slope), wide), output)


def _sides(emit: Emitter, value: Integers, output: Quant, slope: np.ndarray | float) -> Unrounded:
    ratio = step(value.quant) / step(output)
    q, zero = centred(emit, value), emit.constant(np.float64(0))
    n = shift(ratio)
    above = float(half_up(ratio * 2.0**n)) * 2.0**-n
    positive = emit.add("Mul", [emit.add("Max", [q, zero]), emit.constant(np.float64(above))])
    largest = float(np.abs(slope).max())
    if not largest:
        return Unrounded(positive)
    k = shift(ratio * largest)
    below = half_up(ratio * np.asarray(slope, np.float64) * 2.0**k) * 2.0**-k
    negative = emit.add("Mul", [emit.add("Min", [q, zero]), emit.constant(below)])
    return Unrounded(emit.add("Add", [positive, negative]))
