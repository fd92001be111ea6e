"""Functions of one tensor as tables, and Softmax.

The hardware draws Sigmoid, TanH and the exponential as straight lines between the knots of two tables each.

    t       = q * half_up(s * 2^n) / 2^n,  n = shift(s)                       the input in fixed point
    V(t)    = half_up(a + (b - a) * f)     a, b: the knots on either side, stored as half_away(function / step)
                                           f: the position between them, truncated to 15 bits
    table          |t|        knots every    step of the stored values
    sigmoid - 1/2  0 to 2     1/128          (sigmoid(2) - 1/2) / 32767, then rescaled to 1/65534
                   2 to 6     1/16           1/65534
                   from 6     -              1/65534, a line that rises by 8 steps per unit of t
    tanh           0 to 2     1/128          tanh(2) / 32767
                   2 to 6     1/16           1/32767
    exp(-t)        0 to 2     1/32           1/32767
                   2 to 10    1/32           exp(-2) / 32767, then rescaled to 1/32767
                   from 10    -              exp(-2) / 32767, a line from 11 steps at 10 to 0 at 11

Rescaling uses a 15-bit multiplier, half up. Sigmoid and TanH are odd about their centre and drawn for |t|. The
exponential is drawn from -t, so that f counts from the smaller value.

    sigmoid -> out:  n = shift(M), M = (1 / 65534) / s_o;  T = half_up(V * half_up(M * 2^n) / 2^(n-1))
                     out = clip(half_up((T + half_up(2 * 0.5 / s_o)) / 2) + z_o)
    tanh -> out:     V rescaled directly from its table's step to s_16 = max(|lo|, |hi|) / 32767 of the output's range;
                     a UINT8 output is requantised from there, as after a ReLU

Exp of x from lo to hi, its calibration range: counted from the top, in steps that reach at least 10.

    s' = max(hi - lo, 10) / 32767;  n = shift(s / s')
    T  = half_up(q * half_up(s / s' * 2^n) / 2^(n-1));  d = half_up((T - half_away(2 * f32(hi / s'))) / 2)
    out = E(t), t = -d * half_up(s' * 2^m) / 2^m,  m = shift(s');  rescaled from exp(hi) / 32767 if s_o differs

The input of a Sigmoid or TanH inside a fused chain has a range that reaches at least 6 (``Rule.reach``).

Softmax runs over the SDK's axis (``sdk.semantics``): the exponential, and the reciprocal of its sum in 15 bits.

    d = max(q - max(q), -32767);   t = -d * half_up(s * 2^n) / 2^n,  n = shift(s);   E = exponential(t)
    j = max(floor(log2(sum E)) - 15, 0);   R = floor(2^(30 + j) / sum E)
    out = min(32767, half_up(E * R / 2^(15 + j)))                                             scale 1/32768

Exact on every integer of the probes. t_sig: 327 680 Sigmoids in three ranges up to -20 and 131 072 TanHs; i_sig: 8 192
Sigmoids, 4 096 UINT8 TanHs; Exp: eight sweeps of 65 536 values each; softmax: t_soft2 of 2, 3 and 21 classes, t up to
20, n_soft of 10 classes, h_fc. The slopes of the lines beyond the tables are measured; why they are 8 and 11 is
unknown. Not seen: a TanH beyond 6 (1 here) and a UINT8 Sigmoid (treated like TanH's). The integers of a Softmax have
steps of 1/32768, but readers use the steps of the Softmax's range (sc2, sc9). A chip that multiplies them is off by
that ratio.

Any other function is its float32 value rounded half up: the ideal, not a rule of the hardware.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from onnx import NodeProto

from sgsdump.executors.onnx_runtime.repeated_graph import WholeGraph
from sgsdump.fixedpoint.quantisation.integer.emitter import (
    DOUBLE,
    REACH,
    S16_MAX,
    SIGMOID_RISE,
    SIGMOID_STEP,
    Call,
    Emitter,
    Integers,
    Rule,
    Unrounded,
    half_away,
    half_up,
    limits,
    ratio,
    reach,
    requantise,
    shift,
    step,
)
from sgsdump.fixedpoint.quantisation.tensor_scales import INT16, SOFTMAX_QUANT, int16_quant
from sgsdump.fixedpoint.sdk.semantics import softmax_rows
from sgsdump.models.graph import Graph
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range

Function = Callable[[np.ndarray], np.ndarray]

TURN = 2.0  # the boundary between the first and the second table
FRACTION = 2.0**15
EXP_END = 10.0
# Scales closer than this are the same scale: from the range as text, and from the original range.
ONE_STEP = 1e-4
EXP_FALL = 11
SUM_BITS = 15
RECIPROCAL_BITS = 30


def _sigmoid(call: Call) -> Integers:
    source, output = call.operands[0].quant, call.output
    return look_up(call, lambda q: sigmoid(q, source, output, call.range))


def _tanh(call: Call) -> Integers:
    source, output = call.operands[0].quant, call.output
    return look_up(call, lambda q: tanh(q, source, output, call.range))


def _exp(call: Call) -> Integers:
    source, output, bounds = call.operands[0].quant, call.output, call.source or reach(call.operands[0].quant)
    return look_up(call, lambda q: exp(q, source, output, bounds))


def _softmax(call: Call) -> Unrounded:
    emit, (value,) = call.emit, call.operands
    axis, shape = softmax_rows(call.graph, call.node)
    if shape is None:
        computed = _exact_softmax(emit, value, axis)
    else:
        rows = emit.add("Reshape", [value.name, emit.constant(np.array(shape, np.int64))])
        computed = _exact_softmax(emit, replace(value, name=rows), axis)
        computed = replace(computed, name=emit.add("Reshape", [computed.name, emit.add("Shape", [value.name])]))
    if call.output == SOFTMAX_QUANT:
        return computed
    return requantise(call.emit, call.emit.inner(computed, SOFTMAX_QUANT), call.output)


def _function(call: Call) -> Integers | None:
    """Compute a function of one tensor; None if an output depends on several values of the first input."""
    first, *others = call.node.input
    constants = call.graph.constants
    sizes = [math.prod(constants[name].dims) if name in constants else 0 for name in others if name]
    if first in constants or any(size != 1 for size in sizes):
        return None
    function = _ideal(_function_of(call.node, call.graph), call.operands[0].quant, call.output)
    return look_up(_broadcast(call), function)


SIGMOID, TANH, SOFTMAX = Rule(_sigmoid, reach=REACH), Rule(_tanh, reach=REACH), Rule(_softmax)
EXP = Rule(_exp)
FUNCTION = Rule(_function, approximate="a table with ideal rounding")


def sigmoid(q: np.ndarray, input_: Quant, output: Quant, bounds: Range) -> np.ndarray:
    """Return stored outputs, not clipped, of stored inputs without zero point; ``bounds``: the output's range."""
    wide = output if output.dtype == INT16 else int16_quant(bounds.low, bounds.high)
    value = _centred_sigmoid(fixed_point(q, input_))
    times = ratio(SIGMOID_STEP, wide)
    n = shift(times)
    doubled = half_up(value * half_up(times * 2.0**n) / 2.0 ** (n - 1)) + half_up(ratio(1.0, wide))
    return _put_out(half_up(doubled / 2), wide, output)


def tanh(q: np.ndarray, input_: Quant, output: Quant, bounds: Range) -> np.ndarray:
    """Return stored outputs, not clipped, of stored inputs without zero point; ``bounds``: the output's range."""
    wide = output if output.dtype == INT16 else int16_quant(bounds.low, bounds.high)
    t = fixed_point(q, input_)
    size = np.abs(t)
    top = float(np.tanh(TURN)) / S16_MAX
    near = rescaled(np.sign(t) * line(lambda x: np.tanh(x) / top, size, 1 / 128), ratio(top, wide))
    far = rescaled(np.sign(t) * line(lambda x: np.tanh(x) * S16_MAX, size, 1 / 16), ratio(1 / S16_MAX, wide))
    return _put_out(np.where(size < TURN, near, far), wide, output)


def exp(q: np.ndarray, input_: Quant, output: Quant, bounds: Range) -> np.ndarray:
    """Return stored outputs, not clipped, of stored inputs without zero point; ``bounds``: the input's range."""
    lowered = int16_quant(0.0, max(bounds.high - bounds.low, EXP_END))
    times = ratio(step(input_), lowered)
    n = shift(times)
    doubled = half_up(q * half_up(times * 2.0**n) / 2.0 ** (n - 1))
    top = half_away(2 * float(np.float32(bounds.high) / np.float32(step(lowered))))
    below = np.clip(half_up((doubled - top) / 2), -S16_MAX, 0)
    value = exponential(fixed_point(-below, lowered))
    wide = int16_quant(0.0, float(np.exp(bounds.high)))
    same = output.dtype == INT16 and abs(step(output) / step(wide) - 1) < ONE_STEP
    return value if same else rescaled(value, ratio(step(wide), output)) + output.zero_point


def exponential(t: np.ndarray) -> np.ndarray:
    """Return exp(-t) in steps of 1/32767, for t >= 0 in fixed point."""
    top = float(np.exp(-TURN))
    near = line(lambda x: S16_MAX * np.exp(x), -t, 1 / 32)
    far = line(lambda x: S16_MAX / top * np.exp(x), -t, 1 / 32)
    beyond = np.maximum(half_up(EXP_FALL * (EXP_END + 1 - t)), 0)
    return np.where(t < TURN, near, rescaled(np.where(t < EXP_END, far, beyond), top))


def fixed_point(q: np.ndarray, quant: Quant) -> np.ndarray:
    """Return the real values of integers without zero point, by the 15-bit multiplier of their scale."""
    n = shift(step(quant))
    return q * (float(half_up(step(quant) * 2.0**n)) * 2.0**-n)


def line(function: Function, x: np.ndarray, width: float) -> np.ndarray:
    """Interpolate ``function`` linearly between multiples of ``width``; its knots and the result are integers."""
    position = x / width
    index = np.floor(position)
    fraction = np.floor((position - index) * FRACTION) / FRACTION
    low, high = half_away(function(index * width)), half_away(function((index + 1) * width))
    return half_up(low + (high - low) * fraction)


def rescaled(value: np.ndarray, times: float) -> np.ndarray:
    """Return half_up(value * half_up(times * 2^n) / 2^n), n = shift(times)."""
    n = shift(times)
    return half_up(value * half_up(times * 2.0**n) / 2.0**n)


def _centred_sigmoid(t: np.ndarray) -> np.ndarray:
    """Return sigmoid(t) - 1/2 in steps of 1/65534."""
    size = np.abs(t)
    top = (1 / (1 + float(np.exp(-TURN))) - 0.5) / S16_MAX

    def centred(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x)) - 0.5

    near = rescaled(np.sign(t) * line(lambda x: centred(x) / top, size, 1 / 128), top / SIGMOID_STEP)
    far = line(lambda x: centred(x) / SIGMOID_STEP, size, 1 / 16)
    end = half_away(centred(np.array(REACH)) / SIGMOID_STEP)
    beyond = np.minimum(half_up(end + SIGMOID_RISE * (size - REACH)), S16_MAX)
    return np.where(size < TURN, near, np.sign(t) * np.where(size < REACH, far, beyond))


def _put_out(value: np.ndarray, wide: Quant, output: Quant) -> np.ndarray:
    if wide is output:
        return value
    return rescaled(np.clip(value, -S16_MAX, S16_MAX), ratio(step(wide), output)) + output.zero_point


def look_up(call: Call, function: Function) -> Integers:
    """Return the stored output; ``function`` maps stored inputs without their zero point to stored outputs."""
    emit, (value,), output = call.emit, call.operands, call.output
    assert value.quant.dtype is not None and output.dtype is not None
    low, high = (int(end) for end in (np.iinfo(value.quant.dtype).min, np.iinfo(value.quant.dtype).max))
    stored = function((np.arange(low, high + 1) - value.quant.zero_point).astype(np.float64))
    values = np.clip(np.nan_to_num(stored), *limits(output)).astype(output.dtype)
    index = emit.cast(value.name, np.dtype(np.int32))
    if low:
        index = emit.add("Sub", [index, emit.constant(np.int32(low))])
    name = emit.stored(call.name)
    return Integers(emit.add("Gather", [emit.constant(values), index], name, axis=0), output.dtype, output)


def _ideal(function: Function, source: Quant, output: Quant) -> Function:
    """Turn a function of real values (float32 -> float32) into one of stored values, rounded half up."""

    def stored(q: np.ndarray) -> np.ndarray:
        real = function(q.astype(np.float32) * np.float32(step(source)))
        return half_up(real.astype(np.float64) / step(output)) + output.zero_point

    return stored


def _function_of(node: NodeProto, graph: Graph) -> Function:
    """Return a node as a function of its first input, computed by onnxruntime."""
    from onnx import TensorProto, helper

    kind, opset = TensorProto.FLOAT, list(graph.proto.opset_import)
    ends = [helper.make_tensor_value_info(name, kind, None) for name in (node.input[0], node.output[0])]
    constants = [graph.constants[name] for name in node.input[1:] if name]
    single = helper.make_graph([node], "function", ends[:1], ends[1:], constants)
    session = WholeGraph(helper.make_model(single, opset_imports=opset, ir_version=8), 1)
    # A constant of one element may have more dimensions, and so has the result.
    return lambda values: session.run({node.input[0]: values}, [node.output[0]])[node.output[0]].reshape(values.shape)


def _broadcast(call: Call) -> Call:
    """Expand the operand to as many dimensions as the node's one-element constants have."""
    rank = max((len(call.graph.constants[name].dims) for name in call.node.input[1:] if name), default=0)
    if not rank:
        return call
    ones = call.emit.constant(np.ones(rank, np.int64))
    (value,) = call.operands
    return replace(call, operands=(replace(value, name=call.emit.add("Expand", [value.name, ones])),))


def _exact_softmax(emit: Emitter, value: Integers, axis: int) -> Unrounded:
    q = emit.cast(value.name, np.dtype(np.int32))
    below = emit.add("Sub", [emit.largest(q, axis), q])
    table = exponentials(value.quant)
    e = emit.cast(emit.add("Gather", [emit.constant(table), below], axis=0), DOUBLE)
    total = emit.add("ReduceSum", [e, emit.constant(np.array([axis]))], keepdims=1)
    # At a power of two both values of j give the same product, so the logarithm may be an ulp off.
    bits = emit.add("Mul", [emit.add("Log", [total]), emit.constant(np.float64(1 / np.log(2)))])
    extra = emit.add("Sub", [emit.add("Floor", [bits]), emit.constant(np.float64(SUM_BITS))])
    power = emit.add("Pow", [emit.constant(np.float64(2)), emit.add("Max", [extra, emit.constant(np.float64(0))])])
    one = emit.add("Mul", [power, emit.constant(np.float64(2.0**RECIPROCAL_BITS))])
    reciprocal = emit.add("Floor", [emit.add("Div", [one, total])])
    unit = emit.add("Mul", [power, emit.constant(np.float64(2.0**SUM_BITS))])
    return Unrounded(emit.add("Mul", [e, emit.add("Div", [reciprocal, unit])]))


def exponentials(quant: Quant) -> np.ndarray:
    """Return E for every distance below the largest input (int16); a distance has 16 bits too."""
    distances = np.minimum(np.arange(2 * S16_MAX + 1), S16_MAX)
    return exponential(fixed_point(distances, quant)).astype(np.int16)
