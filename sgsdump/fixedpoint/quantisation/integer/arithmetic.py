"""Elementwise rules: Add, Sub, Mul, Max, and the ReLUs.

Add: 15-bit multipliers bring both operands to the output's step.

    n   = shift(max(s_a, s_b) / s_o)
    out = clip(half_up(((a - z_a) * half_up(s_a / s_o * 2^n) + (b - z_b) * half_up(s_b / s_o * 2^n)) / 2^n) + z_o)

Mul: the low bits of the product are dropped first, so that 15 bits remain; a and b are without their zero points.

    s = s_a * s_b;   P = max |range of out| / s;   h = ceil(log2 P) - 14;   n = shift(s / s_o)
    out = clip(half_up(half_up(a * b / 2^h) * half_up(s / s_o * 2^n) / 2^(n - h)) + z_o)

Mul and Add by a constant, one value or one per channel: a BatchNorm or Scale that no convolution absorbs.

    mul:  M_c = f32(f32(s_a / s_o) * c);  n = shift(max |M_c|)
          out = clip(half_up((a - z_a) * half_away(M_c * 2^n) / 2^n) + z_o)
    add:  n = shift(s_a / s_o);  T = half_up((a - z_a) * half_up(s_a / s_o * 2^n) / 2^(n-1))
          out = clip(half_up((T + half_away(2 * f32(c / s_o))) / 2) + z_o)

The constants stay float; they have no scale of their own. The converter stores a 16-bit multiplier for a factor and a
32-bit addend for a sum. During an addition, values have one bit more than the output. Requantisation is this Mul with
c = 1. A constant as large as the other operand is an operand: see ``walk``. Exact: every integer of the probe o_bn,
after a convolution and after a max pool, and of the public networks listed in tests/golden/README.md. If M_c * 2^n or
2 * c / s_o is within 0.001 of a half, the float32 value decides. This explains all 12 such factors and 3 such addends;
no other order of the two operations does.

ReLU, leaky ReLU and PReLU of 16-bit values use one multiplier for each side of zero.

    M = s_a / s_16;   n = shift(M)                      q >= 0: half_up(q * half_up(M * 2^n) / 2^n)
    k = shift(M * max slope)                            q <  0: half_up(q * half_up(M * slope_c * 2^k) / 2^k)

s_16 = max(|lo|, |hi|) / 32767 of the operator's output range. A UINT8 output is requantised from there; so is a ReLU
that is a separate operator. A ReLU directly after a convolution is only the convolution's lower limit.

Source: docs/formats/fixed_arithmetic.md#fused-chains. Exact.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sgsdump.fixedpoint.quantisation.integer.emitter import (
    DOUBLE,
    Call,
    Emitter,
    Integers,
    Rule,
    Unrounded,
    centred,
    half_away,
    half_up,
    log2_ceiling,
    multiplier,
    ratio,
    requantise,
    rising,
    shift,
    step,
)
from sgsdump.fixedpoint.quantisation.tensor_scales import INT16, int16_quant
from sgsdump.models.graph import attribute
from sgsdump.tensors.tensor import Quant

PRODUCT_BITS = 14


def _add(call: Call, sign: int = 1) -> Unrounded:
    """Return a + b, or a - b with ``sign`` -1."""
    if call.constant is not None:
        return add_to(call.emit, call.operands[0], sign * call.constant, call.output, _channels(call))
    (a, b), output = call.operands, call.output
    n = shift(ratio(max(step(a.quant), step(b.quant)), output))
    terms, plus = [], float(output.zero_point)
    for operand, side in ((a, 1), (b, sign)):
        times = float(half_up(ratio(step(operand.quant), output) * 2.0**n)) * 2.0**-n
        terms.append(call.emit.line(call.emit.doubles(operand), np.array(times), np.zeros(())))
        plus -= side * times * operand.quant.zero_point
    return Unrounded(call.emit.add("Add" if sign > 0 else "Sub", terms), plus)


def _subtract(call: Call) -> Unrounded:
    return _add(call, -1)


def _multiply(call: Call) -> Unrounded:
    emit, output = call.emit, call.output
    if call.constant is not None:
        return multiply_by(emit, call.operands[0], call.constant, output, _channels(call))
    a, b = call.operands
    s = step(a.quant) * step(b.quant)
    h = log2_ceiling(max(abs(call.range.low), abs(call.range.high)) / s) - PRODUCT_BITS
    n = shift(ratio(s, output))
    product = emit.add("Mul", [centred(emit, a), centred(emit, b)])
    shortened = emit.add("Mul", [product, emit.constant(np.float64(2.0**-h))])
    half = emit.add("Add", [shortened, emit.constant(np.float64(0.5))])
    times = float(half_up(ratio(s, output) * 2.0**n)) * 2.0 ** (h - n)
    return Unrounded(emit.add("Floor", [half]), output.zero_point, times, whole=True)


def _maximum(call: Call) -> Unrounded:
    """Return the maximum; operands share one scale, and a constant is brought to it first."""
    emit, output = call.emit, call.output
    operands = [a if a.quant == output else emit.inner(requantise(emit, a, output), output) for a in call.operands]
    return Unrounded(emit.add("Max", [emit.doubles(operand) for operand in operands]))


def _absolute(call: Call) -> Integers | Unrounded:
    """Return the magnitude at the scale of the operand, with which it shares a range, then requantised."""
    (value,) = call.operands
    quant = replace(value.quant, zero_point=0)
    magnitude = Integers(call.emit.add("Abs", [centred(call.emit, value)]), DOUBLE, quant)
    return magnitude if quant == call.output else requantise(call.emit, magnitude, call.output)


def _threshold(call: Call) -> Integers:
    """Return 1 where a value reaches the threshold, else 0, at the value's own scale.

    A real 1 is one step in the fixed model.
    """
    emit, (value,) = call.emit, call.operands
    limit = call.graph.value(call.node.input[1]).astype(np.float64) / step(value.quant)
    below = emit.add("Less", [centred(emit, value), emit.constant(half_up(limit))])
    return Integers(emit.cast(emit.add("Not", [below]), DOUBLE), DOUBLE, replace(value.quant, zero_point=0))


def _relu(call: Call) -> Unrounded:
    return relu(call, 0.0)


def _clip(call: Call) -> Integers | Unrounded | None:
    """Return a ReLU6 as ReLU with a higher limit; None for other limits, which use a table."""
    ends = [
        float(call.graph.value(name).reshape(-1)[0]) if name in call.graph.constants else np.nan
        for name in call.node.input[1:3]
    ]
    if len(ends) < 2 or ends[0] != 0 or not ends[1] > 0:
        return None
    outcome = relu(call, 0.0)
    highest = float(half_up(ends[1] / step(call.output))) + call.output.zero_point
    return replace(outcome, highest=min(outcome.highest, highest))


def _leaky_relu(call: Call) -> Unrounded:
    return relu(call, attribute(call.node, "alpha", 0.01))


def _prelu(call: Call) -> Unrounded | None:
    slope = call.graph.value(call.node.input[1]).astype(np.float64)
    return relu(call, slope) if np.isfinite(slope).all() else None


ADD = Rule(_add, operands=2, constants=(0, 1))
SUBTRACT = Rule(_subtract, operands=2, constants=(1,))
MULTIPLY = Rule(_multiply, operands=2, constants=(0, 1))
THRESHOLD = Rule(_threshold)
MAXIMUM = Rule(_maximum, operands=None)
ABSOLUTE = Rule(_absolute)
RELU, CLIP, LEAKY_RELU, PRELU = Rule(_relu), Rule(_clip), Rule(_leaky_relu), Rule(_prelu)


def _channels(call: Call) -> int:
    """Return the channels that a constant of one value per channel or for all is broadcast over; otherwise 0."""
    constant, graph = call.constant, call.graph
    shape = next((graph.shapes.get(name, ()) for name in call.node.input if name not in graph.constants), ())
    if constant is None or len(shape) < 3 or shape[1] is None or constant.ndim > len(shape):
        return 0
    along = (1, shape[1], *[1] * (len(shape) - 2))
    return shape[1] if constant.size == 1 or (1,) * (len(shape) - constant.ndim) + constant.shape == along else 0


def multiply_by(emit: Emitter, value: Integers, factor: np.ndarray, output: Quant, channels: int = 0) -> Unrounded:
    """Return value * factor; ``factor`` broadcasts over the value, ``channels``: see ``Unrounded``."""
    single = np.float32(value.quant.scale) / np.float32(output.scale)
    times = (single * np.asarray(factor, np.float32)).astype(np.float64)
    n = shift(float(np.abs(times).max()) or 1.0)
    multipliers = half_away(times * 2.0**n) * 2.0**-n
    return Unrounded(value.name, output.zero_point, multipliers, value.quant.zero_point, value.dtype, channels=channels)


def add_to(emit: Emitter, value: Integers, addend: np.ndarray, output: Quant, channels: int = 0) -> Unrounded:
    """Return value + addend; ``addend`` broadcasts over the value, ``channels``: see ``Unrounded``.

    T = half_up(x) is not computed, because for an integer c half_up((half_up(x) + c) / 2) = half_up((x + c + 1/2) / 2).
    """
    with np.errstate(over="ignore"):  # masks hold the lowest float and infinity: the sum saturates
        addend = half_away(2 * (np.asarray(addend, np.float32) / np.float32(output.scale)).astype(np.float64))
    plus = (addend + 0.5) / 2 + output.zero_point
    times = multiplier(ratio(step(value.quant), output))
    return Unrounded(value.name, plus, times, value.quant.zero_point, value.dtype, channels=channels)


def relu(call: Call, slope: np.ndarray | float) -> Unrounded:
    """Return max(q, 0) + slope * min(q, 0); ``slope`` is one value, or shaped per channel."""
    emit, value, output = call.emit, call.operands[0], call.output
    if output.dtype == INT16:
        return _sides(emit, value, output, slope)
    wide = int16_quant(call.range.low, call.range.high)
    return requantise(emit, emit.inner(_sides(emit, value, wide, slope), wide), output)


def _sides(emit: Emitter, value: Integers, output: Quant, slope: np.ndarray | float) -> Unrounded:
    times = step(value.quant) / step(output)  # in double precision, unlike the others (MobileNetV2-YOLOv3-Nano at L2)
    above, largest = multiplier(times), float(np.abs(slope).max())
    if not largest:
        outcome = rising(emit, value, above)
        return replace(outcome, lowest=max(outcome.lowest, 0.0))
    q, zero = centred(emit, value), emit.constant(np.float64(0))
    positive = emit.add("Mul", [emit.add("Max", [q, zero]), emit.constant(np.float64(above))])
    k = shift(times * largest)
    below = half_up(times * np.asarray(slope, np.float64) * 2.0**k) * 2.0**-k
    negative = emit.add("Mul", [emit.add("Min", [q, zero]), emit.constant(below)])
    return Unrounded(emit.add("Add", [positive, negative]))
