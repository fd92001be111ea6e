"""Conversion of BatchNorm, LRN, SSD's Normalize, Softmax, Scale and Bias.

Scale and Bias apply a factor and an offset, learned or from a second bottom, broadcast over some of the axes. A learned
factor per channel is written as BatchNormalization (mean 0, variance 1, epsilon 0). The SDK's converter writes
BatchNorm and Scale, together or alone, as one MUL and one ADD:

y = x * gain + offset,   gain = gamma / sqrt(variance + epsilon),   offset = beta - mean * gain

Source: scale_layer.cpp, bias_layer.cpp.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sgsdump.models.caffe.layer_builder import LayerBuilder, Shape, Value
from sgsdump.models.caffe.schema import enum_label


class Affine(NamedTuple):
    """float64 gain and offset per channel; ``offset`` None means no offset."""

    gain: np.ndarray
    offset: np.ndarray | None


def batch_norm(builder: LayerBuilder) -> list[Value]:
    """Convert (x - mean) / sqrt(variance + eps) with accumulated statistics; blobs: mean, variance, divisor of both."""
    builder.expect(1)
    if builder.staged:
        return _multiplied_and_added(builder, builder.layer.name, *_normalisation(builder))
    names = ("scale", "bias", "mean", "variance")
    operands = [builder.constant(name, array) for name, array in zip(names, _statistics(builder))]
    epsilon = builder.message.batch_norm_param.eps
    return builder.top("BatchNormalization", builder.inputs[0], *operands, epsilon=epsilon)


def bn(builder: LayerBuilder) -> list[Value]:
    """Convert BN of forks: scale and shift with folded statistics (SegNet), or also mean and variance (PSPNet)."""
    builder.expect(1)
    if len(builder.shape) < 2:
        builder.fail(f"needs an input with channels, not {list(builder.shape)}")
    channels, folded = builder.shape[1], builder.blob_count() == 2
    names = ("scale", "bias", "mean", "variance")
    blobs = [builder.weight(i, (channels,), name) for i, name in enumerate(names[: 2 if folded else 4])]
    blobs += [np.zeros(channels, np.float32), np.ones(channels, np.float32)] if folded else []
    epsilon = 0.0 if folded else builder.message.bn_param.eps
    if builder.staged:
        return _multiplied_and_added(builder, builder.layer.name, *gain_and_offset(*blobs[:4], epsilon=epsilon))
    operands = [builder.constant(name, array) for name, array in zip(names, blobs)]
    return builder.top("BatchNormalization", builder.inputs[0], *operands, epsilon=epsilon)


def lrn(builder: LayerBuilder) -> list[Value]:
    builder.expect(1)
    param = builder.message.lrn_param
    if len(builder.shape) != 4 or param.local_size % 2 == 0:
        builder.fail(
            f"needs an N, C, H, W input and an odd local_size, not {list(builder.shape)} and {param.local_size}"
        )
    if enum_label(param, "norm_region") == "ACROSS_CHANNELS":
        sizes = {"size": param.local_size, "alpha": param.alpha, "beta": param.beta, "bias": param.k}
        return builder.top("LRN", builder.inputs[0], **sizes)
    squares = builder.node("Mul", builder.inputs[0], builder.inputs[0])
    side = (param.local_size - 1) // 2
    window: dict[str, Any] = {"kernel_shape": [param.local_size] * 2, "pads": [side] * 4, "strides": [1, 1]}
    mean = builder.node("AveragePool", squares, count_include_pad=1, **window)
    # Within a channel, Caffe uses k = 1 whatever the prototxt says.
    base = builder.node("Add", builder.node("Mul", mean, param.alpha), 1.0)
    return builder.top("Mul", builder.inputs[0], builder.node("Pow", base, -param.beta))


def normalize(builder: LayerBuilder) -> list[Value]:
    """Convert scale * x / sqrt(sum of squares + eps), over the channels or the whole sample."""
    builder.expect(1)
    param = builder.message.norm_param
    if len(builder.shape) != 4:
        builder.fail(f"needs an N, C, H, W input, not {list(builder.shape)}")
    channels = builder.shape[1]
    scale = builder.weight(0, () if param.channel_shared else (channels,), "scale")
    axes = [1, 2, 3] if param.across_spatial else [1]
    squares = builder.node("ReduceSumSquare", builder.inputs[0], axes=axes, keepdims=1)
    length = builder.node("Sqrt", builder.node("Add", squares, param.eps))
    unit = builder.node("Div", builder.inputs[0], length)
    scale = scale.reshape((-1, 1, 1)) if not param.channel_shared else scale
    return builder.top("Mul", unit, builder.constant("scale", scale))


def softmax(builder: LayerBuilder) -> list[Value]:
    builder.expect(1)
    axis = builder.axis(builder.message.softmax_param.axis)
    return builder.top("Softmax", builder.inputs[0], axis=axis)


def scale(builder: LayerBuilder) -> list[Value]:
    builder.expect(1, 2)
    param = builder.message.scale_param
    if len(builder.inputs) == 2:
        return _by_second_bottom(builder, param, "Mul", bias_blob=0 if param.bias_term else None)
    shape, axis = _covered(builder, param)
    factor = builder.weight(0, shape, "scale")
    offset = builder.weight(1, shape, "bias") if param.bias_term else np.zeros(shape, np.float32)
    if builder.staged and axis == 1 and len(shape) == 1:
        return _staged(builder, factor, offset if param.bias_term else None)
    if axis == 1 and len(shape) == 1 and len(builder.shape) > 1:
        constants = {"scale": factor, "bias": offset, "mean": np.zeros_like(factor), "variance": np.ones_like(factor)}
        operands = [builder.constant(name, array) for name, array in constants.items()]
        return builder.top("BatchNormalization", builder.inputs[0], *operands, epsilon=0.0)
    spread = _spread(builder, shape, axis)
    product = builder.node(
        "Mul",
        builder.inputs[0],
        builder.constant("scale", factor.reshape(spread)),
        to=None if param.bias_term else builder.tops[0],
    )
    if param.bias_term:
        builder.node("Add", product, builder.constant("bias", offset.reshape(spread)), to=builder.tops[0])
    return [Value(builder.tops[0], builder.shape)]


def bias(builder: LayerBuilder) -> list[Value]:
    builder.expect(1, 2)
    param = builder.message.bias_param
    if len(builder.inputs) == 2:
        return _by_second_bottom(builder, param, "Add", bias_blob=None)
    shape, axis = _covered(builder, param)
    offset = builder.weight(0, shape, "bias").reshape(_spread(builder, shape, axis))
    return builder.top("Add", builder.inputs[0], builder.constant("bias", offset))


def _normalisation(builder: LayerBuilder) -> Affine:
    """Return a BatchNorm layer as a gain and an offset per channel."""
    return gain_and_offset(*_statistics(builder), epsilon=builder.message.batch_norm_param.eps)


def _statistics(builder: LayerBuilder) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return scale, bias, mean and variance per channel."""
    param = builder.message.batch_norm_param
    if param.HasField("use_global_stats") and not param.use_global_stats:
        builder.fail("has use_global_stats: false, which is for training; delete the line or set true")
    channels = builder.shape[1] if len(builder.shape) > 1 else 1
    if len(builder.shape) < 2:
        builder.fail(f"needs an input with channels, not {list(builder.shape)}")
    total = float(builder.weight(2, (), "scale factor"))
    factor = 1 / total if total else 0.0
    mean, variance = (
        builder.weight(i, (channels,), what) * np.float32(factor) for i, what in enumerate(("mean", "variance"))
    )
    scale, bias = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    if param.scale_bias:
        scale, bias = builder.weight(3, (channels,), "scale"), builder.weight(4, (channels,), "bias")
    return scale, bias, mean, variance


def gain_and_offset(
    gamma: np.ndarray, beta: np.ndarray, mean: np.ndarray, variance: np.ndarray, *, epsilon: float
) -> Affine:
    """Return a batch normalisation as gain and offset.

    As in the SDK, variance + epsilon is a float32 sum, and all other operations are double precision.
    """
    spread = variance.astype(np.float32) + np.float32(epsilon)
    gain = gamma.astype(np.float64) / np.sqrt(spread.astype(np.float64))
    return Affine(gain, beta.astype(np.float64) - mean.astype(np.float64) * gain)


def _multiplied_and_added(builder: LayerBuilder, name: str, gain: np.ndarray, offset: np.ndarray | None) -> list[Value]:
    """Write ``NAME_scale`` and ``NAME_offset`` over the channels, the second axis of the input."""
    shape = (-1, *[1] * (len(builder.shape) - 2))
    top = builder.tops[0]
    factor = builder.named(f"{name}_scale", gain.astype(np.float32).reshape(shape))
    if offset is None:
        builder.node("Mul", builder.inputs[0], factor, to=top)
    else:
        product = builder.node("Mul", builder.inputs[0], factor, to=builder.product)
        builder.node("Add", product, builder.named(f"{name}_offset", offset.astype(np.float32).reshape(shape)), to=top)
    return [Value(top, builder.shape)]


def _staged(builder: LayerBuilder, factor: np.ndarray, offset: np.ndarray | None) -> list[Value]:
    if builder.joined is None:
        return _multiplied_and_added(builder, builder.layer.name, factor, offset)
    before = _normalisation(builder.joined)
    assert before.offset is not None, "a normalisation has one"
    scaled = before.offset * factor.astype(np.float64)
    summed = scaled if offset is None else scaled + offset.astype(np.float64)
    return _multiplied_and_added(builder, builder.joined.layer.name, before.gain * factor.astype(np.float64), summed)


def _by_second_bottom(builder: LayerBuilder, param: Any, op: str, bias_blob: int | None) -> list[Value]:
    second = builder.inputs[1].shape
    # A second bottom without axes is a scalar, whatever the axis.
    axis = builder.axis(param.axis) if second else 0
    # (N, C, 1, 1) over (N, C, H, W): not supported by Caffe, but used in SENets and accepted by the SDK.
    is_pooled = axis == 0 and second == (*builder.shape[:2], *[1] * (len(builder.shape) - 2))
    if not is_pooled and second != builder.shape[axis : axis + len(second)]:
        builder.fail(
            f"cannot broadcast an input of shape {list(second)} over {list(builder.shape)} from axis {axis} on"
        )
    spread = _spread(builder, second, axis)
    operand: Value | str = builder.inputs[1]
    if spread != second:
        operand = builder.node("Reshape", operand, spread)
    result = builder.node(op, builder.inputs[0], operand, to=builder.tops[0] if bias_blob is None else None)
    if bias_blob is not None:
        offset = builder.weight(bias_blob, second, "bias").reshape(spread)
        builder.node("Add", result, builder.constant("bias", offset), to=builder.tops[0])
    return [Value(builder.tops[0], builder.shape)]


def _covered(builder: LayerBuilder, param: Any) -> tuple[Shape, int]:
    """Return the shape of the learned values, and the input axis at which they begin."""
    if param.num_axes == 0:
        return (), 0
    axis = builder.axis(param.axis)
    end = len(builder.shape) if param.num_axes == -1 else axis + param.num_axes
    if param.num_axes < -1 or end > len(builder.shape):
        builder.fail(f"covers {param.num_axes} axes from axis {axis} on, but its input is {list(builder.shape)}")
    return builder.shape[axis:end], axis


def _spread(builder: LayerBuilder, shape: Shape, axis: int) -> Shape:
    """Append ones to ``shape`` so that it broadcasts over the input from ``axis`` on."""
    return (*shape, *[1] * (len(builder.shape) - axis - len(shape))) if shape else ()
