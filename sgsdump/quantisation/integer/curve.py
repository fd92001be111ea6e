"""Sigmoid, TanH and the exponential as the hardware draws them: straight lines between the knots of two tables each.

    t       = q * half_up(s * 2^n) / 2^n,  n = shift(s)                       the input in fixed point
    V(t)    = half_up(a + (b - a) * f)     a, b: the knots on either side, stored as half_away(function / step)
                                           f: the place between them, cut to 15 bits
    table          |t|        knots every    step of what it holds
    sigmoid - 1/2  0 to 2     1/128          (sigmoid(2) - 1/2) / 32767, then rescaled to 1/65534
                   2 to 6     1/16           1/65534
                   from 6     -              1/65534, a line that rises by 8 steps per unit of t
    tanh           0 to 2     1/128          tanh(2) / 32767
                   2 to 6     1/16           1/32767
    exp(-t)        0 to 2     1/32           1/32767
                   2 to 10    1/32           exp(-2) / 32767, then rescaled to 1/32767
                   from 10    -              exp(-2) / 32767, a line from 11 steps at 10 to 0 at 11

Rescaling is by a 15-bit multiplier, half up. Sigmoid and TanH are odd about their centre: they are drawn for |t|, the
exponential is drawn from -t, so that f counts from the smaller value.

    sigmoid -> out:  n = shift(M), M = (1 / 65534) / s_o;  T = half_up(V * half_up(M * 2^n) / 2^(n-1))
                     out = clip(half_up((T + half_up(2 * 0.5 / s_o)) / 2) + z_o)
    tanh -> out:     V rescaled straight from its table's step to s_16 = max(|lo|, |hi|) / 32767 of the output's range;
                     a UINT8 output takes one more requantisation from there, as after a ReLU

What goes into a Sigmoid or TanH from inside a fused chain has a range that reaches 6 at least (``REACH``).

Exact on every integer of the probes (t_sig: 327 680 Sigmoids in three ranges up to -20 and 131 072 TanHs; i_sig: 8 192
Sigmoids, 4 096 UINT8 TanHs; softmax: see ``softmax``). The slopes of the lines beyond the tables are what was measured;
why they are 8 and 11 is unknown. Not seen: a TanH beyond 6 (it is 1 here), a Sigmoid put out as UINT8 (done as TanH's).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sgsdump.quantisation.integer.rounding import S16_MAX, half_away, half_up, shift, step
from sgsdump.quantisation.scales import INT16, int16_quant
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range

Function = Callable[[np.ndarray], np.ndarray]

REACH = 6.0
TURN = 2.0  # where the first table ends and the second begins
FRACTION = 2.0**15
SIGMOID_STEP = 0.5 / S16_MAX
SIGMOID_RISE = 8
EXP_END = 10.0
EXP_FALL = 11


def sigmoid(q: np.ndarray, input_: Quant, output: Quant, bounds: Range) -> np.ndarray:
    """Stored outputs, not clipped, of stored inputs without their zero point; ``bounds``: the output's range."""
    wide = output if output.dtype == INT16 else int16_quant(bounds.low, bounds.high)
    value = _centred_sigmoid(fixed_point(q, input_))
    ratio = SIGMOID_STEP / step(wide)
    n = shift(ratio)
    doubled = half_up(value * half_up(ratio * 2.0**n) / 2.0 ** (n - 1)) + half_up(2 * 0.5 / step(wide))
    return _put_out(half_up(doubled / 2), wide, output)


def tanh(q: np.ndarray, input_: Quant, output: Quant, bounds: Range) -> np.ndarray:
    """Stored outputs, not clipped, of stored inputs without their zero point; ``bounds``: the output's range."""
    wide = output if output.dtype == INT16 else int16_quant(bounds.low, bounds.high)
    t = fixed_point(q, input_)
    size = np.abs(t)
    top = float(np.tanh(TURN)) / S16_MAX
    near = rescaled(np.sign(t) * line(lambda x: np.tanh(x) / top, size, 1 / 128), top / step(wide))
    far = rescaled(np.sign(t) * line(lambda x: np.tanh(x) * S16_MAX, size, 1 / 16), 1 / S16_MAX / step(wide))
    return _put_out(np.where(size < TURN, near, far), wide, output)


def exponential(t: np.ndarray) -> np.ndarray:
    """exp(-t) in steps of 1/32767, for t >= 0 in fixed point."""
    top = float(np.exp(-TURN))
    near = line(lambda x: S16_MAX * np.exp(x), -t, 1 / 32)
    far = line(lambda x: S16_MAX / top * np.exp(x), -t, 1 / 32)
    beyond = np.maximum(half_up(EXP_FALL * (EXP_END + 1 - t)), 0)
    return np.where(t < TURN, near, rescaled(np.where(t < EXP_END, far, beyond), top))


CURVES: dict[str, Callable[[np.ndarray, Quant, Quant, Range], np.ndarray]] = {"Sigmoid": sigmoid, "Tanh": tanh}


def fixed_point(q: np.ndarray, quant: Quant) -> np.ndarray:
    """The real values of integers whose zero point is off, by the 15-bit multiplier of their scale."""
    n = shift(step(quant))
    return q * (float(half_up(step(quant) * 2.0**n)) * 2.0**-n)


def line(function: Function, x: np.ndarray, width: float) -> np.ndarray:
    """The straight lines between ``function`` at the multiples of ``width``, its knots and the result whole."""
    place = x / width
    index = np.floor(place)
    fraction = np.floor((place - index) * FRACTION) / FRACTION
    low, high = half_away(function(index * width)), half_away(function((index + 1) * width))
    return half_up(low + (high - low) * fraction)


def rescaled(value: np.ndarray, ratio: float) -> np.ndarray:
    """half_up(value * half_up(ratio * 2^n) / 2^n), n = shift(ratio)."""
    n = shift(ratio)
    return half_up(value * half_up(ratio * 2.0**n) / 2.0**n)


def _centred_sigmoid(t: np.ndarray) -> np.ndarray:
    """sigmoid(t) - 1/2 in steps of 1/65534."""
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
    return rescaled(np.clip(value, -S16_MAX, S16_MAX), step(wide) / step(output)) + output.zero_point
