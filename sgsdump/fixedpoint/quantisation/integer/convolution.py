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

UINT8 results come by one float32 division where that is exact: see ``staircase``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sgsdump.fixedpoint.quantisation.analysis import GROUP_OUTPUT, of_groups
from sgsdump.fixedpoint.quantisation.integer.accumulator import Accumulator, Kernel, accumulate, kernel_of
from sgsdump.fixedpoint.quantisation.integer.emitter import (
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
from sgsdump.fixedpoint.quantisation.integer.staircase import divisors
from sgsdump.models.fixed_facts import StoredWeights
from sgsdump.models.graph import Graph, attribute
from sgsdump.models.scales import UINT8, joined
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
        divisor = divisors(numbers.mul, numbers.n - numbers.k)
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
    rounded = _half_away(emit, accumulator, numbers.k)
    if len(accumulator.shape) > 1 and np.any(numbers.k > 0):
        # One pass in place of two; onnxruntime merges it with a MatMul, but not with the rounding that is before it.
        # (A - mean) / sqrt(variance) * mul + 0.5, the mean -bias, the variance a power of four.
        halves, variances = (emit.constant(each) for each in (np.full(shifts.shape, 0.5), shifts**-2.0))
        mean = emit.add("Neg", [bias])
        line = emit.add("BatchNormalization", [rounded, mul, halves, mean, variances], epsilon=0.0)
        return Unrounded(line, halved=True)
    scale = emit.add("Mul", [mul, emit.constant(shifts if np.ptp(shifts) else shifts[0])])
    offset = emit.add("Mul", [bias, scale])
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
