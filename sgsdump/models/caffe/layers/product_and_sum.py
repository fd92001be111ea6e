"""A factor and an offset per channel, as the SDK's converter writes BatchNorm and Scale: one MUL and one ADD.

y = x * gain + offset,   gain = gamma / sqrt(variance + epsilon),   offset = beta - mean * gain
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sgsdump.models.caffe.piece import Piece, Value


class Affine(NamedTuple):
    """One number a channel each, float64; an ``offset`` of None is none at all."""

    gain: np.ndarray
    offset: np.ndarray | None


def gain_and_offset(
    gamma: np.ndarray, beta: np.ndarray, mean: np.ndarray, variance: np.ndarray, *, epsilon: float
) -> Affine:
    """What a batch normalisation does to its input; as in the SDK variance + epsilon is a sum of float32, all else
    double precision."""
    spread = variance.astype(np.float32) + np.float32(epsilon)
    gain = gamma.astype(np.float64) / np.sqrt(spread.astype(np.float64))
    return Affine(gain, beta.astype(np.float64) - mean.astype(np.float64) * gain)


def multiplied_and_added(piece: Piece, name: str, gain: np.ndarray, offset: np.ndarray | None) -> list[Value]:
    """``NAME_scale`` and ``NAME_offset`` over the channels, the second axis of the input."""
    shape = (-1, *[1] * (len(piece.shape) - 2))
    top = piece.tops[0]
    factor = piece.named(f"{name}_scale", gain.astype(np.float32).reshape(shape))
    if offset is None:
        piece.node("Mul", piece.inputs[0], factor, to=top)
    else:
        product = piece.node("Mul", piece.inputs[0], factor, to=piece.product)
        piece.node("Add", product, piece.named(f"{name}_offset", offset.astype(np.float32).reshape(shape)), to=top)
    return [Value(top, piece.shape)]
