"""A tensor seen as images, channels, height and width, whatever its rank, and cut into blocks of bounded size."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

BLOCK = 1 << 16


@dataclass(frozen=True)
class Planes:
    """shape    (images, channels, height, width); of other ranks than 4 the last axis is the channels'.

    axes      the order of the tensor's own axes that gives ``shape``; () where it is reshaped first.
    channels  whether the tensor has channels, ``pictures`` whether it has height and width.
    """

    shape: tuple[int, int, int, int]
    axes: tuple[int, ...]
    channels: bool
    pictures: bool

    def view(self, array: np.ndarray) -> np.ndarray:
        if self.axes:
            return array.transpose(self.axes)
        images, channels, height, width = self.shape
        return array.reshape(images, height, width, channels).transpose(0, 3, 1, 2)

    def blocks(self) -> Iterator[tuple[int, slice, slice, slice]]:
        """Indices of parts of at most BLOCK values that together are the whole."""
        images, channels, height, width = self.shape
        wide = max(min(width, BLOCK), 1)
        deep = max(min(channels, BLOCK // wide), 1)
        high = max(min(height, BLOCK // (wide * deep)), 1)
        for image in range(images):
            for c in range(0, channels, deep):
                for h in range(0, height, high):
                    for w in range(0, width, wide):
                        yield (
                            image,
                            slice(c, min(c + deep, channels)),
                            slice(h, min(h + high, height)),
                            slice(w, min(w + wide, width)),
                        )


def planes_of(shape: tuple[int, ...], layout: str | None) -> Planes:
    """How to see a tensor of this shape. ``layout`` decides for four axes; where it is neither NCHW nor NHWC, height
    and width are the two that are more alike, and channels come first where that does not decide."""
    if len(shape) == 4:
        last = layout == "NHWC" if layout in ("NCHW", "NHWC") else _channels_last(shape)
        axes = (0, 3, 1, 2) if last else (0, 1, 2, 3)
        images, channels, height, width = (shape[axis] for axis in axes)
        return Planes((images, channels, height, width), axes, channels > 1, height * width > 1)
    if len(shape) < 2:
        return Planes((1, 1, 1, math.prod(shape)), (), False, False)
    return Planes((1, shape[-1], 1, math.prod(shape[:-1])), (), shape[-1] > 1, False)


def _channels_last(shape: tuple[int, ...]) -> bool:
    def unlike(height: int, width: int) -> float:
        return abs(math.log(max(height, 1) / max(width, 1)))

    return unlike(shape[1], shape[2]) < unlike(shape[2], shape[3])
