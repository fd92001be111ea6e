"""The bytes that the board reads into a network's input: what the SDK's ``simulator.py --dump_rawdata`` writes.

RGB BGR            packed pixels, then zeros up to four bytes a pixel
RGBA BGRA          four bytes a pixel, the fourth 0, the others in this order, whatever the network was trained with;
                   rows up to 16 bytes
YUV_NV12           a plane of Y, then U and V by turns at half the size; rows up to 16 bytes; BT.709 of full range in
                   10-bit fixed point, the last row and column repeated where there is an odd number of them
GRAY               the plane of Y alone, of an odd number of rows the last repeated (not columns), and zeros for the
                   rest of such a buffer; of a picture of three channels the first H x W values stand there
RAWDATA_S16_NHWC   x / scale cut off towards zero, channels up to 8, the whole up to 64 bytes; the scale is float32,
                   of the range in six decimals, and the division double

Channels are in the order that the preprocess file gives, but for RGBA and BGRA. Seen on inputs of SDK 1.1.5, byte for
byte (tests/golden/raw_inputs.npz); input_width_alignment and input_height_alignment of input_config.ini change nothing
there. Where no pixel stands is zero here. The SDK leaves what stood in memory at the ends of rows of RGBA and BGRA, and
in place of U and V of GRAY: in files of 1 to 29 KB byte p is that of the packed picture at p - 1028, from 33 KB on 0.

An input of one channel that a convolution reads is three channels for the SDK (``sdk_converter.ONE_CHANNEL``): this is
its buffer for a preprocess file that gives it three values a pixel, x, 0 and 0.
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
# In steps of 1/1024: Y of red, green, blue, then U and V.
TO_Y, TO_U, TO_V = np.array([[218, 732, 74], [-117, -395, 512], [512, -465, -47]])


def raw_inputs(model: Model, feed: Mapping[str, np.ndarray]) -> Iterator[tuple[str, bytes]]:
    """Name and buffer of each input of a fixed model, in its order, from what the model is fed.

    Raises ConfigError for an input of which no buffer is known.
    """
    facts = read_facts(model)
    entries = facts.origin.inputs if facts and facts.origin else ()
    if facts is None or not entries:
        raise ConfigError(
            f"{model.path} does not remember the inputs of input_config.ini; make it again with calibrate"
        )
    for entry in entries:
        array = feed[entry.name]
        scale = _scale(facts, entry.name) if entry.input_format == RAWDATA_S16 else None
        axis = channel_axis(array.shape, CHANNELS[entry.training_format]) if entry.is_picture else 1
        layers = to_nhwc(array) if array.ndim == 4 and axis != 3 else array
        yield entry.name, raw_input(layers, entry.input_format, entry.training_format == "BGR", scale)


def _scale(facts: FixedFacts, name: str) -> float:
    """The scale of a RAWDATA_S16_NHWC input: that of its range, as the SDK's file has it, at 16 bits."""
    ranges = facts.origin.ranges if facts.origin else {}
    if name in ranges:
        largest = float(max(np.abs(ranges[name].min).max(), np.abs(ranges[name].max).max()))
        return (float(f"{largest:.6f}") or largest) / 32767
    if name not in facts.tensors:
        raise ConfigError(f"the input {name!r} is not quantised, so the board reads no integers of it")
    return facts.tensors[name].scale


def raw_input(array: np.ndarray, form: str, blue_first: bool = False, scale: float | None = None) -> bytes:
    """The buffer of one input.

    array       N, H, W, C as the preprocess file gives it: bytes 0..255 of a picture, real values of RAWDATA.
    form        of ``input_formats``.
    blue_first  the order of the picture's channels.
    scale       of RAWDATA_S16_NHWC.

    Raises ConfigError for a format of which no buffer is known.
    """
    if form == RAWDATA_S16:
        assert scale is not None, "a stored tensor has one"
        steps = np.trunc(array.astype(np.float64) / float(np.float32(scale)))
        return pad_channels(np.clip(steps, -32768, 32767).astype("<i2")).tobytes()
    if array.ndim != 4 or form.startswith("RAWDATA"):
        raise ConfigError(
            f"what the board reads of an input of format {form} and shape {list(array.shape)} is not known"
        )
    return b"".join(_picture(pixels, form, blue_first) for pixels in _bytes(array))


def _picture(pixels: np.ndarray, form: str, blue_first: bool) -> bytes:
    height, width, channels = pixels.shape
    if form == "GRAY":
        plane = pixels.reshape(-1)[: height * width].reshape(height, width)
        plane = _rows(np.pad(plane, ((0, height % 2), (0, 0)), mode="edge"))
        return plane.tobytes() + bytes(plane.size // 2)
    if channels != 3:
        raise ConfigError(f"a picture of {channels} channels is not one of format {form}")
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
    """With the last row and column once more where their number is odd."""
    more = [(0, size % 2) for size in pixels.shape[:2]] + [(0, 0)] * (pixels.ndim - 2)
    return np.pad(pixels, more, mode="edge")


def _rows(plane: np.ndarray) -> np.ndarray:
    return np.pad(plane, ((0, 0), (0, -plane.shape[1] % ROW_BYTES)))


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(array), 0, 255).astype(np.uint8)
