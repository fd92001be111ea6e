"""The order of weights and biases in fixed.sim.

Weights are INT8 or INT16. A *tile* holds the weights of a few outputs and a few inputs, for every kernel position::

    Blocks.tile    tile, of INT8      of INT16           order in a tile               padded to 32 bytes
    0, 4           16 out x 16 in     8 out x 8 in       height, width, output, input  each kernel position
    1              4 out x 64 in      2 out x 32 in      height, width, output, input  each kernel position
    3              2 out x 16 in      2 out x 8 in       output, height, width, input  the tile
    depthwise      16 channels        8 channels         height, width, channel        the tile

The last axis is contiguous. Tiles at an end have fewer outputs or inputs. 4 marks the convolution that reads the image.

Four loops order the tiles of CONV_2D, outermost first: ``outer_outputs`` outputs, ``outer_inputs`` inputs, ``outputs``
outputs, ``inputs`` inputs. Within the innermost loop every tile of outputs has all its tiles of inputs. A depthwise
convolution that is stored as CONV_2D (``Blocks.diagonal``) has only the blocks that hold its diagonal.

A bias [2, C] is INT16: a row of biases and a row of multipliers, each padded to 16 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sgsdump.errors import FormatError
from sgsdump.files.flatbuffer import Buffer, Table

_TILE_ALIGNMENT, _ROW_ALIGNMENT = 32, 16
_VECTOR = 16
_MOST_DIAGONAL = 1 << 27
# By Blocks.tile: bytes of inputs and INT8 outputs of a tile.
_WIDE, _FLAT = 1, 3
_INPUT_BYTES = {0: 16, _WIDE: 64, _FLAT: 16, 4: 16}
_OUTPUTS = {0: 16, _WIDE: 4, _FLAT: 2, 4: 16}


@dataclass(frozen=True)
class Blocks:
    """Blocks in which a CONV_2D of fixed.sim stores its weights.

    inputs, outer_inputs, outputs, outer_outputs
        Channels of the inner and the outer blocks.
    tile
        The kind of tile: a key of the table in the module's docstring.
    diagonal
        Whether the operator is a depthwise convolution.
    """

    inputs: int = 16
    outer_inputs: int = 16
    outputs: int = 16
    outer_outputs: int = 16
    tile: int = 0
    diagonal: bool = False

    @classmethod
    def of_options(cls, options: Table) -> Blocks:
        """Return the blocks that the options of a CONV_2D give in their slots 10 to 14 and 38."""
        inputs, outer_inputs, outputs, outer_outputs = (options.number(slot, "i", 16) for slot in (10, 11, 12, 13))
        return cls(inputs, outer_inputs, outputs, outer_outputs, options.number(14, "i"), options.number(38, "h") == 2)


def stored_weights(
    data: Buffer, shape: Sequence[int], dtype: np.dtype, depthwise: bool = False, blocks: Blocks | None = None
) -> np.ndarray:
    """Return the weights of a convolution of fixed.sim, as integers in the order of its shape.

    Parameters
    ----------
    data
        The buffer of the weights.
    shape
        Output, height, width, input; of DEPTHWISE_CONV_2D 1, height, width, channel.
    dtype
        int8 or int16.
    depthwise
        Whether the operator is DEPTHWISE_CONV_2D.
    blocks
        Blocks of a CONV_2D.

    Raises
    ------
    FormatError
        The buffer does not have the size that shape and blocks need, or the blocks are unknown.
    """
    blocks = blocks or Blocks()
    dtype = np.dtype(dtype).newbyteorder("<")
    _check(len(data), shape, dtype.itemsize, blocks)
    needed = sum(
        parts * _part(parts, tile)[1] for parts, tile in _tiles(_without_memory(shape, dtype), depthwise, blocks)
    )
    if needed != len(data):
        raise FormatError(f"has {len(data)} bytes of weights, but the shape of the weights needs {needed} bytes")
    weights = np.zeros(shape, dtype)
    start = 0
    for parts, tile in _tiles(weights, depthwise, blocks):
        values, padded = _part(parts, tile)
        rows = np.frombuffer(data, dtype, parts * padded // dtype.itemsize, start).reshape(parts, -1)
        tile[...] = rows[:, :values].reshape(tile.shape)
        start += parts * padded
    return weights


def weight_buffer(weights: np.ndarray, depthwise: bool = False, blocks: Blocks | None = None) -> bytes:
    """Return the bytes in which fixed.sim stores these weights. `stored_weights` reads them back."""
    pieces = []
    weights = weights.astype(weights.dtype.newbyteorder("<"))
    for parts, tile in _tiles(weights, depthwise, blocks or Blocks()):
        values, padded = _part(parts, tile)
        padding = padded // weights.itemsize - values
        pieces.append(np.pad(tile.reshape(parts, values), ((0, 0), (0, padding))).tobytes())
    return b"".join(pieces)


def stored_bias(data: Buffer, channels: int) -> np.ndarray:
    """Return the bias of a convolution of fixed.sim: biases and multipliers, 2 x channels.

    Raises
    ------
    FormatError
        The buffer does not have the size that so many channels need.
    """
    row = _aligned(channels * 2, _ROW_ALIGNMENT)
    if len(data) != 2 * row:
        raise FormatError(f"has {len(data)} bytes of biases, but {channels} channels need {2 * row}")
    return np.frombuffer(data, "<i2").reshape(2, -1)[:, :channels]


def _without_memory(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Return an array of this shape for views, with one value in memory."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def _check(size: int, shape: Sequence[int], itemsize: int, blocks: Blocks) -> None:
    if len(shape) != 4 or min(shape) < 1:
        raise FormatError(f"has weights of shape {list(shape)}, which must have four axes")
    if blocks.tile not in _OUTPUTS:
        raise FormatError(f"stores weights in tiles of an unknown kind ({blocks.tile})")
    outputs, inputs = shape[0], shape[3]
    of_outputs, of_inputs = (blocks.outputs, blocks.outer_outputs), (blocks.inputs, blocks.outer_inputs)
    if min(of_outputs) < min(_VECTOR, outputs) or min(of_inputs) < min(_VECTOR, inputs):
        raise FormatError(
            f"stores weights of shape {list(shape)} in blocks of {min(of_outputs + of_inputs)} channels, "
            "but this shape needs larger blocks"
        )
    count = math.prod(shape)
    if count > _MOST_DIAGONAL if blocks.diagonal else count * itemsize > size:
        raise FormatError(f"has {size} bytes of weights, fewer than their shape {list(shape)} needs")


def _tiles(weights: np.ndarray, depthwise: bool, blocks: Blocks) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the tiles in file order: the number of separately padded parts, and the values as a view."""
    outputs, height, width, inputs = weights.shape
    if depthwise:
        for channels in _spans(slice(0, inputs), _VECTOR // weights.itemsize):
            yield 1, weights[..., channels]
        return
    tile_inputs = _INPUT_BYTES[blocks.tile] // weights.itemsize
    flat = blocks.tile == _FLAT
    tile_outputs = _OUTPUTS[blocks.tile] // (1 if flat else weights.itemsize)
    by_position = weights.transpose(1, 2, 0, 3)
    for outer in _blocks(outputs, inputs, blocks):
        for output in _spans(outer[0], tile_outputs):
            for input_ in _spans(outer[1], tile_inputs):
                if flat:
                    yield 1, weights[output, :, :, input_]
                else:
                    yield height * width, by_position[:, :, output, input_]


def _blocks(outputs: int, inputs: int, blocks: Blocks) -> Iterator[tuple[slice, slice]]:
    for outer_output in _spans(slice(0, outputs), blocks.outer_outputs):
        for outer_input in _spans(slice(0, inputs), blocks.outer_inputs):
            for output in _spans(outer_output, blocks.outputs):
                for input_ in _spans(outer_input, blocks.inputs):
                    if not blocks.diagonal or (input_.start < output.stop and output.start < input_.stop):
                        yield output, input_


def _spans(of: slice, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, of.stop)) for start in range(of.start, of.stop, size))


def _part(parts: int, tile: np.ndarray) -> tuple[int, int]:
    """Return the number of values of a part of a tile, and its bytes with the padding."""
    values = tile.size // parts
    return values, _aligned(values * tile.itemsize, _TILE_ALIGNMENT)


def _aligned(size: int, to: int) -> int:
    return -(-size // to) * to
