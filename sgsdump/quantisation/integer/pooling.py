"""Pooling: the maximum is copied, the average is the sum over the window divided and truncated toward zero.

Scale and zero point stay the input's; padding holds the zero point and is counted (the SDK makes it a PAD operator).
Source: docs/formats/fixed_arithmetic.md#moving-data. Exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sgsdump.models.graph import attribute
from sgsdump.quantisation.integer.emitter import DOUBLE, FLOAT, Emitter, Integers
from sgsdump.quantisation.integer.moving import padded

if TYPE_CHECKING:
    from onnx import NodeProto

# The average of whole numbers times their count is within rounding of their sum as long as the sum is below this.
EXACT_SUM = 2.0**21
BYTE = 256


def max_pool(emit: Emitter, value: Integers, node: NodeProto) -> Integers:
    """MaxPool (its values alone) or GlobalMaxPool."""
    return Integers(_pooled(emit, node, emit.floats(value)), FLOAT, value.quant)


def average_pool(emit: Emitter, value: Integers, node: NodeProto) -> Integers | None:
    """AveragePool that counts its padding; None where it does not, or where the sums do not fit float32."""
    count = float(np.prod(attribute(node, "kernel_shape")))
    pads = list(attribute(node, "pads", ()))
    same = attribute(node, "auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID")
    if (any(pads) and not attribute(node, "count_include_pad", 0)) or attribute(node, "ceil_mode", 0) or same:
        return None
    if count * BYTE >= EXACT_SUM:
        return None
    source = padded(emit, value, pads) if any(pads) else emit.floats(value)
    if count * np.iinfo(value.quant.dtype).max < EXACT_SUM:  # type: ignore[type-var]
        total = _sum(emit, node, source, count)
    else:
        # Two bytes, each of which float32 can sum.
        byte = emit.constant(np.float32(BYTE))
        high = emit.add("Floor", [emit.add("Div", [source, byte])])
        low = emit.add("Sub", [source, emit.add("Mul", [high, byte])])
        high, low = (_sum(emit, node, part, count) for part in (high, low))
        total = emit.add("Add", [emit.add("Mul", [high, emit.constant(np.float64(BYTE))]), low])
    return _divided(emit, total, emit.constant(np.float64(count)), value)


def _sum(emit: Emitter, node: NodeProto, source: str, count: float) -> str:
    """The exact sums of a pool's windows, as doubles."""
    average = _pooled(emit, node, source, without=("pads",))
    total = emit.add("Round", [emit.add("Mul", [average, emit.constant(np.float32(count))])])
    return emit.cast(total, DOUBLE)


def _pooled(emit: Emitter, node: NodeProto, source: str, without: tuple[str, ...] = ()) -> str:
    attributes = {item.name: attribute(node, item.name) for item in node.attribute if item.name not in without}
    return emit.add(node.op_type, [source], **attributes)


def global_average_pool(emit: Emitter, value: Integers) -> Integers:
    """The average over everything behind the channels, of any rank."""
    source = emit.doubles(value)
    shape = emit.add("Shape", [source])
    zero, two, one = (emit.constant(np.int64(number)) for number in (0, 2, 1))
    # onnxruntime's shape inference takes Size(Shape(x)) for Size(x), and warns.
    rank = emit.add("Gather", [emit.add("Shape", [shape]), zero], axis=0)
    axes = emit.add("Range", [two, rank, one])
    sizes = emit.add("Gather", [shape, axes], axis=0)
    count = emit.cast(emit.add("ReduceProd", [sizes], keepdims=0), DOUBLE)
    return _divided(emit, emit.add("ReduceSum", [source, axes], keepdims=1), count, value)


def _divided(emit: Emitter, total: str, count: str, value: Integers) -> Integers:
    """Truncated toward zero: ceil below it, floor above."""
    mean = emit.add("Div", [total, count])
    if not np.iinfo(value.quant.dtype).min:  # type: ignore[type-var]
        return Integers(emit.add("Floor", [mean]), DOUBLE, value.quant)
    whole = emit.cast(mean, np.dtype(np.int32))
    return Integers(emit.cast(whole, DOUBLE), DOUBLE, value.quant)
