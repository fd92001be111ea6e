"""Taking the blocks of a device's layout apart and putting them together: views and copies of arrays.

A dimension of the logical tensor lies in one or two of the stored axes: how many blocks, and the place in a block.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

Axes = Mapping[str, tuple[int, ...]]

# By layout: where the parts of each dimension lie among the stored axes.
AXES: dict[str, Axes] = {
    "NC1HWC0": {"N": (0,), "C": (1, 4), "H": (2,), "W": (3,)},
    "NDC1HWC0": {"N": (0,), "D": (1,), "C": (2, 5), "H": (3,), "W": (4,)},
    "FRACTAL_Z": {"C": (0, 5), "H": (1,), "W": (2,), "N": (3, 4)},
    "FRACTAL_NZ": {"B": (0,), "n": (1, 4), "m": (2, 3)},
}


class Original(NamedTuple):
    """The logical tensor as its device's layout sees it: a letter and a size for each dimension."""

    letters: str
    shape: tuple[int, ...]
    groups: int

    def size(self, letter: str) -> int:
        return self.shape[self.letters.index(letter)] if letter in self.letters else 1


def blocks_for(size: int, block: int) -> int:
    """How many blocks hold ``size``."""
    return -(-size // block)


def matrix_shape(shape: Sequence[int]) -> tuple[int, int, int]:
    """(leading dimensions as one, rows, columns); a vector is one row."""
    padded = (1, 1, *shape)
    return math.prod(shape[:-2]), padded[-2], padded[-1]


def merged(base: str, stored: tuple[int, ...]) -> tuple[int, ...]:
    """A stored shape with the leading dimensions of matrices as one."""
    return (math.prod(stored[:-4]), *stored[-4:]) if base == "FRACTAL_NZ" else stored


def in_blocks(values: np.ndarray, base: str, of: Original) -> np.ndarray:
    """Stored values with an axis for each entry of ``AXES``."""
    if base == "FRACTAL_Z":
        n1, n0, c0 = values.shape[-3:]
        return values.reshape(blocks_for(of.size("C"), c0), of.size("H"), of.size("W"), n1, n0, c0)
    return values.reshape(merged(base, values.shape))


def gathered(blocks: np.ndarray, axes: Axes, of: Original) -> np.ndarray:
    """The dimensions of ``of`` in its order, each cropped to its size; one copy where blocks are taken apart."""
    absent = [place for letter in axes if letter not in of.letters for place in axes[letter]]
    order = [place for letter in of.letters for place in axes[letter]]
    sizes = [math.prod(blocks.shape[place] for place in axes[letter]) for letter in of.letters]
    whole = blocks.transpose([*order, *absent]).reshape(sizes)
    return whole[tuple(slice(size) for size in of.shape)]


def scattered(array: np.ndarray, of: str, axes: Axes, block: Mapping[str, int]) -> np.ndarray:
    """``gathered`` back, padded with zeros; ``block`` is the size of the inner block by letter."""
    padded = np.pad(array, [(0, -size % block.get(letter, 1)) for letter, size in zip(of, array.shape)])
    shape: list[int] = []
    order: list[int] = []
    for letter, size in zip(of, padded.shape):
        order += axes[letter]
        shape += [size // block[letter], block[letter]] if letter in block else [size]
    for letter in axes.keys() - set(of):
        order += axes[letter]
        shape += [1] * len(axes[letter])
    return np.ascontiguousarray(padded.reshape(shape).transpose(np.argsort(order)))
