"""Scale and Bias: a factor and an offset, learned or taken from a second bottom, spread over some of the axes.

A learned factor per channel is written as BatchNormalization (mean 0, variance 1, epsilon 0), or, with the BatchNorm
before it, as the SDK has both. Source: scale_layer.cpp, bias_layer.cpp.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sgsdump.models.caffe.layers.normalisation import normalisation
from sgsdump.models.caffe.layers.product_and_sum import multiplied_and_added
from sgsdump.models.caffe.piece import Piece, Shape, Value


def scale(piece: Piece) -> list[Value]:
    piece.expect(1, 2)
    param = piece.message.scale_param
    if len(piece.inputs) == 2:
        return _by_second_bottom(piece, param, "Mul", bias_blob=0 if param.bias_term else None)
    shape, axis = _covered(piece, param)
    factor = piece.weight(0, shape, "scale")
    offset = piece.weight(1, shape, "bias") if param.bias_term else np.zeros(shape, np.float32)
    if piece.staged and axis == 1 and len(shape) == 1:
        return _staged(piece, factor, offset if param.bias_term else None)
    if axis == 1 and len(shape) == 1 and len(piece.shape) > 1:
        constants = {"scale": factor, "bias": offset, "mean": np.zeros_like(factor), "variance": np.ones_like(factor)}
        operands = [piece.constant(name, array) for name, array in constants.items()]
        piece.node("BatchNormalization", piece.inputs[0], *operands, to=piece.tops[0], epsilon=0.0)
        return [Value(piece.tops[0], piece.shape)]
    spread = _spread(piece, shape, axis)
    product = piece.node(
        "Mul",
        piece.inputs[0],
        piece.constant("scale", factor.reshape(spread)),
        to=None if param.bias_term else piece.tops[0],
    )
    if param.bias_term:
        piece.node("Add", product, piece.constant("bias", offset.reshape(spread)), to=piece.tops[0])
    return [Value(piece.tops[0], piece.shape)]


def _staged(piece: Piece, factor: np.ndarray, offset: np.ndarray | None) -> list[Value]:
    if piece.joined is None:
        return multiplied_and_added(piece, piece.layer.name, factor, offset)
    before = normalisation(piece.joined)
    assert before.offset is not None, "a normalisation has one"
    scaled = before.offset * factor.astype(np.float64)
    summed = scaled if offset is None else scaled + offset.astype(np.float64)
    return multiplied_and_added(piece, piece.joined.layer.name, before.gain * factor.astype(np.float64), summed)


def bias(piece: Piece) -> list[Value]:
    piece.expect(1, 2)
    param = piece.message.bias_param
    if len(piece.inputs) == 2:
        return _by_second_bottom(piece, param, "Add", bias_blob=None)
    shape, axis = _covered(piece, param)
    offset = piece.weight(0, shape, "bias").reshape(_spread(piece, shape, axis))
    return [Value(piece.node("Add", piece.inputs[0], piece.constant("bias", offset), to=piece.tops[0]), piece.shape)]


def _by_second_bottom(piece: Piece, param: Any, op: str, bias_blob: int | None) -> list[Value]:
    given = piece.inputs[1].shape
    # A second bottom without axes is one number, whatever the axis says.
    axis = piece.axis(param.axis) if given else 0
    if given != piece.shape[axis : axis + len(given)]:
        piece.fail(f"cannot lay an input of shape {list(given)} over {list(piece.shape)} from axis {axis} on")
    spread = _spread(piece, given, axis)
    operand: Value | str = piece.inputs[1]
    if spread != given:
        operand = piece.node("Reshape", operand, np.array(spread, np.int64))
    result = piece.node(op, piece.inputs[0], operand, to=piece.tops[0] if bias_blob is None else None)
    if bias_blob is not None:
        offset = piece.weight(bias_blob, given, "bias").reshape(spread)
        piece.node("Add", result, piece.constant("bias", offset), to=piece.tops[0])
    return [Value(piece.tops[0], piece.shape)]


def _covered(piece: Piece, param: Any) -> tuple[Shape, int]:
    """The shape of the learned numbers and the axis of the input they begin at."""
    if param.num_axes == 0:
        return (), 0
    axis = piece.axis(param.axis)
    end = len(piece.shape) if param.num_axes == -1 else axis + param.num_axes
    if param.num_axes < -1 or end > len(piece.shape):
        piece.fail(f"covers {param.num_axes} axes from axis {axis} on; its input is {list(piece.shape)}")
    return piece.shape[axis:end], axis


def _spread(piece: Piece, shape: Shape, axis: int) -> Shape:
    """``shape`` with ones behind it, so that it lies over the input from ``axis`` on."""
    return (*shape, *[1] * (len(piece.shape) - axis - len(shape))) if shape else ()
