"""Layers that work on every number by itself. Formulas: Caffe's layer catalogue."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sgsdump.models.caffe.piece import Piece, Value


def _one_node(op_type: str, **attributes: Any) -> Callable[[Piece], list[Value]]:
    def convert(piece: Piece) -> list[Value]:
        piece.expect(1)
        return [Value(piece.node(op_type, piece.inputs[0], to=piece.tops[0], **attributes), piece.shape)]

    return convert


sigmoid = _one_node("Sigmoid")
tanh = _one_node("Tanh")
absolute = _one_node("Abs")
bnll = _one_node("Softplus")


def relu(piece: Piece) -> list[Value]:
    slope = piece.message.relu_param.negative_slope
    return _one_node("LeakyRelu", alpha=slope)(piece) if slope else _one_node("Relu")(piece)


def elu(piece: Piece) -> list[Value]:
    return _one_node("Elu", alpha=piece.message.elu_param.alpha)(piece)


def prelu(piece: Piece) -> list[Value]:
    """max(0, x) + slope * min(0, x), one slope per channel or one for all."""
    piece.expect(1)
    channels = piece.shape[piece.axis(1)]
    shared = piece.message.prelu_param.channel_shared
    slope = piece.weight(0, () if shared else (channels,), "slope")
    slope = slope.reshape((1,) if shared else (channels, *[1] * (len(piece.shape) - 2)))
    return [Value(piece.node("PRelu", piece.inputs[0], piece.constant("alpha", slope), to=piece.tops[0]), piece.shape)]


def relu6(piece: Piece) -> list[Value]:
    if piece.message.relu6_param.negative_slope:
        piece.fail("is a ReLU6 with a negative_slope, which is not known; write it as ReLU and Clip")
    return _clipped(piece, 0.0, 6.0)


def clip(piece: Piece) -> list[Value]:
    param = piece.message.clip_param
    if not (param.HasField("min") and param.HasField("max")):
        piece.fail("needs clip_param with min and max")
    return _clipped(piece, param.min, param.max)


def power(piece: Piece) -> list[Value]:
    """(shift + scale * x) ^ power."""
    piece.expect(1)
    param = piece.message.power_param
    if piece.staged:
        return _staged_power(piece, param.power, param.scale, param.shift)
    value = _affine(piece, piece.inputs[0].name, param.scale, param.shift, last=param.power == 1)
    if param.power != 1:
        value = piece.node("Pow", value, _scalar(param.power), to=piece.tops[0])
    return [Value(value, piece.shape)]


def _staged_power(piece: Piece, exponent: float, scale: float, shift: float) -> list[Value]:
    """As the SDK has it: always a MUL and an ADD, and a square as a MUL by itself."""
    top, name = piece.tops[0], piece.layer.name
    product = piece.node("Mul", piece.inputs[0], piece.constant("scale", _scalar(scale)), to=piece.product)
    ends = exponent == 1
    total = piece.node(
        "Add",
        product,
        piece.constant("offset", _scalar(shift)),
        to=top if ends else piece.names[0].fresh(f"{name}_ADD_output"),
    )
    if exponent == 2:
        piece.node("Mul", total, total, to=top)
    elif not ends:
        piece.node("Pow", total, _scalar(exponent), to=top)
    return [Value(top, piece.shape)]


def exp(piece: Piece) -> list[Value]:
    """base ^ (shift + scale * x); base -1 stands for e."""
    piece.expect(1)
    param = piece.message.exp_param
    rate = _log_of_base(piece, param.base)
    value = _affine(piece, piece.inputs[0].name, rate * param.scale, rate * param.shift)
    return [Value(piece.node("Exp", value, to=piece.tops[0]), piece.shape)]


def log(piece: Piece) -> list[Value]:
    """log_base(shift + scale * x); base -1 stands for e."""
    piece.expect(1)
    param = piece.message.log_param
    rate = _log_of_base(piece, param.base)
    value = _affine(piece, piece.inputs[0].name, param.scale, param.shift)
    if rate == 1:
        return [Value(piece.node("Log", value, to=piece.tops[0]), piece.shape)]
    return [Value(piece.node("Mul", piece.node("Log", value), _scalar(1 / rate), to=piece.tops[0]), piece.shape)]


def _clipped(piece: Piece, low: float, high: float) -> list[Value]:
    piece.expect(1)
    return [Value(piece.node("Clip", piece.inputs[0], _scalar(low), _scalar(high), to=piece.tops[0]), piece.shape)]


def _affine(piece: Piece, value: str, scale: float, shift: float, last: bool = False) -> str:
    """scale * x + shift with no node that does nothing; ``last`` puts the result into the top."""
    steps = [(op, number) for op, number, nothing in (("Mul", scale, 1), ("Add", shift, 0)) if number != nothing]
    for index, (op, number) in enumerate(steps):
        final = last and index == len(steps) - 1
        value = piece.node(op, value, _scalar(number), to=piece.tops[0] if final else None)
    return piece.node("Identity", value, to=piece.tops[0]) if last and not steps else value


def _log_of_base(piece: Piece, base: float) -> float:
    if base == -1:
        return 1.0
    if base <= 0 or base == 1:
        piece.fail(f"has the base {base:g}; it must be positive and not 1")
    return math.log(base)


def _scalar(number: float) -> np.ndarray:
    return np.array(number, np.float32)
