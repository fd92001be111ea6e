"""Convolution, depthwise convolution, transposed convolution, fully connected: accumulator, bias, multiplier.

    A   = half_away(acc / 2^K)                                for K <= 16
          half_away(floor(acc / 2^(K - 16)) / 2^16)           for K > 16 (16-bit inputs only)
    out = clip(half_up((A + bias_c) * mul_c * 2^(K - n)))     not below the zero point where a ReLU is fused in

The numbers, per output channel:

    s_c  = f32(s_in) * f32(s_w,c)             M_c = s_c / f32(s_out)
    n    = floor(log2(32767 / max M_c))       mul_c = half_up(M_c * 2^n)
    Z_c  = z_in * sum w_c                     B_c = b_c / s_c - Z_c + z_out / M_c
    L    = max over c of |B_c|, |(min_c - b_c) / s_c + Z_c|, |(max_c - b_c) / s_c + Z_c|
    K    = ceil(log2 L) - 13                  bias_c = half_away(B_c / 2^K)

min_c and max_c are the calibrated range of output channel c before its activation (tensor_chn.txt). K and n are
common to a layer, or to each group of a convolution with groups, which the hardware computes one after the other.
Source: docs/formats/fixed_arithmetic.md#convolution. Exact: every integer of every convolution seen.

UINT8 results come by one float32 division where that is exact: QuantizeLinear divides, rounds half to even, saturates
and stores in one pass over float32, which takes less time than the rule written out in doubles. With P = A + bias_c
whole and m_c = mul_c * 2^(K - n), the rule is out = clip(half_up(P * m_c)): a staircase that rises to k at P = T_k.
Another monotone staircase is the same if it has k or more at T_k and less at T_k - 1, for k = 1 to 255. Per channel
the float32 numbers next to 1 / m_c are tried until one has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sgsdump.models.graph import Graph, attribute
from sgsdump.quantisation.analysis import GROUP_OUTPUT, of_groups
from sgsdump.quantisation.fixed_facts import StoredWeights
from sgsdump.quantisation.integer.accumulator import Accumulator, Kernel, accumulate, kernel_of
from sgsdump.quantisation.integer.emitter import (
    DOUBLE,
    FLOAT,
    Call,
    Emitter,
    Integers,
    Rule,
    StoredConvolution,
    Unrounded,
    half_away,
    half_up,
    log2_ceiling,
    shift,
    step,
    steps,
    store_weight,
)
from sgsdump.quantisation.scales import UINT8, joined
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range

if TYPE_CHECKING:
    from onnx import NodeProto

BIAS_BITS = 13
FLOOR_BITS = 16
# Multiplied by 1 + e, a tie lies past the middle, away from zero, and rounding half to even takes it there; nothing
# else moves past a tie as long as |acc| * e is less than one.
FLOAT_TIES = 1 - 2.0**-22
FLOAT_TIES_BELOW = 3.3e6
DOUBLE_TIES = 1 + 2.0**-44
# How many float32 numbers on either side of 1 / m_c are tried, and the largest shift of m_c for which they are.
NEIGHBOURS = 24
MOST_BITS = 40


def _convolution(call: Call) -> Integers | Unrounded | None:
    """None where the weights are not quantised, for a fully connected operator whose matrix is not a plain one, and
    where its bias is not one constant for each output channel, or for all."""
    emit, graph, node, weighting = call.emit, call.graph, call.node, call.weighting
    if weighting is None:
        return None
    (value,), name = call.operands, node.output[0]
    integers = store_weight(graph.value(node.input[1]), weighting.quant)
    kernel = kernel_of(node, emit.named(node.input[1], str(weighting.quant.dtype)), integers)
    if kernel is None or not _has_plain_bias(graph, node, kernel):
        return None
    if len(graph.consumers[node.input[1]]) > 1:
        kernel = replace(kernel, name=f"{kernel.name}:{name}")
    sums = kernel.sums()
    groups = 1 if kernel.depthwise or kernel.op_type == "ConvTranspose" else kernel.group
    parts = joined(weighting.channels, of_groups(GROUP_OUTPUT, node)) if groups > 1 else None
    channels = weighting.channels.get(name) or parts or weighting.whole
    quants = Quants(value.quant, weighting.quant, call.output)
    numbers = requantisation(sums, _bias(graph, node, sums.size), channels, quants, groups)
    emit.constant(kernel.values, kernel.name)
    rows = emit.constant(np.stack([numbers.bias, numbers.mul]), emit.named(name, "rows"))
    outcome = convolve(emit, value, kernel, numbers, rows, weighting.stored)
    bias = node.input[2] if len(node.input) > 2 and node.input[2] else f"{name}_bias"
    weighting.keep(StoredConvolution(kernel.name, StoredWeights.of(node.input[1], weighting.quant), rows, bias))
    return Integers(outcome, UINT8, call.output) if isinstance(outcome, str) else outcome


CONVOLUTION = Rule(_convolution)


class Quants(NamedTuple):
    """Of a convolution's input, weights and output."""

    source: Quant
    weights: Quant
    output: Quant


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
    sums: np.ndarray, bias: np.ndarray, channels: Range, quants: Quants, groups: int = 1
) -> Requantisation:
    """The numbers of one convolution.

    sums      sum of each output channel's stored weights (int64, C values).
    bias      float bias (C values); channels: range of each output channel before the activation (1 or C values).
    groups    that K and n are found for one by one: 1 for a depthwise convolution.
    """
    count = sums.size
    s = step(quants.source) * steps(quants.weights, count)
    m = s / step(quants.output)
    zero = quants.source.zero_point * sums.astype(np.float64)
    b = bias.astype(np.float64) / s - zero + quants.output.zero_point / m
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
            return _divided(emit, accumulator, numbers, rows, divisor, stored)
    return _requantised(emit, accumulator, numbers, rows)


def _divided(
    emit: Emitter, accumulator: Accumulator, numbers: Requantisation, rows: str, divisor: np.ndarray, stored: str
) -> str:
    """(A + bias) / divisor, rounded and saturated."""
    rounded = _rounded_floats(emit, accumulator, numbers.k)
    bias = emit.add("Gather", [emit.cast(rows, FLOAT), emit.constant(np.int64(0))], axis=0)
    bias = emit.add("Reshape", [bias, emit.constant(np.array(accumulator.shape, np.int64))])
    zero = emit.constant(np.zeros(divisor.shape, np.uint8))
    total = emit.add("Add", [rounded, bias])
    return emit.add("QuantizeLinear", [total, emit.constant(divisor), zero], stored, axis=1)


def _requantised(emit: Emitter, accumulator: Accumulator, numbers: Requantisation, rows: str) -> Unrounded:
    """(A + bias) * mul * 2^(K - n), as A * scale + bias * scale."""
    wide = emit.cast(rows, DOUBLE)
    bias, mul = (emit.add("Gather", [wide, emit.constant(np.int64(row))], axis=0) for row in (0, 1))
    shifts = 2.0 ** (numbers.k - numbers.n)
    scale = emit.add("Mul", [mul, emit.constant(shifts if np.ptp(shifts) else shifts[0])])
    offset = emit.add("Mul", [bias, scale])
    rounded = _half_away(emit, accumulator, numbers.k)
    if len(accumulator.shape) > 1 and np.any(numbers.k > 0):
        # One pass in place of two; onnxruntime merges it with a MatMul, but not with the rounding that is before it.
        zeros, ones = (emit.constant(fill(numbers.k.shape)) for fill in (np.zeros, np.ones))
        offset = emit.add("Add", [offset, emit.constant(np.float64(0.5))])
        line = emit.add("BatchNormalization", [rounded, scale, offset, zeros, ones], epsilon=0.0)
        return Unrounded(line, halved=True)
    along = emit.constant(np.array(accumulator.shape, np.int64))
    scale, offset = (emit.add("Reshape", [name, along]) for name in (scale, offset))
    return Unrounded(emit.add("Mul", [rounded, scale]), offset)


def _half_away(emit: Emitter, accumulator: Accumulator, k: np.ndarray) -> str:
    """Whole doubles: an accumulator over 2^K, of which 2^max(K - 16, 0) is taken off already, rounded."""
    if _in_floats(accumulator, k):
        return emit.cast(_rounded_floats(emit, accumulator, k), DOUBLE)
    name, divisor = accumulator.name, _along(2.0 ** np.minimum(k, FLOOR_BITS), accumulator.shape)
    name = name if accumulator.dtype == DOUBLE else emit.cast(name, DOUBLE)
    if np.any(k > FLOOR_BITS):
        name = emit.add("Floor", [name])
    if not np.any(k > 0):
        return emit.add("Mul", [name, emit.constant(1 / divisor)]) if np.any(k) else name
    return emit.add("Round", [emit.add("Mul", [name, emit.constant(DOUBLE_TIES / divisor)])])


def _in_floats(accumulator: Accumulator, k: np.ndarray) -> bool:
    """Whether float32 rounds the accumulator over 2^K right."""
    small = accumulator.largest < FLOAT_TIES_BELOW and np.all(k <= FLOOR_BITS)
    return bool(accumulator.dtype == FLOAT and small and np.all(k > 0))


def _rounded_floats(emit: Emitter, accumulator: Accumulator, k: np.ndarray) -> str:
    ties = _along(2.0**k * FLOAT_TIES, accumulator.shape).astype(np.float32)
    return emit.add("Round", [emit.add("Div", [accumulator.name, emit.constant(ties)])])


def _along(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """One value per channel, or one for all."""
    return values.reshape(shape) if np.ptp(values) else values[0]


def divisors(numbers: Requantisation) -> np.ndarray | None:
    """One float32 divisor per output channel; None where no number near 1 / m_c gives the rule's integers."""
    shifts = (numbers.n - numbers.k).astype(np.int64)
    mul = numbers.mul.astype(np.int64)
    if np.any(shifts < 1) or np.any(shifts > MOST_BITS) or np.any(mul < 1):
        return None
    levels = np.arange(1, 256, dtype=np.int64)
    # P * mul >= (k - 1/2) * 2^shifts, in whole numbers.
    rise = -((-(2 * levels - 1)[None] << (shifts - 1)[:, None]) // mul[:, None])
    if rise.max() >= 2**24:
        return None
    at, below = rise.astype(np.float32), (rise - 1).astype(np.float32)
    exact = 2.0**shifts / mul
    quotients, unsolved = exact.astype(np.float32), np.ones(mul.size, bool)
    for away in sorted(range(-NEIGHBOURS, NEIGHBOURS + 1), key=abs):
        tried = _neighbour(exact.astype(np.float32)[unsolved], away)[:, None]
        good = (np.rint(at[unsolved] / tried) >= levels).all(axis=1) & (np.rint(below[unsolved] / tried) < levels).all(
            axis=1
        )
        solved = np.flatnonzero(unsolved)[good]
        quotients[solved] = tried[good, 0]
        unsolved[solved] = False
        if not unsolved.any():
            return quotients
    return None


def _neighbour(values: np.ndarray, away: int) -> np.ndarray:
    """The float32 numbers so many further on (all positive)."""
    return (values.view(np.int32) + np.int32(away)).view(np.float32)


def _has_plain_bias(graph: Graph, node: NodeProto, kernel: Kernel) -> bool:
    """Whether a bias, where there is one, is the same for every row that a fully connected operator is given."""
    if len(node.input) < 3 or not node.input[2]:
        return True
    if node.input[2] not in graph.constants:
        return False
    dims = graph.constants[node.input[2]].dims
    return math.prod(dims) in (1, *dims[-1:]) and math.prod(dims) in (1, kernel.sums().size)


def _bias(graph: Graph, node: NodeProto, count: int) -> np.ndarray:
    if len(node.input) < 3 or not node.input[2]:
        return np.zeros(count)
    factor = attribute(node, "beta", 1.0) if node.op_type == "Gemm" else 1.0
    bias = graph.value(node.input[2]).astype(np.float64).reshape(-1) * factor
    return np.broadcast_to(bias, (count,))
