"""Pooling: the maximum is copied, the average is the sum over the window divided and truncated toward zero.

Scale and zero point stay the input's; padding holds the zero point and is counted (the SDK makes it a PAD operator).
Source: docs/formats/fixed_arithmetic.md#moving-data. Exact.
"""

from __future__ import annotations

import numpy as np

from sgsdump.models.graph import attribute
from sgsdump.quantisation.integer.emitter import DOUBLE, FLOAT, Call, Emitter, Integers, Rule, at_scale
from sgsdump.quantisation.scales import INT16

# The average of whole numbers times their count is within rounding of their sum as long as the sum is below this.
EXACT_SUM = 2.0**21
BYTE = 256


def _max_pool(call: Call) -> Integers:
    """MaxPool (its values alone) or GlobalMaxPool."""
    (value,) = call.operands
    return Integers(_pooled(call, call.emit.floats(value)), FLOAT, value.quant)


def _average_pool(call: Call) -> Integers | None:
    """AveragePool that counts its padding; None where it does not, or where the sums do not fit float32."""
    emit, node, (value,) = call.emit, call.node, call.operands
    if call.output.dtype != INT16:  # what goes on as UINT8 is brought there first
        value = at_scale(emit, value, call.output)
    count = float(np.prod(attribute(node, "kernel_shape")))
    pads = list(attribute(node, "pads", ()))
    same = attribute(node, "auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID")
    if (any(pads) and not attribute(node, "count_include_pad", 0)) or attribute(node, "ceil_mode", 0) or same:
        return None
    if count * BYTE >= EXACT_SUM:
        return None
    source = _padded(emit, value, pads) if any(pads) else emit.floats(value)
    if count * np.iinfo(value.quant.dtype).max < EXACT_SUM:  # type: ignore[type-var]
        total = _sum(call, source, count)
    else:
        # Two bytes, each of which float32 can sum.
        byte = emit.constant(np.float32(BYTE))
        high = emit.add("Floor", [emit.add("Div", [source, byte])])
        low = emit.add("Sub", [source, emit.add("Mul", [high, byte])])
        high, low = (_sum(call, part, count) for part in (high, low))
        total = emit.add("Add", [emit.add("Mul", [high, emit.constant(np.float64(BYTE))]), low])
    return _divided(emit, total, emit.constant(np.float64(count)), value)


def _global_average_pool(call: Call) -> Integers:
    """The average over everything after the channels, of any rank."""
    emit, (value,) = call.emit, call.operands
    source = emit.doubles(value)
    shape = emit.add("Shape", [source])
    zero, two, one = (emit.constant(np.int64(number)) for number in (0, 2, 1))
    # onnxruntime's shape inference takes Size(Shape(x)) for Size(x), and warns.
    rank = emit.add("Gather", [emit.add("Shape", [shape]), zero], axis=0)
    axes = emit.add("Range", [two, rank, one])
    sizes = emit.add("Gather", [shape, axes], axis=0)
    count = emit.cast(emit.add("ReduceProd", [sizes], keepdims=0), DOUBLE)
    return _divided(emit, emit.add("ReduceSum", [source, axes], keepdims=1), count, value)


MAX_POOL, AVERAGE_POOL, GLOBAL_AVERAGE_POOL = Rule(_max_pool), Rule(_average_pool), Rule(_global_average_pool)


def _padded(emit: Emitter, value: Integers, pads: list[int]) -> str:
    """float32 with the zero point around the spatial axes; ``pads`` as a convolution's: begins, then ends."""
    half = len(pads) // 2
    amounts = np.array([0, 0, *pads[:half], 0, 0, *pads[half:]], np.int64)
    source, zero_point = emit.floats(value), FLOAT.type(value.quant.zero_point)
    return emit.add("Pad", [source, emit.constant(amounts), emit.constant(zero_point)])


def _sum(call: Call, source: str, count: float) -> str:
    """The exact sums of a pool's windows, as doubles."""
    emit, average = call.emit, _pooled(call, source, without=("pads",))
    total = emit.add("Round", [emit.add("Mul", [average, emit.constant(np.float32(count))])])
    return emit.cast(total, DOUBLE)


def _pooled(call: Call, source: str, without: tuple[str, ...] = ()) -> str:
    node = call.node
    attributes = {item.name: attribute(node, item.name) for item in node.attribute if item.name not in without}
    return call.emit.add(node.op_type, [source], **attributes)


def _divided(emit: Emitter, total: str, count: str, value: Integers) -> Integers:
    """Truncated toward zero: ceil below it, floor above."""
    mean = emit.add("Div", [total, count])
    if not np.iinfo(value.quant.dtype).min:  # type: ignore[type-var]
        return Integers(emit.add("Floor", [mean]), DOUBLE, value.quant)
    whole = emit.cast(mean, np.dtype(np.int32))
    return Integers(emit.cast(whole, DOUBLE), DOUBLE, value.quant)
