"""Convolution, Deconvolution and InnerProduct: the layers with a filter. Source: base_conv_layer.cpp."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from sgsdump.models.caffe.piece import Piece, Shape, Value


class Geometry(NamedTuple):
    """One number per spatial axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]

    def attributes(self) -> dict[str, Any]:
        return {
            "kernel_shape": self.kernel,
            "strides": self.stride,
            "pads": self.pad * 2,
            "dilations": self.dilation,
        }

    def reach(self) -> tuple[int, ...]:
        """How many input rows, columns a kernel spans, holes included."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation))


def convolution(piece: Piece) -> list[Value]:
    geometry, group = _prepared(piece)
    outputs, channels = piece.message.convolution_param.num_output, piece.shape[1]
    weight = piece.weight(0, (outputs, channels // group, *geometry.kernel), "filter")
    spatial = tuple(
        (size + 2 * pad - reach) // stride + 1
        for size, pad, reach, stride in zip(piece.shape[2:], geometry.pad, geometry.reach(), geometry.stride)
    )
    return _filtered(piece, "Conv", weight, geometry, group, (piece.shape[0], outputs, *spatial))


def deconvolution(piece: Piece) -> list[Value]:
    geometry, group = _prepared(piece)
    outputs, channels = piece.message.convolution_param.num_output, piece.shape[1]
    weight = piece.weight(0, (channels, outputs // group, *geometry.kernel), "filter")
    spatial = tuple(
        stride * (size - 1) + reach - 2 * pad
        for size, pad, reach, stride in zip(piece.shape[2:], geometry.pad, geometry.reach(), geometry.stride)
    )
    return _filtered(piece, "ConvTranspose", weight, geometry, group, (piece.shape[0], outputs, *spatial))


def inner_product(piece: Piece) -> list[Value]:
    """All axes from ``axis`` on are one vector, multiplied by the weights."""
    piece.expect(1)
    param = piece.message.inner_product_param
    axis = piece.axis(param.axis)
    outputs, length = param.num_output, math.prod(piece.shape[axis:])
    kept = piece.shape[:axis]
    weight = piece.weight(0, (length, outputs) if param.transpose else (outputs, length), "weight")
    operands = [_as_matrix(piece, axis, length), piece.constant("weight", weight)]
    operands += _bias(piece, param.bias_term, outputs)
    shape = (*kept, outputs)
    product = piece.node("Gemm", *operands, to=piece.tops[0] if axis == 1 else None, transB=int(not param.transpose))
    if axis != 1:
        piece.node("Reshape", product, np.array(shape, np.int64), to=piece.tops[0])
    return [Value(piece.tops[0], shape)]


def _bias(piece: Piece, learned: bool, outputs: int) -> list[str]:
    """The name of the bias; the SDK has one of zeros where there is none."""
    if learned:
        return [piece.constant("bias", piece.weight(1, (outputs,), "bias"))]
    return [piece.constant("bias", np.zeros(outputs, np.float32))] if piece.staged else []


def _as_matrix(piece: Piece, axis: int, length: int) -> Value | str:
    if axis == 1:
        return piece.inputs[0] if len(piece.shape) == 2 else piece.node("Flatten", piece.inputs[0], axis=1)
    return piece.node("Reshape", piece.inputs[0], np.array([math.prod(piece.shape[:axis]), length], np.int64))


def _filtered(piece: Piece, op: str, weight: np.ndarray, geometry: Geometry, group: int, shape: Shape) -> list[Value]:
    operands = [piece.inputs[0].name, piece.constant("filter", weight)]
    operands += _bias(piece, piece.message.convolution_param.bias_term, shape[1])
    return [Value(piece.node(op, *operands, to=piece.tops[0], group=group, **geometry.attributes()), shape)]


def _prepared(piece: Piece) -> tuple[Geometry, int]:
    """Geometry and groups, checked."""
    piece.expect(1)
    param = piece.message.convolution_param
    if len(piece.shape) < 3 or piece.axis(param.axis) != 1:
        piece.fail(f"can only slide over N, C, H, W inputs with axis 1; its input is {list(piece.shape)}")
    channels = piece.shape[1]
    group = param.group
    if piece.layer.type == "ConvolutionDepthwise" and not param.HasField("group"):
        group = channels
    if not group or channels % group or param.num_output % group or not param.num_output:
        piece.fail(f"splits {channels} channels and {param.num_output} outputs into {group} groups; it cannot")
    geometry = Geometry(
        _sizes(piece, param, "kernel_size", "kernel", None),
        _sizes(piece, param, "stride", "stride", 1),
        _sizes(piece, param, "pad", "pad", 0),
        _sizes(piece, param, "dilation", None, 1),
    )
    if not all((*geometry.kernel, *geometry.stride, *geometry.dilation)):
        piece.fail("has a kernel, stride or dilation of 0")
    return geometry, group


def _sizes(piece: Piece, param: Any, repeated: str, pair: str | None, default: int | None) -> tuple[int, ...]:
    """A size per spatial axis: from ``pad_h``/``pad_w``, or from ``pad`` given for all, for each, or not at all."""
    rank = len(piece.shape) - 2
    given = tuple(getattr(param, repeated))
    if pair and (param.HasField(f"{pair}_h") or param.HasField(f"{pair}_w")):
        if given or rank != 2:
            piece.fail(f"gives {repeated} and {pair}_h, {pair}_w; Caffe takes one of them, the pair for 2-D only")
        return getattr(param, f"{pair}_h"), getattr(param, f"{pair}_w")
    if not given:
        if default is None:
            piece.fail(f"needs {repeated}")
        return (default,) * rank
    if len(given) not in (1, rank):
        piece.fail(f"gives {len(given)} numbers for {repeated}; its input has {rank} spatial axes")
    return given * rank if len(given) == 1 else given
