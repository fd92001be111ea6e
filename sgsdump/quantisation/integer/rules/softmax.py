"""Softmax: an exponential from a table, its sum's reciprocal in 15 bits.

    d = q - max(q);   t = -d * half_up(s * 2^n) / 2^n,  n = shift(s);   E = exponential(t), see ``curve``
    j = max(floor(log2(sum E)) - 15, 0);   R = floor(2^(30 + j) / sum E)
    out = min(32767, half_up(E * R / 2^(15 + j)))                                             scale 1/32768

Exact: every integer of the probes t_soft2 (2, 3 and 21 classes, t up to 20), n_soft (10 classes) and h_fc. An output of
another scale, as in front of a convolution, takes one more requantisation from there; no probe has one.
"""

from __future__ import annotations

import numpy as np

from sgsdump.quantisation.integer.curve import exponential, fixed_point
from sgsdump.quantisation.integer.emitter import DOUBLE, Emitter, Integers, Unrounded
from sgsdump.quantisation.integer.rounding import S16_MAX
from sgsdump.quantisation.integer.scaling import requantise
from sgsdump.quantisation.scales import INT16
from sgsdump.tensors.tensor import Quant

SUM_BITS = 15
RECIPROCAL_BITS = 30
OUTPUT = Quant(INT16, 1 / 32768, 0, exact=True)


def softmax(emit: Emitter, value: Integers, output: Quant, axis: int) -> Unrounded:
    """Along ``axis``."""
    computed = _softmax(emit, value, axis)
    return computed if output == OUTPUT else requantise(emit, emit.inner(computed, OUTPUT), output)


def _softmax(emit: Emitter, value: Integers, axis: int) -> Unrounded:
    q = emit.cast(value.name, np.dtype(np.int32))
    below = emit.add("Sub", [emit.largest(q, axis), q])
    table = exponentials(value.quant)
    e = emit.cast(emit.add("Gather", [emit.constant(table), below], axis=0), DOUBLE)
    total = emit.add("ReduceSum", [e, emit.constant(np.array([axis]))], keepdims=1)
    # At a power of two either j gives the same product, so that the logarithm may be an ulp off.
    bits = emit.add("Mul", [emit.add("Log", [total]), emit.constant(np.float64(1 / np.log(2)))])
    extra = emit.add("Sub", [emit.add("Floor", [bits]), emit.constant(np.float64(SUM_BITS))])
    power = emit.add("Pow", [emit.constant(np.float64(2)), emit.add("Max", [extra, emit.constant(np.float64(0))])])
    one = emit.add("Mul", [power, emit.constant(np.float64(2.0**RECIPROCAL_BITS))])
    reciprocal = emit.add("Floor", [emit.add("Div", [one, total])])
    unit = emit.add("Mul", [power, emit.constant(np.float64(2.0**SUM_BITS))])
    return Unrounded(emit.add("Mul", [e, emit.add("Div", [reciprocal, unit])]))


def exponentials(quant: Quant) -> np.ndarray:
    """E for every distance below the largest input (int16)."""
    return exponential(fixed_point(np.arange(2 * S16_MAX + 1), quant)).astype(np.int16)
