"""Eltwise, Reduction and ArgMax."""

from __future__ import annotations

import math

import numpy as np

from sgsdump.models.caffe.piece import INT_MAX, Piece, Shape, Value
from sgsdump.models.caffe.schema import enum_label

FLOAT = 1
REDUCTIONS = {"SUM": "ReduceSum", "ASUM": "ReduceL1", "SUMSQ": "ReduceSumSquare", "MEAN": "ReduceMean"}


def eltwise(piece: Piece) -> list[Value]:
    """Sum (with a coefficient for each bottom), product or maximum of bottoms of one shape."""
    piece.expect(2, INT_MAX)
    param = piece.message.eltwise_param
    operation = enum_label(param, "operation")
    if any(value.shape != piece.shape for value in piece.inputs):
        piece.fail(f"has bottoms of different shapes: {', '.join(str(list(v.shape)) for v in piece.inputs)}")
    if param.coeff and (operation != "SUM" or len(param.coeff) != len(piece.inputs)):
        piece.fail(f"gives {len(param.coeff)} coefficients; only SUM takes them, one for each bottom")
    names = [value.name for value in piece.inputs]
    if operation == "MAX":
        return [Value(piece.node("Max", *names, to=piece.tops[0]), piece.shape)]
    weighted = [
        name if factor == 1 else piece.node("Mul", name, np.array(factor, np.float32))
        for name, factor in zip(names, param.coeff or [1.0] * len(names))
    ]
    op = "Mul" if operation == "PROD" else "Add"
    result = weighted[0]
    for index, name in enumerate(weighted[1:], 2):
        result = piece.node(op, result, name, to=piece.tops[0] if index == len(weighted) else None)
    return [Value(result, piece.shape)]


def reduction(piece: Piece) -> list[Value]:
    """One number for all axes from ``axis`` on, times ``coeff``."""
    piece.expect(1)
    param = piece.message.reduction_param
    axis = piece.axis(param.axis)
    shape, axes = piece.shape[:axis], list(range(axis, len(piece.shape)))
    op = REDUCTIONS[enum_label(param, "operation")]
    to = piece.tops[0] if param.coeff == 1 else None
    if op == "ReduceSum":
        result = piece.node(op, piece.inputs[0], np.array(axes, np.int64), to=to, keepdims=0)
    else:
        result = piece.node(op, piece.inputs[0], to=to, axes=axes, keepdims=0)
    if param.coeff != 1:
        piece.node("Mul", result, np.array(param.coeff, np.float32), to=piece.tops[0])
    return [Value(piece.tops[0], shape)]


def arg_max(piece: Piece) -> list[Value]:
    """The places of the ``top_k`` largest numbers, as floats: along an axis, or (no axis) in each whole sample.

    Caffe sorts pairs of (value, place) downwards: of equal values the last place comes first.
    """
    piece.expect(1)
    param = piece.message.argmax_param
    whole = not param.HasField("axis")
    axis = 1 if whole else piece.axis(param.axis)
    shape: Shape = (piece.shape[0], math.prod(piece.shape[1:])) if whole else piece.shape
    if not 1 <= param.top_k <= shape[axis]:
        piece.fail(f"asks for the {param.top_k} largest of {shape[axis]} numbers")
    source: Value | str = piece.inputs[0]
    if shape != piece.shape:
        source = piece.node("Flatten", source, axis=1)
    values, places = _largest(piece, source, axis, shape[axis], param.top_k)
    if not whole:
        chosen = values if param.out_max_val else places
        piece.node("Identity", chosen, to=piece.tops[0])
        return [Value(piece.tops[0], (*shape[:axis], param.top_k, *shape[axis + 1 :]))]
    # [N, top_k] -> [N, 1, top_k], or [N, 2, top_k] with the values behind the places.
    row = np.array([1], np.int64)
    if param.out_max_val:
        rows = [piece.node("Unsqueeze", name, row) for name in (places, values)]
        piece.node("Concat", *rows, to=piece.tops[0], axis=1)
    else:
        piece.node("Unsqueeze", places, row, to=piece.tops[0])
    return [Value(piece.tops[0], (shape[0], 1 + param.out_max_val, param.top_k))]


def _largest(piece: Piece, source: Value | str, axis: int, size: int, count: int) -> tuple[str, str]:
    """Values and places (float) of the largest numbers. TopK prefers the first of equals, so it looks from the end."""
    ends = [np.array([number], np.int64) for number in (-1, -INT_MAX - 1, axis, -1)]
    backwards = piece.node("Slice", source, *ends)
    places, wanted = piece.inner("places"), np.array([count], np.int64)
    values = piece.node("TopK", backwards, wanted, also=[places], axis=axis, largest=1, sorted=1)
    forwards = piece.node("Sub", np.array(size - 1, np.int64), places)
    return values, piece.node("Cast", forwards, to_type=FLOAT)
