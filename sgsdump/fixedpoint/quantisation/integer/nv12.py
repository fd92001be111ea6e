"""YUV_NV12 images: the SDK's fixed simulator converts bytes to NV12, and the chip's matrix converts back to colours.

The forward conversion is that of ``raw_input``, with U and V at half the size. The way back has steps of 1/1024, with
g = 1 / (std * s):

    m_u, m_v, m_y   half_up(g * B), B = 0, 1613, 1024 for red; -192, -479, 1024 for green; 1900, 0, 1024 for blue
    offset          max(half_up(256 + z - mean / (std * s) - 128 * (m_u + m_v) / 1024), 0) - 256
    q               clip(floor((m_u * U + m_v * V + m_y * Y + 512) / 1024) + offset)

This is parse_net's as16ConvertMartix. Exact: every byte of yuv3, and of six networks with other means, ranges and sizes
(yv1 to yv6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.fixedpoint.quantisation.integer.emitter import DOUBLE, Emitter, Unrounded, half_up
from sgsdump.fixedpoint.quantisation.raw_input import TO_U, TO_V, TO_Y
from sgsdump.tensors.tensor import Quant

if TYPE_CHECKING:
    from sgsdump.fixedpoint.quantisation.float_model import Picture

# Factors of U, V and Y, for red, green and blue.
BACK = np.array([[0.0, 1613.0, 1024.0], [-192.0, -479.0, 1024.0], [1900.0, 0.0, 1024.0]])


def steps(emit: Emitter, name: str, picture: Picture, quant: Quant, lengths: Sequence[int]) -> Unrounded:
    """Return input ``name`` (bytes) in steps of ``quant`` after NV12; ``lengths``: height and width."""
    order = slice(None, None, -1) if picture.nv12 == "BGR" else slice(None)
    colours = emit.cast(name, DOUBLE)
    size = dict(zip(picture.plane, lengths, strict=True))
    u, v = (_halved(emit, _weighted(emit, colours, weights[order], picture), size) for weights in (TO_U, TO_V))
    y = _clipped(emit, _shifted(emit, _weighted(emit, colours, TO_Y[order], picture), 512, 1024))
    mean, std = np.asarray(picture.mean, np.float64), np.asarray(picture.std, np.float64)
    factors = half_up(BACK[order] / (std * quant.scale).reshape(-1, 1))
    middle = 256 + quant.zero_point - mean / (std * quant.scale) - (factors[:, 0] + factors[:, 1]) / 8
    offset = np.maximum(half_up(middle), 0) - 256
    total = ""
    for plane, column in zip((u, v, y), factors.T, strict=True):
        term = emit.add("Mul", [plane, emit.constant(picture.along(column))])
        total = emit.add("Add", [total, term]) if total else term
    return Unrounded(_shifted(emit, total, 512, 1024), emit.constant(picture.along(offset)))


def _weighted(emit: Emitter, colours: str, weights: np.ndarray, picture: Picture) -> str:
    product = emit.add("Mul", [colours, emit.constant(picture.along(weights))])
    return emit.add("ReduceSum", [product, emit.constant(np.array([picture.axis], np.int64))], keepdims=1)


def _shifted(emit: Emitter, name: str, plus: int, over: int) -> str:
    raised = emit.add("Add", [name, emit.constant(np.float64(plus))])
    return emit.add("Floor", [emit.add("Mul", [raised, emit.constant(np.float64(1 / over))])])


def _clipped(emit: Emitter, name: str) -> str:
    return emit.add("Clip", [name, emit.constant(np.float64(0)), emit.constant(np.float64(255))])


def _halved(emit: Emitter, plane: str, lengths: Mapping[int, int]) -> str:
    """Return the mean of each 2 x 2 values at all four positions; an odd last row and column is repeated."""
    for axis, length in lengths.items():
        first = np.arange(length) // 2 * 2
        pair = [emit.constant(index) for index in (first, np.minimum(first + 1, length - 1))]
        plane = emit.add("Add", [emit.add("Gather", [plane, index], axis=axis) for index in pair])
    return _clipped(emit, _shifted(emit, plane, 128 * 4096 + 2048, 4096))
