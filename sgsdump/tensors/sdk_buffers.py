"""Padded integer buffers of SigmaStar hardware, which the SDK dumps if eliminateGarbage is off.

Activations are read and written. The number of channels (the innermost dimension) is rounded up to Cp, a multiple of
A = 16 bytes / item size. The whole buffer is rounded up to a multiple of 64 bytes. Order NHWC is [N][H][W][Cp]. Order
NHWX is [N][Cp/A][H][W][A]: despite the name, blocks of channels are outside H and W. Both are equal if C <= A. An image
input takes four bytes per pixel: RGB and BGR store packed bytes first, RGBA and BGRA store pixel by pixel. The hardware
leaves old data in the padding; sgsdump writes zeros. Source: docs/formats/sigmastar.md#padded-buffers.

Constants of a fixed model are only written (docs/formats/sigmastar.md#constants):

* weights of a convolution or fully connected operator, [O, H, W, I]: for each A outputs, for each A inputs of these
  outputs, for each kernel position in row order, a tile of [outputs][inputs] rounded up to 32 bytes
* depthwise weights, [1, H, W, C]: for each A channels a tile of [H][W][channels] rounded up to 32 bytes
* a bias, [2, C]: each row is rounded up to 16 bytes
* any other constant: rounded up to 64 bytes as a whole

With eliminateGarbage on, the SDK dumps the first values of the same buffer, as many as the constant has. If the tiles
of weights are not full, the last weights are therefore missing from the dump.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

PIXEL_BYTES = 16
BUFFER_BYTES = 64
CONSTANT_BYTES = 32
TILE_BYTES = 32
PICTURE_VALUES = 4


def pad_channels(array: np.ndarray) -> np.ndarray:
    """Return the flat padded buffer of an integer array (NHWC if 4-D)."""
    return pad_parameter(_up_to(array, PIXEL_BYTES) if array.ndim else array)


def pad_blocks(array: np.ndarray) -> np.ndarray:
    """Return the flat NHWX buffer of an NHWC array: blocks of PIXEL_BYTES of channels outside H and W."""
    blocks = _up_to(array, PIXEL_BYTES).reshape(*array.shape[:3], -1, PIXEL_BYTES // array.itemsize)
    return pad_parameter(blocks.transpose(0, 3, 1, 2, 4))


def pad_picture(array: np.ndarray) -> np.ndarray:
    """Return the flat buffer of an NHWC image of bytes with four bytes per pixel: packed bytes, then zeros."""
    pixels = array.size // array.shape[-1]
    flat = array.reshape(-1)
    return pad_parameter(np.pad(flat, (0, max(0, pixels * PICTURE_VALUES - flat.size))))


def pad_weights(weights: np.ndarray) -> np.ndarray:
    """Return the flat buffer of integer weights of a convolution [O, H, W, I] or of a matrix [O, I]."""
    outputs, inputs = weights.shape[0], weights.shape[-1]
    cube = weights.reshape(outputs, -1, inputs).transpose(1, 0, 2)
    tiles = (
        _up_to(cube[:, o, i].reshape(len(cube), -1), TILE_BYTES)
        for o in _blocks(outputs, weights.itemsize)
        for i in _blocks(inputs, weights.itemsize)
    )
    return np.concatenate([tile.reshape(-1) for tile in tiles])


def pad_depthwise(weights: np.ndarray) -> np.ndarray:
    """Return the flat buffer of integer depthwise weights [1, H, W, C]."""
    blocks = _blocks(weights.shape[-1], weights.itemsize)
    return np.concatenate([_up_to(weights[..., block].reshape(-1), TILE_BYTES) for block in blocks])


def pad_bias(rows: np.ndarray) -> np.ndarray:
    """Return the flat buffer of bias and multiplier rows [2, C]."""
    return _up_to(rows, PIXEL_BYTES).reshape(-1)


def pad_parameter(values: np.ndarray) -> np.ndarray:
    """Return the flat buffer of any other constant: its values, rounded up to BUFFER_BYTES."""
    return _up_to(values.reshape(-1), BUFFER_BYTES)


def padded_sizes(order: str, shape: Sequence[int], itemsize: int, constant: bool = False) -> tuple[int, ...]:
    """Return the possible sizes, in values, of a padded buffer of this order and shape; () for an unknown order."""
    if order not in UNPAD or (order == "NHWX" and len(shape) != 4):
        return ()
    channels = PICTURE_VALUES if order in _PICTURES else _padded_channels(shape, itemsize)
    values = math.prod(shape[:-1]) * channels
    steps = (CONSTANT_BYTES, BUFFER_BYTES) if constant else (BUFFER_BYTES,)
    return tuple(-(-values * itemsize // step) * step // itemsize for step in steps)


def has_padded_channels(array: np.ndarray, shape: Sequence[int]) -> bool:
    """Return whether an integer payload has the size of a buffer of ``shape`` with padded channels.

    The first elements of such a payload are not the tensor.
    """
    if array.dtype.kind not in "biu" or not shape or shape[-1] == _padded_channels(shape, array.itemsize):
        return False
    return array.size in padded_sizes("NHWC", shape, array.itemsize)


def is_row_major(order: str, shape: Sequence[int], itemsize: int) -> bool:
    """Return whether an unpadded buffer of this order is equal to NHWC."""
    if order != "NHWX":
        return order in UNPAD
    return len(shape) == 4 and (shape[3] <= PIXEL_BYTES // itemsize or shape[1] * shape[2] == 1)


def _unpad_nhwc(flat: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    rows, channels = math.prod(shape[:-1]), _padded_channels(shape, flat.itemsize)
    return flat[: rows * channels].reshape(*shape[:-1], channels)[..., : shape[-1] if shape else 1]


def _unpad_nhwx(flat: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    n, h, w, c = shape
    block, channels = PIXEL_BYTES // flat.itemsize, _padded_channels(shape, flat.itemsize)
    blocks = flat[: n * h * w * channels].reshape(n, channels // block, h, w, block)
    return blocks.transpose(0, 2, 3, 1, 4).reshape(n, h, w, channels)[..., :c]


def _unpad_packed(flat: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    return flat[: math.prod(shape)].reshape(shape)


def _unpad_pixels(flat: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    pixels = math.prod(shape[:-1])
    return flat[: pixels * PICTURE_VALUES].reshape(*shape[:-1], PICTURE_VALUES)[..., : shape[-1]]


UNPAD: dict[str, Callable[[np.ndarray, Sequence[int]], np.ndarray]] = {
    "NHWC": _unpad_nhwc,
    "NHWX": _unpad_nhwx,
    "RGB": _unpad_packed,
    "BGR": _unpad_packed,
    "RGBA": _unpad_pixels,
    "BGRA": _unpad_pixels,
}
_PICTURES = {"RGB", "BGR", "RGBA", "BGRA"}


def unpad(flat: np.ndarray, order: str, shape: Sequence[int]) -> np.ndarray:
    """Return the values of a flat padded buffer, contiguous in ``shape`` (NHWC if 4-D).

    order  key of ``UNPAD``
    flat   buffer of one of ``padded_sizes``
    """
    return np.ascontiguousarray(UNPAD[order](flat, shape)).reshape(shape)


def _padded_channels(shape: Sequence[int], itemsize: int) -> int:
    step = PIXEL_BYTES // itemsize
    return -(-(shape[-1] if shape else 1) // step) * step


def _blocks(channels: int, itemsize: int) -> Iterator[slice]:
    step = PIXEL_BYTES // itemsize
    return (slice(start, start + step) for start in range(0, channels, step))


def _up_to(array: np.ndarray, step: int) -> np.ndarray:
    """Pad the last axis with zeros to a multiple of ``step`` bytes."""
    missing = -array.shape[-1] % (step // array.itemsize)
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, missing)])
