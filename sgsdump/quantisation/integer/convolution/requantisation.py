"""How a convolution's accumulator becomes its output: a bias, a multiplier and two shifts per output channel.

    s_c  = f32(s_in) * f32(s_w,c)             M_c = s_c / f32(s_out)
    n    = floor(log2(32767 / max M_c))       mul_c = half_up(M_c * 2^n)
    Z_c  = z_in * sum w_c                     B_c = b_c / s_c - Z_c + z_out / M_c
    L    = max over c of |B_c|, |(min_c - b_c) / s_c + Z_c|, |(max_c - b_c) / s_c + Z_c|
    K    = ceil(log2 L) - 13                  bias_c = half_away(B_c / 2^K)
    out  = clip(half_up((half_away(acc / 2^K) + bias_c) * mul_c * 2^(K - n)))

min_c and max_c are the calibrated range of output channel c before its activation (tensor_chn.txt). K and n are
common to a layer, or to each group of a convolution with groups, which the hardware computes one after the other.
Source: docs/formats/fixed_arithmetic.md#convolution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sgsdump.quantisation.integer.rounding import half_away, half_up, log2_ceiling, shift, step, steps
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range

BIAS_BITS = 13


@dataclass(frozen=True, eq=False)
class Requantisation:
    """Arrays of one value per output channel: ``bias`` and ``mul`` are int16 (the two rows of the bias tensor in a
    dump), ``k`` and ``n`` the shifts, ``zero`` the sum that the input's zero point adds to the accumulator (Z_c)."""

    bias: np.ndarray
    mul: np.ndarray
    k: np.ndarray
    n: np.ndarray
    zero: np.ndarray


def requantisation(
    sums: np.ndarray,
    bias: np.ndarray,
    channels: Range,
    input_: Quant,
    weights: Quant,
    output: Quant,
    groups: int = 1,
) -> Requantisation:
    """The numbers of one convolution.

    sums      sum of each output channel's stored weights (int64, C values).
    bias      float bias (C values); channels: range of each output channel before the activation (1 or C values).
    groups    that K and n are found for one by one: 1 for a depthwise convolution.
    """
    count = sums.size
    s = step(input_) * steps(weights, count)
    m = s / step(output)
    zero = input_.zero_point * sums.astype(np.float64)
    b = bias.astype(np.float64) / s - zero + output.zero_point / m
    low, high = (
        np.broadcast_to(ends.astype(np.float32).astype(np.float64), (count,)) for ends in (channels.min, channels.max)
    )
    reach = np.max(np.abs([b, (low - bias) / s + zero, (high - bias) / s + zero]), axis=0)
    size = count // groups
    k, n = np.empty(count), np.empty(count)
    for start in range(0, count, size):
        part = slice(start, start + size)
        k[part] = log2_ceiling(float(reach[part].max())) - BIAS_BITS
        n[part] = shift(float(m[part].max()))
    return Requantisation(half_away(b / 2.0**k).astype(np.int16), half_up(m * 2.0**n).astype(np.int16), k, n, zero)
