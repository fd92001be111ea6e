"""Input buffers of the board, as the SDK's ``simulator.py --dump_rawdata`` writes them.

RGB BGR            packed pixels, then zeros up to four bytes a pixel
RGBA BGRA          four bytes a pixel, the fourth 0, the others in the named order, regardless of the training order;
                   rows padded to 16 bytes
YUV_NV12           a plane of Y, then interleaved U and V at half the size; rows padded to 16 bytes; full-range BT.709
                   in 10-bit fixed point; an odd last row or column is repeated
GRAY               the plane of Y only; an odd last row (not column) is repeated; the rest of the buffer is zero; of an
                   image with three channels it holds the first H x W values
RAWDATA_S16_NHWC   x / scale truncated toward zero, channels padded to 8, the whole padded to 64 bytes; the scale is
                   float32, from the range in six decimals, and the division double

Channels are in the order of the preprocess file, except for RGBA and BGRA. Verified on inputs of SDK 1.1.5, byte for
byte (tests/golden/raw_inputs.npz). input_width_alignment and input_height_alignment of input_config.ini change nothing
there. Bytes without a pixel are zero here. The SDK leaves old memory at the row ends of RGBA and BGRA, and in place of
U and V of GRAY. In files of 1 to 29 KB, byte p is that of the packed image at p - 1028; from 33 KB on it is 0.

The SDK treats a one-channel input that a convolution reads as three channels (``sdk_converter.ONE_CHANNEL``). This
module writes the buffer for a preprocess file that gives three values a pixel: x, 0 and 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from sgsdump.errors import ConfigError
from sgsdump.models.feeds.picture import CHANNELS, channel_axis
from sgsdump.models.fixed_facts import FixedFacts, read_facts
from sgsdump.models.model import Model
from sgsdump.tensors.sdk_buffers import pad_channels
from sgsdump.tensors.types import to_nhwc

ROW_BYTES = 16
RAWDATA_S16 = "RAWDATA_S16_NHWC"
# In steps of 1/1024: Y from red, green, blue, then U and V.
TO_Y, TO_U, TO_V = np.array([[218, 732, 74], [-117, -395, 512], [512, -465, -47]])


def raw_inputs(model: Model, feed: Mapping[str, np.ndarray]) -> Iterator[tuple[str, bytes]]:
    """Yield name and buffer of each input of a fixed model, in model order, from the feed of the model.

    Raises ConfigError if the buffer of an input is unknown.
    """
    facts = read_facts(model)
    entries = facts.origin.inputs if facts and facts.origin else ()
    if facts is None or not entries:
        raise ConfigError(
            f"{model.path}: the model does not contain the settings of input_config.ini. Create the "
            "model again with calibrate"
        )
    for entry in entries:
        array = feed[entry.name]
        scale = _scale(facts, entry.name) if entry.input_format == RAWDATA_S16 else None
        axis = channel_axis(array.shape, CHANNELS[entry.training_format]) if entry.is_picture else 1
        layers = to_nhwc(array) if array.ndim == 4 and axis != 3 else array
        yield entry.name, raw_input(layers, entry.input_format, entry.training_format == "BGR", scale)


def _scale(facts: FixedFacts, name: str) -> float:
    """Return the scale of a RAWDATA_S16_NHWC input: from its range as in the SDK's file, at 16 bits."""
    ranges = facts.origin.ranges if facts.origin else {}
    if name in ranges:
        largest = float(max(np.abs(ranges[name].min).max(), np.abs(ranges[name].max).max()))
        return (float(f"{largest:.6f}") or largest) / 32767
    if name not in facts.tensors:
        raise ConfigError(f"input {name!r} is not quantised, so the fixed model has no integer buffer for this input")
    return facts.tensors[name].scale


def raw_input(array: np.ndarray, form: str, blue_first: bool = False, scale: float | None = None) -> bytes:
    """Return the buffer of one input.

    array       N, H, W, C as the preprocess file gives it: bytes 0..255 of an image, real values of RAWDATA.
    form        member of ``input_formats``.
    blue_first  channel order of the image is BGR.
    scale       for RAWDATA_S16_NHWC.

    Raises ConfigError for a format with unknown buffer.
    """
    if form == RAWDATA_S16:
        assert scale is not None, "a stored tensor has one"
        steps = np.trunc(array.astype(np.float64) / float(np.float32(scale)))
        return pad_channels(np.clip(steps, -32768, 32767).astype("<i2")).tobytes()
    if array.ndim != 4 or form.startswith("RAWDATA"):
        raise ConfigError(
            f"the board's buffer layout is unknown for an input of format {form} and shape {list(array.shape)}"
        )
    return b"".join(_picture(pixels, form, blue_first) for pixels in _bytes(array))


def _picture(pixels: np.ndarray, form: str, blue_first: bool) -> bytes:
    height, width, channels = pixels.shape
    if form == "GRAY":
        plane = pixels.reshape(-1)[: height * width].reshape(height, width)
        plane = _rows(np.pad(plane, ((0, height % 2), (0, 0)), mode="edge"))
        return plane.tobytes() + bytes(plane.size // 2)
    if channels != 3:
        raise ConfigError(f"format {form} needs an image of 3 channels, not {channels}")
    if form == "YUV_NV12":
        return _nv12(pixels[..., ::-1] if blue_first else pixels)
    if form in ("RGBA", "BGRA"):
        pixels = pixels[..., ::-1] if blue_first != (form == "BGRA") else pixels
        return _rows(np.pad(pixels, ((0, 0), (0, 0), (0, 1))).reshape(height, -1)).tobytes()
    return pixels.tobytes() + bytes(height * width)


def _nv12(pixels: np.ndarray) -> bytes:
    colours = _even(pixels).astype(np.int64)
    height, width, _ = colours.shape
    luma = (colours @ TO_Y + 512) >> 10
    chroma = np.stack([colours @ weights for weights in (TO_U, TO_V)], axis=-1)
    sums = chroma.reshape(height // 2, 2, width // 2, 2, 2).sum(axis=(1, 3))
    halved = (sums + 128 * 4096 + 2048) >> 12
    planes = (luma, halved.reshape(height // 2, width))
    return b"".join(_rows(_bytes(plane)).tobytes() for plane in planes)


def _even(pixels: np.ndarray) -> np.ndarray:
    """Repeat the last row and column if their number is odd."""
    more = [(0, size % 2) for size in pixels.shape[:2]] + [(0, 0)] * (pixels.ndim - 2)
    return np.pad(pixels, more, mode="edge")


def _rows(plane: np.ndarray) -> np.ndarray:
    return np.pad(plane, ((0, 0), (0, -plane.shape[1] % ROW_BYTES)))


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(array), 0, 255).astype(np.uint8)
