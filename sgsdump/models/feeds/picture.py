"""Conversion of images to model inputs: decoding, resizing and normalisation as in input_config.ini.

Pillow decodes; images are rotated upright by their EXIF orientation and alpha is dropped, as in OpenCV's imread.
Resizing is half-pixel bilinear without antialiasing: OpenCV's INTER_LINEAR, which most networks were trained with.
Pillow's own bilinear filter averages when it shrinks. Output pixel i is at (i + 0.5) * in/out - 0.5 of the input,
clamped to the edge.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from threading import Lock

import numpy as np

from sgsdump.errors import InputError
from sgsdump.files.bounded_read import open_file
from sgsdump.files.process import no_native_messages
from sgsdump.sidecars.input_config import ModelInput

# Positions of red, green and blue. GRAY has one mean: the first of three.
ORDER = {"RGB": [0, 1, 2], "BGR": [2, 1, 0], "GRAY": [0]}
# Restricted because other formats of Pillow are unsafe: EPS starts a program.
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
# EXIF tag; the value 1 is upright.
ORIENTATION = 0x0112
MOST_PIXELS = 1 << 28
MANY_PIXELS = 1 << 24
# A normalised array further from integer grey levels was not made from bytes; float16 rounds by 0.06 levels.
GRID = 0.1
# An image resized in floats lies between grey levels. One that spans fewer levels was normalised differently.
FEW_LEVELS = 64
MOST_A_BYTE = 4096  # pixels per byte; a photograph has one or two, a PNG of one colour about 350
CHANNELS = {name: len(order) for name, order in ORDER.items()}


def channel_axis(shape: Sequence[int | None], channels: int) -> int | None:
    """Return the channel axis of an image in a model's input: 1 for N, C, H, W and 3 for N, H, W, C (TensorFlow).

    None in ``shape`` is an open size. Returns None if the shape is not that of an image with this number of channels.
    """
    if len(shape) != 4:
        return None
    return 1 if shape[1] == channels else 3 if shape[3] == channels else 1 if shape[1] is None else None


def as_fed(entry: ModelInput, shape: Sequence[int | None]) -> ModelInput:
    """Return the entry with the training format in which an input of this shape is fed.

    For the SDK, a network of one channel is trained as RGB and fed as GRAY; its input takes a GRAY image.
    """
    lone = channel_axis(shape, 3) is None and channel_axis(shape, 1) is not None
    if lone and (entry.training_format, entry.input_format) == ("RGB", "GRAY"):
        return replace(entry, training_format="GRAY")
    return entry


def prepare(path: Path, entry: ModelInput, size: tuple[int | None, int | None], normalised: bool) -> np.ndarray:
    """Return float32 [1, H, W, C] in the training format's channel order: (x - mean) / std, or integers 0..255.

    ``size`` is the model's (H, W); None keeps the image's own size, rounded down to a multiple of the entry's
    alignment. Raises InputError for a file that is not an image.
    """
    pixels = decode(path, gray=entry.training_format == "GRAY")
    alignments = entry.height_alignment, entry.width_alignment
    height, width = (
        fixed or max(natural // aligned, 1) * aligned for fixed, natural, aligned in zip(size, pixels.shape, alignments)
    )
    if height * width > MOST_PIXELS:
        raise InputError(f"cannot resize {path}: the model's input of {height} x {width} pixels is too large")
    resized = resize(pixels, height, width)[None]
    ordered = resized[..., ::-1] if entry.training_format == "BGR" else resized
    return normalise(ordered, entry) if normalised else np.rint(ordered)


def normalise(pixels: np.ndarray, entry: ModelInput) -> np.ndarray:
    """Return (x - mean) / std in float32, for [..., C] in the training format's channel order."""
    mean, std = (np.array(triple, np.float32)[ORDER[entry.training_format]] for triple in (entry.mean, entry.std))
    normal: np.ndarray = pixels - mean
    normal /= std
    return normal


def normalise_planes(planes: np.ndarray, entry: ModelInput) -> np.ndarray:
    """Return (x - mean) / std in float32, for an array in the model's layout [N, C, H, W] or [N, H, W, C]."""
    mean, std = _by_plane(planes, entry)
    return ((planes.astype(np.float32) - mean) / std).astype(np.float32)


def bytes_of(array: np.ndarray, entry: ModelInput, what: str, rounding: bool = False) -> np.ndarray:
    """Return the image's bytes (0..255) that mean and std turn into ``array``, in its dtype and layout.

    rounding  True accepts an image between grey levels, such as one resized in floats

    Raises InputError, with a message that begins with ``what``, if no bytes give this array.
    """
    mean, std = _by_plane(array, entry)
    levels = array * std + mean
    whole = np.rint(levels)
    low, high = (float(levels.min()), float(levels.max())) if array.size else (0.0, 0.0)
    apart = float(np.abs(levels - whole).max()) if array.size else 0.0
    between = apart > GRID and not (rounding and high - low >= FEW_LEVELS)
    if low < -0.5 or high > 255.5 or between:
        why = f", which are up to {apart:.2g} away from integers" if between else ", not 0 to 255"
        raise InputError(
            f"{what}: with mean and std_value of input_config, the values correspond to grey levels "
            f"from {low:.4g} to {high:.4g}{why}. Correct mean and std_value, or set "
            f"training_input_formats and input_formats of input {entry.name!r} to RAWDATA_F32_NHWC"
        )
    return whole.clip(0, 255).astype(array.dtype)


def pixels_of(array: np.ndarray, entry: ModelInput, measured: ModelInput | None, what: str) -> np.ndarray:
    """Return the camera pixels of a normalised image, with channels in the order of ``entry``.

    array     result of the preprocess file, in the model's layout
    entry     input as in input_config.ini
    measured  input as measured from the preprocess file. If known, it determines the pixels, so that a wrong mean,
              std or order in input_config.ini shows in the fixed model as on the board.
    what      begins the message

    Raises InputError if mean and std give no pixels for the array.
    """
    if measured is None or not measured.is_picture:
        return bytes_of(array, entry, what, rounding=True)
    return in_order(bytes_of(array, measured, what, rounding=True), entry, measured)


def in_order(pixels: np.ndarray, entry: ModelInput, measured: ModelInput | None) -> np.ndarray:
    """Return pixels made by a preprocess file, with channels in the order of ``entry``, as a camera gives them."""
    if measured is None or {entry.training_format, measured.training_format} != {"RGB", "BGR"}:
        return pixels
    return np.ascontiguousarray(np.flip(pixels, channel_axis(pixels.shape, CHANNELS[entry.training_format]) or 1))


def _by_plane(array: np.ndarray, entry: ModelInput) -> tuple[np.ndarray, np.ndarray]:
    """Return float64 mean and std that broadcast over the channels of an array."""
    axis = channel_axis(array.shape, CHANNELS[entry.training_format]) or channel_axis(array.shape, 1) or 1
    count = array.shape[axis] if array.ndim > axis else 1
    order = ORDER[entry.training_format][:count]
    shape = [count if index == axis else 1 for index in range(array.ndim)]
    triples = (np.array(values, np.float64)[order] for values in (entry.mean, entry.std))
    mean, std = (np.broadcast_to(values, count).reshape(shape) for values in triples)
    return mean, std


def decode(path: Path, gray: bool = False) -> np.ndarray:
    """Decode an image to uint8 [H, W, 3] in RGB order, or [H, W, 1]. Raises InputError."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    _keep_quiet("PIL")
    try:
        with _PILLOWS_WARNINGS, open_file(path) as file, Image.open(file, formats=FORMATS) as image:
            _check_size(image.size, os.fstat(file.fileno()).st_size)
            with no_native_messages() if image.format == "TIFF" else nullcontext():  # libtiff prints
                image.load()
            upright = image if image.getexif().get(ORIENTATION, 1) == 1 else ImageOps.exif_transpose(image)
            # 16-bit gray of PNG and TIFF; older Pillow reports mode I for PNG.
            if upright.mode.startswith("I;16") or (upright.mode == "I" and image.format == "PNG"):
                upright = Image.fromarray((np.asarray(upright) >> 8).astype(np.uint8))
            mode = "L" if gray else "RGB"
            array = np.asarray(upright if upright.mode == mode else upright.convert(mode))
    except UnidentifiedImageError as error:
        raise InputError(f"{path} is not an image of a supported format ({', '.join(FORMATS)})") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise InputError(
            f"{path} is not read, because the image is larger than {Image.MAX_IMAGE_PIXELS} pixels"
        ) from error
    except Exception as error:  # decoders raise arbitrary exceptions for damaged files
        reason = getattr(error, "strerror", None) or str(error).split("\n")[0] or type(error).__name__
        raise InputError(f"cannot read the image {path}: {reason[:150]}") from error
    return array.reshape(*array.shape[:2], -1)


def _check_size(size: tuple[int, int], file_bytes: int) -> None:
    """Raise ValueError for a large image that such a small file cannot hold; a decoder would still allocate it."""
    pixels = size[0] * size[1]
    if pixels > MANY_PIXELS and pixels > MOST_A_BYTE * file_bytes:
        raise ValueError(f"a file of {file_bytes} bytes cannot hold {size[0]} x {size[1]} pixels")


@contextmanager
def _pillows_warnings() -> Iterator[None]:
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # decoders' warnings about damaged files are for their developers
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


class SharedContext:
    """A process-wide context shared by threads: the first thread enters it, the last one leaves it."""

    def __init__(self, make: Callable[[], AbstractContextManager]):
        self._make = make
        self._lock, self._inside = Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._context = self._make()
                self._context.__enter__()
            self._inside += 1

    def __exit__(self, *failure: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._context.__exit__(None, None, None)


_PILLOWS_WARNINGS = SharedContext(_pillows_warnings)


def _keep_quiet(library: str) -> None:
    """Prevent Python from printing a library's log if no handler is set up."""
    logger = logging.getLogger(library)
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())


def resize(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """Resize [H, W, C] to float32 [height, width, C] without rounding, as OpenCV's INTER_LINEAR on a float32 image.

    Channels are processed one by one, in the order in which the network reads them. numpy reads single bytes much
    faster than groups of three, and small temporaries are reused by the allocator: fresh pages take a quarter of the
    time of reading an image.
    """
    planes = np.ascontiguousarray(pixels.transpose(2, 0, 1))
    if pixels.shape[:2] == (height, width):
        return planes.astype(np.float32).transpose(1, 2, 0)
    left, right, weight = _taps(pixels.shape[1], width)
    above, below, row_weight = _taps(pixels.shape[0], height)
    # Only the needed rows, each once; columns first as in OpenCV.
    rows, positions = np.unique(np.concatenate([above, below]), return_inverse=True)
    above, below = np.split(positions, 2)
    resized = np.empty((len(planes), height, width), np.float32)
    for plane, target in zip(planes, resized):
        kept = plane.take(rows, axis=0)
        across = _blend(kept.take(left, axis=1), kept.take(right, axis=1), weight)
        target[:] = _blend(across.take(above, axis=0), across.take(below, axis=0), row_weight[:, None])
    return resized.transpose(1, 2, 0)


def _blend(first: np.ndarray, second: np.ndarray, weight: np.ndarray) -> np.ndarray:
    blended: np.ndarray = first * (1 - weight)
    blended += second * weight
    return blended


def _taps(length: int, target: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each output position its two input positions and the float32 weight of the second."""
    # OpenCV keeps the position in float32: without this rounding, images differ by 0.005 grey levels.
    position = ((np.arange(target) + 0.5) * (length / target) - 0.5).astype(np.float32).clip(0, length - 1)
    first = np.floor(position)
    second = np.minimum(first + 1, length - 1)
    return first.astype(np.intp), second.astype(np.intp), (position - first).astype(np.float32)
