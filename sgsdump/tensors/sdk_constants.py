"""A fixed model's constants as they lie in the hardware's memory, which the SDK dumps when eliminateGarbage is off.

With A = 16 bytes / item size:

* weights of a convolution or fully connected operator, [O, H, W, I]: for each A outputs, for each A inputs of these,
  for each position of the kernel, row by row, a tile of [outputs][inputs] that goes up to 32 bytes;
* depthwise weights, [1, H, W, C]: for each A channels a tile of [H][W][channels] that goes up to 32 bytes;
* a bias, [2, C]: each of its rows goes up to 16 bytes;
* anything else goes up to 64 bytes as a whole.

What is added are zeros. With eliminateGarbage on the SDK dumps the first values of the same buffer, as many as the
constant has: of weights whose tiles are not full the last ones are missing there.
Source: docs/formats/sigmastar.md#constants.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sgsdump.tensors.sdk_padding import BUFFER_BYTES, PIXEL_BYTES

TILE_BYTES = 32


def pad_weights(weights: np.ndarray) -> np.ndarray:
    """The flat buffer of a convolution's integer weights, [O, H, W, I], or of a matrix, [O, I]."""
    outputs, inputs = weights.shape[0], weights.shape[-1]
    cube = weights.reshape(outputs, -1, inputs).transpose(1, 0, 2)
    tiles = (
        _up_to(cube[:, o, i].reshape(len(cube), -1), TILE_BYTES)
        for o in _blocks(outputs, weights.itemsize)
        for i in _blocks(inputs, weights.itemsize)
    )
    return np.concatenate([tile.reshape(-1) for tile in tiles])


def pad_depthwise(weights: np.ndarray) -> np.ndarray:
    """The flat buffer of integer depthwise weights, [1, H, W, C]."""
    blocks = _blocks(weights.shape[-1], weights.itemsize)
    return np.concatenate([_up_to(weights[..., block].reshape(-1), TILE_BYTES) for block in blocks])


def pad_bias(rows: np.ndarray) -> np.ndarray:
    """The flat buffer of bias and multiplier rows, [2, C]."""
    return _up_to(rows, PIXEL_BYTES).reshape(-1)


def pad_parameter(values: np.ndarray) -> np.ndarray:
    """The flat buffer of any other constant."""
    return _up_to(values.reshape(-1), BUFFER_BYTES)


def _blocks(channels: int, itemsize: int) -> Iterator[slice]:
    step = PIXEL_BYTES // itemsize
    return (slice(start, start + step) for start in range(0, channels, step))


def _up_to(array: np.ndarray, step: int) -> np.ndarray:
    """The last axis, zeros behind it, as a multiple of ``step`` bytes."""
    missing = -array.shape[-1] % (step // array.itemsize)
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, missing)])
