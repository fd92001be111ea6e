"""Whether the float and the fixed model are shown the same picture: the user's preprocess file says how the one is
normalised, input_config.ini says it of the other, and nothing else holds them together.

The fixed model takes the raw picture and computes real = (byte - mean) / std. One picture made both ways tells; a
``mean`` of 0 where the preprocess file takes 123 off is a difference of 123 grey levels, and a fixed model of no use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from sgsdump.errors import InputError
from sgsdump.quantisation.pictures import Picture

# Rounding a picture to bytes costs half a grey level; a preprocess file that rounds elsewhere, another half.
MOST_LEVELS = 1.0


@dataclass(frozen=True)
class InputDifference:
    """How far the fixed model's picture is from the float model's, on one picture.

    largest  in the units of the model's input.
    levels   in grey levels: what the channel's std makes of it.
    rounded  whether there was no raw picture to hold it against, and the float model's own was rounded to bytes; then
             only what bytes cannot hold shows.
    """

    name: str
    largest: float
    levels: float
    rounded: bool

    @property
    def agrees(self) -> bool:
        return self.levels <= MOST_LEVELS

    def __str__(self) -> str:
        far = f"up to {self.largest:g}, {self.levels:.3g} grey levels"
        if self.rounded:
            return (
                f"input {self.name!r}: with mean and std_value of input_config the preprocessed picture is no picture "
                f"of bytes 0 to 255 ({far} away); make preprocessing and input_config agree"
            )
        return (
            f"input {self.name!r}: the preprocessed picture and what mean and std_value of input_config make of the "
            f"raw one differ ({far}); make them agree, or the fixed model sees another picture than the float model"
        )


def input_differences(
    feed: Mapping[str, np.ndarray],
    make_raw: Callable[[], Mapping[str, np.ndarray]] | None,
    pictures: Mapping[str, Picture],
) -> list[InputDifference]:
    """For every picture input how far the two ways are apart.

    feed      what the float model takes.
    make_raw  gives the same picture not normalised, 0..255; None, or InputError raised, when it cannot be had.
    """
    try:
        raw = make_raw() if make_raw and pictures else {}
    except InputError:
        raw = {}
    return [_difference(name, feed[name], raw.get(name), picture) for name, picture in pictures.items()]


def raw_bytes(array: np.ndarray, picture: Picture) -> np.ndarray:
    """The bytes of a normalised picture [N, C, H, W], as float32: what a fixed model's picture input takes."""
    mean, std = _channels(picture)
    return np.clip(np.round(array * std + mean), 0, 255).astype(np.float32)


def _difference(name: str, real: np.ndarray, raw: np.ndarray | None, picture: Picture) -> InputDifference:
    mean, std = _channels(picture)
    rounded = raw is None or raw.shape != real.shape
    given = raw_bytes(real, picture) if rounded else np.asarray(raw, np.float64)
    apart = np.abs((given - mean) / std - real)
    return InputDifference(name, float(apart.max()), float((apart * std).max()), rounded)


def _channels(picture: Picture) -> tuple[np.ndarray, np.ndarray]:
    """Mean and std, float64 [1, C, 1, 1]."""
    mean, std = (np.asarray(each, np.float64).reshape(1, -1, 1, 1) for each in (picture.mean, picture.std))
    return mean, std
