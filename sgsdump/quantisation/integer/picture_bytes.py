"""A picture's raw bytes as the stored input of a fixed model, as the SDK's fixed model takes them.

    q = byte / (std * scale) + zero point - mean / (std * scale), in 1/1024 steps, the offset rounded half up

The SDK's colour matrix works in 1/1024. parse_net prints it as as16ConvertMartix: 1024 * gain on the diagonal,
256 + offset in the last three places. Exact on the probe c_dw_L5, whose picture's range level L5 has narrowed (1034 and
255), and on ten networks whose pictures lack the darkest or brightest bytes: from 1 to 255 the offset is -1.5, and
becomes -1. It is the identity in all others.
"""

from __future__ import annotations

import numpy as np

from sgsdump.quantisation.integer.emitter import DOUBLE, Emitter, Unrounded
from sgsdump.quantisation.integer.rounding import half_up
from sgsdump.quantisation.pictures import Picture
from sgsdump.tensors.tensor import Quant


def steps_of_bytes(emit: Emitter, name: str, picture: Picture, quant: Quant) -> Unrounded:
    """Input ``name`` (N, C, H, W, bytes) in steps of ``quant``, before the rounding."""
    mean, std = np.asarray(picture.mean, np.float64), np.asarray(picture.std, np.float64)
    gain = np.round(1024 / (std * quant.scale)) / 1024
    offset = half_up(quant.zero_point - mean / (std * quant.scale))
    source = emit.cast(name, DOUBLE)
    if (gain != 1).any() or (offset != 0).any():
        source = emit.add("Mul", [source, emit.constant(gain.reshape(1, -1, 1, 1))])
        source = emit.add("Add", [source, emit.constant(offset.reshape(1, -1, 1, 1))])
    return Unrounded(source)
