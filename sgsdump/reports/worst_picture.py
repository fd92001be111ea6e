"""Outputs on the image with the largest error: the image, and the largest output values of both models."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

MOST_OUTPUTS, MOST_VALUES = 4, 1 << 20
TOP = 3
# Longer side of a thumbnail in pixels, and longer side up to which an image is kept unchanged as PNG.
SIDE, SMALL = 256, 96


@dataclass(frozen=True)
class Said:
    """Value of an output in both models.

    place  index of the value as text.
    first  whether the value is the largest of the float model, and of the fixed model.
    """

    output: str
    place: str
    benchmark: float
    sample: float
    first: tuple[bool, bool]


@dataclass(frozen=True)
class Thumbnail:
    """Image in a page.

    source         data URI.
    width, height  displayed size; ``pixelated`` if it is larger than the image.
    """

    source: str
    width: int
    height: int
    pixelated: bool = False


@dataclass(frozen=True)
class WorstPicture:
    """Image with the largest error, and the outputs on it.

    agrees  whether both models have the largest value of each output at the same index.
    image   thumbnail; None if the input is not an image.
    kind    kind of the model that is compared with the float model: fixed or quantised.
    """

    label: str
    said: tuple[Said, ...]
    agrees: bool
    image: Thumbnail | None = None
    kind: str = "fixed"


def worst_picture(
    label: str, floats: Mapping[str, np.ndarray], fixed: Mapping[str, np.ndarray], pixels: np.ndarray | None = None
) -> WorstPicture | None:
    """Return the three largest values of either model for each output.

    None if no output has finite values, equal shapes, and a size that can be shown.

    floats, fixed  real values by output.
    pixels         image, uint8 of shape (H, W) or (H, W, 3) (RGB); None if the input is not an image.
    """
    shown = {
        name: (values, fixed[name])
        for name, values in floats.items()
        if name in fixed and fixed[name].shape == values.shape and 1 < values.size <= MOST_VALUES
        if np.isfinite(values).all() and np.isfinite(fixed[name]).all()
    }
    said = tuple(one for name, both in list(shown.items())[:MOST_OUTPUTS] for one in _said(name, *both))
    agrees = all(one.first[0] == one.first[1] for one in said)
    return WorstPicture(label, said, agrees, None if pixels is None else thumbnail(pixels)) if said else None


def worst_input(
    found: tuple[int, Mapping[str, tuple[np.ndarray, np.ndarray]]] | None,
    feeds: Sequence[tuple[str, Mapping[str, np.ndarray]]],
    chosen: Sequence[int],
) -> WorstPicture | None:
    """Return the outputs of a model quantised with another tool, on the input with the largest error.

    found  index of this input in ``chosen``, and by output the values of the quantised and the float model; None if
           nothing differs. The first file of the input is shown if it is an image.
    """
    from sgsdump.errors import InputError
    from sgsdump.models.feeds.feeds import PictureFeeds
    from sgsdump.models.feeds.picture import decode

    if found is None:
        return None
    place, outputs = found
    label, pixels = feeds[chosen[place]][0], None
    if isinstance(feeds, PictureFeeds):
        label = feeds.labels[chosen[place]]
        with suppress(InputError):  # not every file is an image
            pixels = decode(Path(feeds.runs[chosen[place]][0]))
    floats, quantised = ({name: both[side] for name, both in outputs.items()} for side in (1, 0))
    worst = worst_picture(label, floats, quantised, pixels)
    return worst and replace(worst, kind="quantised")


def thumbnail(pixels: np.ndarray) -> Thumbnail:
    """Return a JPEG with at most SIDE pixels per side; a small image as a PNG that is shown enlarged.

    pixels  uint8 of shape (H, W) or (H, W, 3).
    """
    from PIL import Image

    image, file = Image.fromarray(np.ascontiguousarray(pixels)), io.BytesIO()
    longer = max(image.size)
    if longer <= SMALL:
        image.save(file, "PNG", optimize=True)
        times = max(SIDE // 2 // longer, 1)
        width, height = (times * side for side in image.size)
        return Thumbnail(_data_uri("png", file), width, height, times > 1)
    image.thumbnail((SIDE, SIDE))
    image.save(file, "JPEG", quality=85, optimize=True)
    return Thumbnail(_data_uri("jpeg", file), *image.size)


def _data_uri(kind: str, file: io.BytesIO) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"


def _said(name: str, floats: np.ndarray, fixed: np.ndarray) -> Iterator[Said]:
    real, own = floats.reshape(-1).astype(np.float64), fixed.reshape(-1).astype(np.float64)
    best = [np.argsort(-values, kind="stable")[:TOP] for values in (real, own)]
    for place in sorted(set(best[0].tolist()) | set(best[1].tolist()), key=lambda index: -real[index]):
        indices = [int(index) for index in np.unravel_index(place, floats.shape)]
        while len(indices) > 1 and floats.shape[-len(indices)] == 1:
            del indices[0]  # leading axes of size 1
        where = ", ".join(map(str, indices))
        yield Said(name, where, float(real[place]), float(own[place]), (place == best[0][0], place == best[1][0]))
