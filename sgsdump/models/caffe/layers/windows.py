"""Conversion of Convolution, Deconvolution, InnerProduct (base_conv_layer.cpp) and Pooling (pooling_layer.cpp).

Pooling follows Caffe's own rules for output size and AVE divisor. The output size is rounded up, then reduced so that
the last window starts inside the padded image. AVE divides by the part of the window inside the *padded* image: padding
counts, but the area added by rounding up does not.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from sgsdump.models.caffe.layer_builder import FLOAT, LayerBuilder, Shape, Value
from sgsdump.models.caffe.schema import enum_label


class Axis(NamedTuple):
    """One spatial axis: sizes of the input and the window, and derived values."""

    size: int
    kernel: int
    stride: int
    pad: int
    out: int

    @property
    def beyond(self) -> int:
        """Distance that the last window extends beyond the input."""
        return max(0, (self.out - 1) * self.stride + self.kernel - self.size - self.pad)


def pooling(builder: LayerBuilder) -> list[Value]:
    param = builder.message.pooling_param
    kind = enum_label(param, "pool")
    builder.expect(1, tops=2 if kind == "MAX" and len(builder.tops) == 2 else 1)
    if len(builder.shape) != 4:
        builder.fail(f"needs an N, C, H, W input, not {list(builder.shape)}")
    if kind == "STOCHASTIC":
        builder.fail("is STOCHASTIC pooling, which is not supported; use MAX or AVE")
    if param.global_pooling and len(builder.tops) == 1:
        return _global(builder, kind)
    rows, columns = _axes(builder)
    shape = (*builder.shape[:2], rows.out, columns.out)
    if kind == "AVE":
        return [Value(_average(builder, rows, columns), shape)]
    pads = [rows.pad, columns.pad, rows.beyond, columns.beyond]
    return _maximum(builder, rows, columns, pads, shape)


def pooled_size(size: int, kernel: int, stride: int, pad: int, padded: bool, up: bool = True) -> int:
    """Return Caffe's output size along one axis; ``padded``: either axis has padding; ``up`` False rounds down."""
    steps = size + 2 * pad - kernel
    # Caffe rounds a float up to an int, which gives the same result for image sizes.
    out = (-(-steps // stride) if up else steps // stride) + 1
    if padded and (out - 1) * stride >= size + pad:
        out -= 1
    return out


def _global(builder: LayerBuilder, kind: str) -> list[Value]:
    param = builder.message.pooling_param
    if any(param.HasField(name) for name in ("kernel_size", "kernel_h", "kernel_w")):
        builder.fail("has global_pooling and a kernel; Caffe allows only one of them")
    op = "GlobalAveragePool" if kind == "AVE" else "GlobalMaxPool"
    return builder.top(op, builder.inputs[0], shape=(*builder.shape[:2], 1, 1))


def _axes(builder: LayerBuilder) -> tuple[Axis, Axis]:
    param = builder.message.pooling_param
    kernel = builder.shape[2:] if param.global_pooling else _pair(builder, "kernel", "kernel_size")
    stride, pad = _pair(builder, "stride", "stride"), _pair(builder, "pad", "pad")
    up = param.ceil_mode and enum_label(param, "round_mode") == "CEIL"
    if not all((*kernel, *stride)):
        builder.fail("needs a kernel and a stride of 1 or more")
    if any(p >= k for p, k in zip(pad, kernel)) and any(pad):
        builder.fail(f"has padding {list(pad)} that is not smaller than its kernel {list(kernel)}")
    rows, columns = (
        Axis(n, k, s, p, pooled_size(n, k, s, p, any(pad), up))
        for n, k, s, p in zip(builder.shape[2:], kernel, stride, pad)
    )
    for axis in (rows, columns):
        if axis.out < 1 or (axis.out - 1) * axis.stride - axis.pad >= axis.size:
            builder.fail(f"has a window outside its input {list(builder.shape)}; check kernel and stride")
    return rows, columns


def _pair(builder: LayerBuilder, pair: str, both: str) -> tuple[int, int]:
    param = builder.message.pooling_param
    if not (param.HasField(f"{pair}_h") or param.HasField(f"{pair}_w")):
        return getattr(param, both), getattr(param, both)
    if param.HasField(both):
        builder.fail(f"gives {both} and {pair}_h, {pair}_w; Caffe allows only one of them")
    return getattr(param, f"{pair}_h"), getattr(param, f"{pair}_w")


def _average(builder: LayerBuilder, rows: Axis, columns: Axis) -> str:
    attributes = _window(rows, columns)
    beyond = [rows.beyond, columns.beyond]
    if rows.beyond <= rows.pad and columns.beyond <= columns.pad:
        pads = [rows.pad, columns.pad, *beyond]
        return builder.node(
            "AveragePool", builder.inputs[0], to=builder.tops[0], pads=pads, count_include_pad=1, **attributes
        )
    source: Value | str = builder.inputs[0]
    if rows.pad or columns.pad:
        padded = builder.names[0].fresh(f"{builder.tops[0]}_pad_output")  # name in the SDK's converter
        source = builder.node("Pad", source, [0, 0, rows.pad, columns.pad] * 2, to=padded)
    pads = [0, 0, *(max(0, b - axis.pad) for b, axis in zip(beyond, (rows, columns)))]
    return builder.node("AveragePool", source, to=builder.tops[0], pads=pads, count_include_pad=0, **attributes)


def _maximum(builder: LayerBuilder, rows: Axis, columns: Axis, pads: list[int], shape: tuple[int, ...]) -> list[Value]:
    masked = len(builder.tops) == 2
    indices = [builder.inner("indices")] if masked else []
    builder.node("MaxPool", builder.inputs[0], to=builder.tops[0], also=indices, pads=pads, **_window(rows, columns))
    if masked:
        # ONNX indices count through the whole tensor, Caffe's within each channel.
        inside = builder.node("Mod", indices[0], rows.size * columns.size)
        builder.node("Cast", inside, to=builder.tops[1], to_type=FLOAT)
    return [Value(name, shape) for name in builder.tops]


def _window(rows: Axis, columns: Axis) -> dict[str, Any]:
    return {"kernel_shape": [rows.kernel, columns.kernel], "strides": [rows.stride, columns.stride]}


class Geometry(NamedTuple):
    """One number per spatial axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]

    def attributes(self) -> dict[str, Any]:
        pads = self.pad * 2
        return {"kernel_shape": self.kernel, "strides": self.stride, "pads": pads, "dilations": self.dilation}

    def reach(self) -> tuple[int, ...]:
        """Return the number of input rows and columns that a kernel spans, including holes."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation))


def convolution(builder: LayerBuilder) -> list[Value]:
    geometry, group = _prepared(builder)
    outputs, channels = builder.message.convolution_param.num_output, builder.shape[1]
    weight = builder.weight(0, (outputs, channels // group, *geometry.kernel), "filter")
    spatial = (
        (size + 2 * pad - reach) // stride + 1
        for size, pad, reach, stride in zip(builder.shape[2:], geometry.pad, geometry.reach(), geometry.stride)
    )
    return _filtered(builder, "Conv", weight, geometry, group, (builder.shape[0], outputs, *spatial))


def deconvolution(builder: LayerBuilder) -> list[Value]:
    geometry, group = _prepared(builder)
    outputs, channels = builder.message.convolution_param.num_output, builder.shape[1]
    weight = builder.weight(0, (channels, outputs // group, *geometry.kernel), "filter")
    spatial = (
        stride * (size - 1) + reach - 2 * pad
        for size, pad, reach, stride in zip(builder.shape[2:], geometry.pad, geometry.reach(), geometry.stride)
    )
    return _filtered(builder, "ConvTranspose", weight, geometry, group, (builder.shape[0], outputs, *spatial))


def inner_product(builder: LayerBuilder) -> list[Value]:
    """Convert a product of the weights with all axes from ``axis`` on as one vector."""
    builder.expect(1)
    param = builder.message.inner_product_param
    axis = builder.axis(param.axis)
    outputs, length = param.num_output, math.prod(builder.shape[axis:])
    kept = builder.shape[:axis]
    weight = builder.weight(0, (length, outputs) if param.transpose else (outputs, length), "weight")
    operands = [_as_matrix(builder, axis, length), builder.constant("weight", weight)]
    operands += _bias(builder, param.bias_term, outputs)
    shape = (*kept, outputs)
    product = builder.node(
        "Gemm", *operands, to=builder.tops[0] if axis == 1 else None, transB=int(not param.transpose)
    )
    if axis != 1:
        builder.node("Reshape", product, shape, to=builder.tops[0])
    return [Value(builder.tops[0], shape)]


def _bias(builder: LayerBuilder, learned: bool, outputs: int) -> list[str]:
    """Return the name of the bias; the SDK adds a bias of zeros if there is none."""
    if learned:
        return [builder.constant("bias", builder.weight(1, (outputs,), "bias"))]
    return [builder.constant("bias", np.zeros(outputs, np.float32))] if builder.staged else []


def _as_matrix(builder: LayerBuilder, axis: int, length: int) -> Value | str:
    if axis == 1:
        return builder.inputs[0] if len(builder.shape) == 2 else builder.node("Flatten", builder.inputs[0], axis=1)
    return builder.node("Reshape", builder.inputs[0], [math.prod(builder.shape[:axis]), length])


def _filtered(
    builder: LayerBuilder, op: str, weight: np.ndarray, geometry: Geometry, group: int, shape: Shape
) -> list[Value]:
    operands = [builder.inputs[0].name, builder.constant("filter", weight)]
    operands += _bias(builder, builder.message.convolution_param.bias_term, shape[1])
    return builder.top(op, *operands, shape=shape, group=group, **geometry.attributes())


def _prepared(builder: LayerBuilder) -> tuple[Geometry, int]:
    """Return the checked geometry and number of groups."""
    builder.expect(1)
    param = builder.message.convolution_param
    if len(builder.shape) < 3 or builder.axis(param.axis) != 1:
        builder.fail(f"needs an N, C, H, W input with axis 1, not {list(builder.shape)}")
    channels = builder.shape[1]
    group = param.group
    if builder.layer.type == "ConvolutionDepthwise" and not param.HasField("group"):
        group = channels
    if not group or channels % group or param.num_output % group or not param.num_output:
        builder.fail(f"cannot split {channels} channels and {param.num_output} outputs into {group} groups")
    geometry = Geometry(
        _sizes(builder, param, "kernel_size", "kernel", None),
        _sizes(builder, param, "stride", "stride", 1),
        _sizes(builder, param, "pad", "pad", 0),
        _sizes(builder, param, "dilation", None, 1),
    )
    if not all((*geometry.kernel, *geometry.stride, *geometry.dilation)):
        builder.fail("has a kernel, stride or dilation of 0")
    return geometry, group


def _sizes(builder: LayerBuilder, param: Any, repeated: str, pair: str | None, default: int | None) -> tuple[int, ...]:
    """Return a size per spatial axis, from ``pad_h``/``pad_w``, from ``pad`` for all or each, or the default."""
    rank = len(builder.shape) - 2
    numbers = tuple(getattr(param, repeated))
    if pair and (param.HasField(f"{pair}_h") or param.HasField(f"{pair}_w")):
        if numbers or rank != 2:
            builder.fail(f"gives {repeated} and {pair}_h, {pair}_w; Caffe allows one of them, the pair only for 2-D")
        return getattr(param, f"{pair}_h"), getattr(param, f"{pair}_w")
    if not numbers:
        if default is None:
            builder.fail(f"needs {repeated}")
        return (default,) * rank
    if len(numbers) not in (1, rank):
        builder.fail(f"gives {len(numbers)} numbers for {repeated}, but its input has {rank} spatial axes")
    return numbers * rank if len(numbers) == 1 else numbers
