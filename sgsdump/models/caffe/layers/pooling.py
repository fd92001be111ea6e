"""Pooling with Caffe's own rules for its size and for what AVE divides by. Source: pooling_layer.cpp.

The output is rounded up, then cut so that the last window starts inside the padded picture. AVE divides by the part of
the window that lies inside the *padded* picture: padding counts, what the rounding up added behind it does not.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sgsdump.models.caffe.piece import Piece, Value
from sgsdump.models.caffe.schema import enum_label

FLOAT = 1


class Axis(NamedTuple):
    """One spatial axis: sizes of the input and the window, and what follows from them."""

    size: int
    kernel: int
    stride: int
    pad: int
    out: int

    @property
    def behind(self) -> int:
        """How far the last window reaches behind the input."""
        return max(0, (self.out - 1) * self.stride + self.kernel - self.size - self.pad)


def pooling(piece: Piece) -> list[Value]:
    param = piece.message.pooling_param
    kind = enum_label(param, "pool")
    piece.expect(1, tops=2 if kind == "MAX" and len(piece.tops) == 2 else 1)
    if len(piece.shape) != 4:
        piece.fail(f"needs an N, C, H, W input, not {list(piece.shape)}")
    if kind == "STOCHASTIC":
        piece.fail("is STOCHASTIC pooling, which is not known; use MAX or AVE")
    if param.global_pooling and len(piece.tops) == 1:
        return _global(piece, kind)
    rows, columns = _axes(piece)
    shape = (*piece.shape[:2], rows.out, columns.out)
    if kind == "AVE":
        return [Value(_average(piece, rows, columns), shape)]
    pads = [rows.pad, columns.pad, rows.behind, columns.behind]
    return _maximum(piece, rows, columns, pads, shape)


def pooled_size(size: int, kernel: int, stride: int, pad: int, padded: bool, up: bool = True) -> int:
    """Caffe's output size along one axis; ``padded`` when either axis has padding; ``up`` False rounds down."""
    steps = size + 2 * pad - kernel
    # Caffe rounds a float up and makes it an int: no difference for the sizes of pictures.
    out = (-(-steps // stride) if up else steps // stride) + 1
    if padded and (out - 1) * stride >= size + pad:
        out -= 1
    return out


def _global(piece: Piece, kind: str) -> list[Value]:
    param = piece.message.pooling_param
    if any(param.HasField(name) for name in ("kernel_size", "kernel_h", "kernel_w")):
        piece.fail("has global_pooling and a kernel; Caffe takes one of them")
    op = "GlobalAveragePool" if kind == "AVE" else "GlobalMaxPool"
    return [Value(piece.node(op, piece.inputs[0], to=piece.tops[0]), (*piece.shape[:2], 1, 1))]


def _axes(piece: Piece) -> tuple[Axis, Axis]:
    param = piece.message.pooling_param
    kernel = piece.shape[2:] if param.global_pooling else _pair(piece, "kernel", "kernel_size")
    stride, pad = _pair(piece, "stride", "stride"), _pair(piece, "pad", "pad")
    up = param.ceil_mode and enum_label(param, "round_mode") == "CEIL"
    if not all((*kernel, *stride)):
        piece.fail("needs a kernel and a stride of 1 or more")
    if any(p >= k for p, k in zip(pad, kernel)) and any(pad):
        piece.fail(f"has padding {list(pad)} that is not smaller than its kernel {list(kernel)}")
    rows, columns = (
        Axis(n, k, s, p, pooled_size(n, k, s, p, any(pad), up))
        for n, k, s, p in zip(piece.shape[2:], kernel, stride, pad)
    )
    for axis in (rows, columns):
        if axis.out < 1 or (axis.out - 1) * axis.stride - axis.pad >= axis.size:
            piece.fail(f"has a window that holds nothing of its input {list(piece.shape)}; check kernel and stride")
    return rows, columns


def _pair(piece: Piece, pair: str, both: str) -> tuple[int, int]:
    param = piece.message.pooling_param
    if not (param.HasField(f"{pair}_h") or param.HasField(f"{pair}_w")):
        return getattr(param, both), getattr(param, both)
    if param.HasField(both):
        piece.fail(f"gives {both} and {pair}_h, {pair}_w; Caffe takes one of them")
    return getattr(param, f"{pair}_h"), getattr(param, f"{pair}_w")


def _average(piece: Piece, rows: Axis, columns: Axis) -> str:
    attributes = _window(rows, columns)
    behind = [rows.behind, columns.behind]
    if rows.behind <= rows.pad and columns.behind <= columns.pad:
        pads = [rows.pad, columns.pad, *behind]
        return piece.node(
            "AveragePool", piece.inputs[0], to=piece.tops[0], pads=pads, count_include_pad=1, **attributes
        )
    source: Value | str = piece.inputs[0]
    if rows.pad or columns.pad:
        source = piece.node("Pad", source, np.array([0, 0, rows.pad, columns.pad] * 2, np.int64))
    pads = [0, 0, *(max(0, b - axis.pad) for b, axis in zip(behind, (rows, columns)))]
    return piece.node("AveragePool", source, to=piece.tops[0], pads=pads, count_include_pad=0, **attributes)


def _maximum(piece: Piece, rows: Axis, columns: Axis, pads: list[int], shape: tuple[int, ...]) -> list[Value]:
    masked = len(piece.tops) == 2
    indices = [piece.inner("indices")] if masked else []
    piece.node("MaxPool", piece.inputs[0], to=piece.tops[0], also=indices, pads=pads, **_window(rows, columns))
    if masked:
        # ONNX counts through the whole tensor, Caffe inside each channel.
        inside = piece.node("Mod", indices[0], np.array(rows.size * columns.size, np.int64))
        piece.node("Cast", inside, to=piece.tops[1], to_type=FLOAT)
    return [Value(name, shape) for name in piece.tops]


def _window(rows: Axis, columns: Axis) -> dict[str, Any]:
    return {"kernel_shape": [rows.kernel, columns.kernel], "strides": [rows.stride, columns.stride]}
