"""What the outputs say on the picture that is furthest off: the picture, and both models' largest values beside it."""

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
# Pixels of a thumbnail's longer side, and of the largest one that stays as it is, a PNG.
SIDE, SMALL = 256, 96


@dataclass(frozen=True)
class Said:
    """One value of an output: its place, and what both models give there; ``first``: the largest of the float model's,
    and of the fixed model's."""

    output: str
    place: str
    benchmark: float
    sample: float
    first: tuple[bool, bool]


@dataclass(frozen=True)
class Thumbnail:
    """A picture in a page: ``source`` is a data URI; width and height as it is shown, ``pixelated`` where that is
    larger than it is."""

    source: str
    width: int
    height: int
    pixelated: bool = False


@dataclass(frozen=True)
class WorstPicture:
    """The picture, the values, and whether the largest one of each output is at the same place in both models;
    ``image`` None where the input is no picture; ``kind`` of the model beside the float one."""

    label: str
    said: tuple[Said, ...]
    agrees: bool
    image: Thumbnail | None = None
    kind: str = "fixed"


def worst_picture(
    label: str, floats: Mapping[str, np.ndarray], fixed: Mapping[str, np.ndarray], pixels: np.ndarray | None = None
) -> WorstPicture | None:
    """Of real values by output, the three largest of either model; None where nothing is to be shown: no finite values,
    too many, or other shapes.

    pixels  the picture, bytes of shape H, W or H, W, 3 (RGB); None where the input is no picture.
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
    """What a model that others quantised says on the input with the largest error; its first file, where that is a
    picture.

    found   that input's place among the ``chosen`` of the ``feeds``, and by output the quantised model's values and the
            float one's; None: nothing differs.
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
        with suppress(InputError):  # not every file is a picture
            pixels = decode(Path(feeds.runs[chosen[place]][0]))
    floats, quantised = ({name: both[side] for name, both in outputs.items()} for side in (1, 0))
    worst = worst_picture(label, floats, quantised, pixels)
    return worst and replace(worst, kind="quantised")


def thumbnail(pixels: np.ndarray) -> Thumbnail:
    """Of bytes of shape H, W or H, W, 3: a JPEG of at most SIDE pixels a side; a small picture as it is, a PNG that is
    shown larger."""
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
            del indices[0]  # of axes of one place
        where = ", ".join(map(str, indices))
        yield Said(name, where, float(real[place]), float(own[place]), (place == best[0][0], place == best[1][0]))
