"""A picture becomes an input, resized and normalised as input_config.ini says.

Pillow decodes, turned upright by the EXIF note and without alpha, as OpenCV's imread does. Resizing is half-pixel
bilinear without antialiasing (OpenCV's INTER_LINEAR, what most networks were trained with; Pillow's own averages when
it shrinks): output pixel i lies at (i + 0.5) * in/out - 0.5 of the input, clamped to its edge.
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

# where red, green and blue go; GRAY has one mean, of three the first is taken
ORDER = {"RGB": [0, 1, 2], "BGR": [2, 1, 0], "GRAY": [0]}
# Only these: of what else Pillow opens, EPS starts a program.
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
# In a picture's EXIF note; 1 is upright.
ORIENTATION = 0x0112
MOST_PIXELS = 1 << 28
MANY_PIXELS = 1 << 24
# Off whole grey levels by more, a normalised array was not made of bytes: float16 rounds by 0.06 of them.
GRID = 0.1
# A picture resized in floats lies between grey levels; one that spans fewer than these was normalised otherwise.
FEW_LEVELS = 64
MOST_A_BYTE = 4096  # pixels; a photograph has one or two, a picture of one colour in a PNG some 350
CHANNELS = {name: len(order) for name, order in ORDER.items()}


def channel_axis(shape: Sequence[int | None], channels: int) -> int | None:
    """The axis of a picture's channels in a model's input (None: a size that is not fixed): 1 for N, C, H, W, 3 for
    N, H, W, C, as TensorFlow has it; None for a shape that is no picture's of so many channels."""
    if len(shape) != 4:
        return None
    return 1 if shape[1] == channels else 3 if shape[3] == channels else 1 if shape[1] is None else None


def as_fed(entry: ModelInput, shape: Sequence[int | None]) -> ModelInput:
    """The entry with the training format that a model's input of this shape is fed in: a network of one channel is
    trained as RGB and fed as GRAY for the SDK, and takes a picture of GRAY."""
    lone = channel_axis(shape, 3) is None and channel_axis(shape, 1) is not None
    if lone and (entry.training_format, entry.input_format) == ("RGB", "GRAY"):
        return replace(entry, training_format="GRAY")
    return entry


def prepare(path: Path, entry: ModelInput, size: tuple[int | None, int | None], normalised: bool) -> np.ndarray:
    """float32 [1, H, W, C] in the training format's channel order: (x - mean) / std, or whole numbers 0..255.

    ``size`` is the model's (H, W); None keeps the picture's own, down to a multiple of the entry's alignment. Raises
    InputError for a file that is not a picture.
    """
    pixels = decode(path, gray=entry.training_format == "GRAY")
    alignments = entry.height_alignment, entry.width_alignment
    height, width = (
        fixed or max(natural // aligned, 1) * aligned for fixed, natural, aligned in zip(size, pixels.shape, alignments)
    )
    if height * width > MOST_PIXELS:
        raise InputError(f"the model takes a picture of {height} x {width} pixels, more than can be made of {path}")
    resized = resize(pixels, height, width)[None]
    ordered = resized[..., ::-1] if entry.training_format == "BGR" else resized
    return normalise(ordered, entry) if normalised else np.rint(ordered)


def normalise(pixels: np.ndarray, entry: ModelInput) -> np.ndarray:
    """(x - mean) / std in float32, of [..., C] in the training format's channel order."""
    mean, std = (np.array(triple, np.float32)[ORDER[entry.training_format]] for triple in (entry.mean, entry.std))
    normal: np.ndarray = pixels - mean
    normal /= std
    return normal


def normalise_planes(planes: np.ndarray, entry: ModelInput) -> np.ndarray:
    """(x - mean) / std in float32, of an array in the model's own layout, [N, C, H, W] or [N, H, W, C]."""
    mean, std = _by_plane(planes, entry)
    return ((planes.astype(np.float32) - mean) / std).astype(np.float32)


def bytes_of(array: np.ndarray, entry: ModelInput, what: str, rounding: bool = False) -> np.ndarray:
    """The picture's bytes, 0..255 in the array's own dtype, of which mean and std make ``array``; in its layout.

    rounding  also of a picture that lies between grey levels, as one resized in floats does.

    Raises InputError, its message begun by ``what``, for an array that mean and std make of no bytes.
    """
    mean, std = _by_plane(array, entry)
    levels = array * std + mean
    whole = np.rint(levels)
    low, high = (float(levels.min()), float(levels.max())) if array.size else (0.0, 0.0)
    apart = float(np.abs(levels - whole).max()) if array.size else 0.0
    between = apart > GRID and not (rounding and high - low >= FEW_LEVELS)
    if low < -0.5 or high > 255.5 or between:
        why = f", up to {apart:.2g} between whole ones" if between else ", not 0 to 255"
        raise InputError(
            f"{what}: mean and std_value of input_config make grey levels from {low:.4g} to {high:.4g} of it{why}; "
            f"make them agree, or let the input {entry.name!r} take numbers (RAWDATA_F32_NHWC in both of its formats)"
        )
    return whole.clip(0, 255).astype(array.dtype)


def pixels_of(array: np.ndarray, entry: ModelInput, measured: ModelInput | None, what: str) -> np.ndarray:
    """Return the pixels that a camera gave for a normalised picture, in the order of channels of ``entry``.

    Parameters
    ----------
    array
        What the preprocess file made of the picture, in the model's layout.
    entry
        The input as input_config.ini describes it.
    measured
        The input as the preprocess file was measured to make it. If it is known, the pixels are found by it, so that a
        wrong mean, std or order in input_config.ini shows in the fixed model as it does on the board.
    what
        Begins the message.

    Raises
    ------
    InputError
        If mean and std make no pixels of the array.
    """
    if measured is None or not measured.is_picture:
        return bytes_of(array, entry, what, rounding=True)
    return in_order(bytes_of(array, measured, what, rounding=True), entry, measured)


def in_order(pixels: np.ndarray, entry: ModelInput, measured: ModelInput | None) -> np.ndarray:
    """Return pixels that a preprocess file made, with their channels in the order of ``entry``, as a camera's are."""
    if measured is None or {entry.training_format, measured.training_format} != {"RGB", "BGR"}:
        return pixels
    return np.ascontiguousarray(np.flip(pixels, channel_axis(pixels.shape, CHANNELS[entry.training_format]) or 1))


def _by_plane(array: np.ndarray, entry: ModelInput) -> tuple[np.ndarray, np.ndarray]:
    """Mean and std, float64, that broadcast over the channels of an array."""
    axis = channel_axis(array.shape, CHANNELS[entry.training_format]) or channel_axis(array.shape, 1) or 1
    count = array.shape[axis] if array.ndim > axis else 1
    order = ORDER[entry.training_format][:count]
    shape = [count if index == axis else 1 for index in range(array.ndim)]
    triples = (np.array(values, np.float64)[order] for values in (entry.mean, entry.std))
    mean, std = (np.broadcast_to(values, count).reshape(shape) for values in triples)
    return mean, std


def decode(path: Path, gray: bool = False) -> np.ndarray:
    """uint8 [H, W, 3] in RGB order, or [H, W, 1]. Raises InputError."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    _keep_quiet("PIL")
    try:
        with _PILLOWS_WARNINGS, open_file(path) as file, Image.open(file, formats=FORMATS) as image:
            _check_size(image.size, os.fstat(file.fileno()).st_size)
            with no_native_messages() if image.format == "TIFF" else nullcontext():  # libtiff prints
                image.load()
            upright = image if image.getexif().get(ORIENTATION, 1) == 1 else ImageOps.exif_transpose(image)
            # 16 bits of gray, as PNG and TIFF have it; older Pillow says I of the PNG
            if upright.mode.startswith("I;16") or (upright.mode == "I" and image.format == "PNG"):
                upright = Image.fromarray((np.asarray(upright) >> 8).astype(np.uint8))
            mode = "L" if gray else "RGB"
            array = np.asarray(upright if upright.mode == mode else upright.convert(mode))
    except UnidentifiedImageError as error:
        raise InputError(f"{path} is not a picture that can be read ({', '.join(FORMATS)})") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise InputError(f"{path} is refused: its picture is larger than {Image.MAX_IMAGE_PIXELS} pixels") from error
    except Exception as error:  # damaged files make the decoders raise anything
        reason = getattr(error, "strerror", None) or str(error).split("\n")[0] or type(error).__name__
        raise InputError(f"cannot read the picture {path}: {reason[:150]}") from error
    return array.reshape(*array.shape[:2], -1)


def _check_size(size: tuple[int, int], file_bytes: int) -> None:
    """Raises ValueError for a large picture that so small a file cannot hold, for which a decoder would take the memory
    all the same."""
    pixels = size[0] * size[1]
    if pixels > MANY_PIXELS and pixels > MOST_A_BYTE * file_bytes:
        raise ValueError(f"{size[0]} x {size[1]} pixels in {file_bytes} bytes")


@contextmanager
def _pillows_warnings() -> Iterator[None]:
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what decoders say of damaged files is for their developers
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


class SharedContext:
    """A context that changes the whole process, for threads that are in it side by side: the first one in makes and
    enters it, the last one out leaves it."""

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
    """Its log goes to handlers that were set up; without this, Python prints it where there is none."""
    logger = logging.getLogger(library)
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())


def resize(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """float32 [height, width, C] of any [H, W, C], not rounded: OpenCV's resize of a float32 picture, INTER_LINEAR.

    Channel by channel, as the network will read them: numpy takes single bytes much faster than three, and what is
    made on the way is small enough to be kept by the allocator; fresh pages cost a fourth of reading a picture.
    """
    planes = np.ascontiguousarray(pixels.transpose(2, 0, 1))
    if pixels.shape[:2] == (height, width):
        return planes.astype(np.float32).transpose(1, 2, 0)
    left, right, weight = _taps(pixels.shape[1], width)
    above, below, row_weight = _taps(pixels.shape[0], height)
    # only the rows that are needed, each once; columns first as OpenCV does
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
    """For each output position its two input positions and the float32 weight of the second."""
    # OpenCV keeps the position in float32: without this rounding the pictures differ by 0.005 grey levels
    position = ((np.arange(target) + 0.5) * (length / target) - 0.5).astype(np.float32).clip(0, length - 1)
    first = np.floor(position)
    second = np.minimum(first + 1, length - 1)
    return first.astype(np.intp), second.astype(np.intp), (position - first).astype(np.float32)
