"""Pooling rules: a maximum is copied; an average is the sum over the window, divided and truncated toward zero.

Scale and zero point stay the input's. The divisor is the number of values of the window inside the input. Padding that
counts (Caffe's, which the SDK makes a PAD operator) holds the zero point. In ONNX no padding counts.
Source: docs/formats/fixed_arithmetic.md#moving-data. Exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.fixedpoint.quantisation.integer.emitter import (
    DOUBLE,
    FLOAT,
    REDUCES_BY_INPUT,
    S16_MAX,
    Call,
    Emitter,
    Integers,
    Rule,
    Unrounded,
    at_scale,
    half_up,
    ratio,
    shift,
    step,
)
from sgsdump.fixedpoint.quantisation.tensor_scales import INT16
from sgsdump.fixedpoint.quantisation.type_rules import is_average, reduced_axes
from sgsdump.fixedpoint.sdk.semantics import counts_padding, explicitly_padded
from sgsdump.models.graph import attribute

if TYPE_CHECKING:
    from onnx import NodeProto

# Below this sum, the average of integers times their count rounds to the exact sum.
EXACT_SUM = 2.0**21
BYTE = 256
SUM_BITS = 14
# Fraction of a position between two values: 15 bits.
FRACTION = 2.0**15
POSITION_SLACK = 1e-9


def _max_pool(call: Call) -> Integers:
    """Compute a MaxPool (values only) or GlobalMaxPool."""
    call, (value,) = replace(call, node=explicitly_padded(call.graph, call.node)), call.operands
    return Integers(_pooled(call, call.emit.floats(value)), FLOAT, value.quant)


def _average_pool(call: Call) -> Integers | None:
    """Compute an AveragePool; None if the sums exceed float32, or windows end beyond an input of unknown size."""
    call = replace(call, node=explicitly_padded(call.graph, call.node))
    emit, node, (value,) = call.emit, call.node, call.operands
    if call.output.dtype != INT16:  # values that continue as UINT8 are requantised first
        value = at_scale(emit, value, call.output)
    size = float(np.prod(attribute(node, "kernel_shape")))
    counted = counts_padding(call.graph, node)
    windows = windows_of(node, call.graph.shapes.get(node.input[0], ()), counted)
    if windows is None or size * BYTE >= EXACT_SUM:
        return None
    pads, counts = windows
    source = emit.floats(value)
    if counted:
        inner = list(attribute(node, "pads") or [0] * len(pads))
        source = _padded(emit, source, inner, value.quant.zero_point)
        pads = [outer - own for outer, own in zip(pads, inner, strict=True)]
    source = _padded(emit, source, pads, 0)
    if size * np.iinfo(value.quant.dtype).max < EXACT_SUM:  # type: ignore[type-var]
        total = _sum(call, source, size)
    else:
        # Two bytes, each of which float32 can sum exactly.
        byte = emit.constant(np.float32(BYTE))
        high = emit.add("Floor", [emit.add("Div", [source, byte])])
        low = emit.add("Sub", [source, emit.add("Mul", [high, byte])])
        high, low = (_sum(call, part, size) for part in (high, low))
        total = emit.add("Add", [emit.add("Mul", [high, emit.constant(np.float64(BYTE))]), low])
    return _divided(emit, total, emit.constant(counts), value)


def windows_of(node: NodeProto, shape: Sequence[int | None], counted: bool) -> tuple[list[int], np.ndarray] | None:
    """Return how far an AveragePool's windows extend beyond its input (begins, then ends), and the values per window.

    The counts are one number if all windows are equal. Returns None if the result depends on an unknown size.

    counted  padding counts.
    """
    kernel = list(attribute(node, "kernel_shape"))
    count = len(kernel)
    strides = list(attribute(node, "strides") or [1] * count)
    pads = list(attribute(node, "pads") or [0] * 2 * count)
    same = attribute(node, "auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID")
    up = bool(attribute(node, "ceil_mode", 0))
    if set(attribute(node, "dilations") or [1]) != {1}:
        return None
    if not same and not up and (counted or not any(pads)):
        return pads, np.array(np.prod(kernel), np.float64)
    sizes = [length for length in shape[2:] if length is not None]
    if same or len(shape) != count + 2 or len(sizes) != count:
        return None
    reach, counts = [0] * 2 * count, np.ones([1] * (count + 2))
    for axis, (length, size, stride) in enumerate(zip(sizes, kernel, strides, strict=True)):
        begin, end = pads[axis], pads[axis + count]
        beyond = length + begin + end - size
        number = (-(-beyond // stride) if up else beyond // stride) + 1
        if up and (number - 1) * stride >= length + begin:
            number -= 1  # a window that begins after the input does not exist
        starts = np.arange(number) * stride - begin
        lowest, highest = (-begin, length + end) if counted else (0, length)
        reach[axis], reach[axis + count] = begin, max(end, (number - 1) * stride + size - length - begin)
        inside = np.minimum(starts + size, highest) - np.maximum(starts, lowest)
        counts = counts * inside.reshape([-1 if i == axis + 2 else 1 for i in range(count + 2)])
    return reach, counts.astype(np.float64)


def _global_average_pool(call: Call) -> Integers:
    """Compute the average over all axes after the channels, for any rank."""
    emit, (value,) = call.emit, call.operands
    source = emit.doubles(value)
    shape = emit.add("Shape", [source])
    zero, two, one = (emit.constant(np.int64(number)) for number in (0, 2, 1))
    # onnxruntime's shape inference confuses Size(Shape(x)) with Size(x), and warns.
    rank = emit.add("Gather", [emit.add("Shape", [shape]), zero], axis=0)
    axes = emit.add("Range", [two, rank, one])
    sizes = emit.add("Gather", [shape, axes], axis=0)
    count = emit.cast(emit.add("ReduceProd", [sizes], keepdims=0), DOUBLE)
    return _divided(emit, emit.add("ReduceSum", [source, axes], keepdims=1), count, value)


def _mean(call: Call) -> Integers | None:
    """Compute a ReduceMean over both spatial axes like a global average pool; None for other axes."""
    if not is_average(call.graph, call.node):
        return None
    pooled = _global_average_pool(call)
    if attribute(call.node, "keepdims", 1):
        return pooled
    return replace(pooled, name=call.emit.add("Squeeze", [pooled.name, call.emit.constant(np.array([2, 3]))]))


def _maximum_along(call: Call) -> Integers | None:
    """Compute a ReduceMax, which copies values."""
    emit, node, (value,) = call.emit, call.node, call.operands
    axes = reduced_axes(call.graph, node, len(call.graph.shapes.get(node.input[0], ())))
    if axes is None:
        return None
    inputs, keepdims = [emit.floats(value)], attribute(node, "keepdims", 1)
    if emit.opset < REDUCES_BY_INPUT:
        return Integers(emit.add("ReduceMax", inputs, axes=list(axes), keepdims=keepdims), FLOAT, value.quant)
    inputs.append(emit.constant(np.array(axes, np.int64)))
    return Integers(emit.add("ReduceMax", inputs, keepdims=keepdims), FLOAT, value.quant)


def _sum_along(call: Call) -> Unrounded | None:
    """Compute a ReduceSum; the low bits of the sum are dropped first, like those of a product.

    P = max |range of out| / s;  h = floor(log2 P) - 14;  n = shift(s / s_o)
    out = clip(half_up(half_up(sum / 2^h) * half_up(s / s_o * 2^n) / 2^(n - h)))
    """
    emit, node, (value,), output = call.emit, call.node, call.operands, call.output
    axes = reduced_axes(call.graph, node, len(call.graph.shapes.get(node.input[0], ())))
    if axes is None or value.quant.zero_point:
        return None
    s = step(value.quant)
    largest = max(abs(call.range.low), abs(call.range.high)) / s
    h, n = int(np.floor(np.log2(largest or 1.0))) - SUM_BITS, shift(ratio(s, output))
    along = emit.constant(np.array(axes, np.int64))
    total = emit.add("ReduceSum", [emit.doubles(value), along], keepdims=attribute(node, "keepdims", 1))
    shortened = emit.add("Mul", [total, emit.constant(np.float64(2.0**-h))])
    whole = emit.add("Floor", [emit.add("Add", [shortened, emit.constant(np.float64(0.5))])])
    multiplier = float(half_up(ratio(s, output) * 2.0**n)) * 2.0 ** (h - n)
    return Unrounded(emit.add("Mul", [whole, emit.constant(np.float64(multiplier))]), output.zero_point)


def _interpolation(call: Call) -> Integers | Unrounded | None:
    """Compute a bilinear Resize of maps; None for another kind.

    Asymmetric: first along the rows, then along the columns. Aligned corners: all four neighbours at once, with 15-bit
    multipliers as weights, truncated to whole steps.
    """
    emit, node, (value,) = call.emit, call.node, call.operands
    before, after = (call.graph.shapes.get(name, ()) for name in (node.input[0], node.output[0]))
    if attribute(node, "mode", b"nearest") != b"linear" or len(before) != 4 or len(after) != 4:
        return None
    sizes = [(size, count) for size, count in zip(before, after, strict=True) if size is not None and count is not None]
    if len(sizes) != 4 or before[:2] != after[:2]:
        return None
    mode = attribute(node, "coordinate_transformation_mode", b"half_pixel")
    if mode not in (b"asymmetric", b"align_corners"):
        return None
    if value.quant.dtype != call.output.dtype:
        value = at_scale(emit, value, call.output)
    source = emit.doubles(value)
    if mode == b"align_corners":
        return Integers(_between_corners(emit, source, sizes[2:]), DOUBLE, value.quant)
    for axis in (3, 2):
        size, count = sizes[axis]
        source = _along_axis(emit, source, axis, size, np.arange(count) * (size / count))
    return Integers(source, DOUBLE, value.quant)


def _between_corners(emit: Emitter, source: str, sizes: Sequence[tuple[int, int]]) -> str:
    """Return floor(sum of w_i * q_i / 2^n), w_i = half_up(weight * 2^n), n = shift(largest weight) at each position.

    Positions and weights are rounded to float32, intermediate results are not.
    """
    parts = []
    for size, count in sizes:
        apart = np.float32(size - 1) / np.float32(max(count - 1, 1))
        place = np.arange(count, dtype=np.float32) * apart
        low = np.minimum(np.floor(place), size - 1)
        fraction = (place - low).astype(np.float64)
        parts.append(((low, 1 - fraction), (np.minimum(low + 1, size - 1), fraction)))
    pairs = [(rows, columns) for rows in parts[0] for columns in parts[1]]
    weights = np.stack([np.outer(row[1], column[1]) for row, column in pairs])
    weights = weights.astype(np.float32).astype(np.float64)
    bits = np.frexp(S16_MAX / weights.max(axis=0))[1] - 1
    weights = half_up(weights * 2.0**bits) / 2.0**bits
    total = ""
    for (row, column), weight in zip(pairs, weights, strict=True):
        taken = emit.add("Gather", [source, emit.constant(row[0].astype(np.int64))], axis=2)
        taken = emit.add("Gather", [taken, emit.constant(column[0].astype(np.int64))], axis=3)
        factor = emit.cast(emit.constant(weight.astype(np.float32)), DOUBLE)
        term = emit.add("Mul", [taken, factor])
        total = emit.add("Add", [total, term]) if total else term
    return emit.add("Floor", [total])


def _along_axis(emit: Emitter, source: str, axis: int, size: int, positions: np.ndarray) -> str:
    """Interpolate between neighbours along an axis with 15-bit fractions, rounded half up."""
    low = np.floor(positions + POSITION_SLACK)
    fraction = np.maximum(positions - low, 0)
    fraction = half_up(fraction * FRACTION) / FRACTION
    high = np.minimum(low + 1, size - 1)
    spread = [-1 if index == axis else 1 for index in range(4)]
    terms = [
        emit.add(
            "Mul",
            [
                emit.add("Gather", [source, emit.constant(index.astype(np.int64))], axis=axis),
                emit.constant(weight.reshape(spread)),
            ],
        )
        for index, weight in ((low, 1 - fraction), (high, fraction))
    ]
    total = emit.add("Add", terms)
    return emit.add("Floor", [emit.add("Add", [total, emit.constant(np.float64(0.5))])])


MAX_POOL, AVERAGE_POOL, GLOBAL_AVERAGE_POOL = Rule(_max_pool), Rule(_average_pool), Rule(_global_average_pool)
MEAN, MAXIMUM_ALONG, SUM_ALONG = Rule(_mean), Rule(_maximum_along), Rule(_sum_along)
INTERPOLATION = Rule(_interpolation)


def _padded(emit: Emitter, source: str, pads: list[int], fill: int) -> str:
    """Pad the spatial axes of float32 values with ``fill``; ``pads`` as of a convolution: begins, then ends."""
    if not any(pads):
        return source
    half = len(pads) // 2
    amounts = np.array([0, 0, *pads[:half], 0, 0, *pads[half:]], np.int64)
    return emit.add("Pad", [source, emit.constant(amounts), emit.constant(FLOAT.type(fill))])


def _sum(call: Call, source: str, count: float) -> str:
    """Return the exact sums of a pool's windows, as doubles."""
    emit, average = call.emit, _pooled(call, source, without=("pads", "ceil_mode", "count_include_pad", "auto_pad"))
    total = emit.add("Round", [emit.add("Mul", [average, emit.constant(np.float32(count))])])
    return emit.cast(total, DOUBLE)


def _pooled(call: Call, source: str, without: tuple[str, ...] = ()) -> str:
    node = call.node
    attributes = {item.name: attribute(node, item.name) for item in node.attribute if item.name not in without}
    return call.emit.add(node.op_type, [source], **attributes)


def _divided(emit: Emitter, total: str, count: str, value: Integers) -> Integers:
    """Divide and truncate toward zero."""
    mean = emit.add("Div", [total, count])
    if not np.iinfo(value.quant.dtype).min:  # type: ignore[type-var]
        return Integers(emit.add("Floor", [mean]), DOUBLE, value.quant)
    whole = emit.cast(mean, np.dtype(np.int32))
    return Integers(emit.cast(whole, DOUBLE), DOUBLE, value.quant)
