"""A grouped convolution's weights in FRACTAL_Z: the groups lie along the diagonals of blocks, zeros around them.

Of a convolution in g groups, C is that of one group; E groups lie along the diagonal of each block,
E = min(lcm(lcm(C, C0) / C, lcm(N/g, N0) / (N/g)), g), so a block has E * C rounded up channels, E * N/g rounded up
outputs, and there are g / E rounded up blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sgsdump.tensors.device.blocks import AXES, Original, blocks_for, gathered, in_blocks, scattered


class Groups(NamedTuple):
    """A grouped convolution's weights: how many blocks, the groups in each, and a block's channels and outputs."""

    blocks: int
    each: int
    channels: int
    outputs: int

    @classmethod
    def of(cls, of: Original, c0: int, n0: int) -> Groups:
        c, n, groups = of.size("C"), of.size("N") // of.groups, of.groups
        each = 1
        if groups > 1:
            each = min(math.lcm(math.lcm(c, c0) // c, math.lcm(n, n0) // n), groups)
        return cls(blocks_for(groups, each), each, each * c, each * n)


def _places(of: Original, groups: Groups) -> Iterator[tuple[int, tuple[slice, ...], tuple[slice, ...]]]:
    """For each group its block, its part of that, and its part of the original."""
    c, n = of.size("C"), of.size("N") // of.groups
    for group in range(of.groups):
        block, inner = divmod(group, groups.each)
        inside = {"N": slice(inner * n, (inner + 1) * n), "C": slice(inner * c, (inner + 1) * c)}
        outside = {"N": slice(group * n, (group + 1) * n)}
        parts = [tuple(cut.get(letter, slice(None)) for letter in of.letters) for cut in (inside, outside)]
        yield block, parts[0], parts[1]


def _block_shape(of: Original, groups: Groups) -> tuple[int, ...]:
    return tuple({"N": groups.outputs, "C": groups.channels}.get(letter, of.size(letter)) for letter in of.letters)


def ungrouped(values: np.ndarray, of: Original) -> np.ndarray:
    """Stored values, one block after another along the first axis, as the original."""
    groups = Groups.of(of, values.shape[-1], values.shape[-2])
    whole = Original(of.letters, _block_shape(of, groups), 1)
    blocks = values.reshape(groups.blocks, -1, *values.shape[1:])
    dense = [gathered(in_blocks(block, "FRACTAL_Z", whole), AXES["FRACTAL_Z"], whole) for block in blocks]
    joined = np.empty(of.shape, values.dtype)
    for block, inside, outside in _places(of, groups):
        joined[outside] = dense[block][inside]
    return joined


def grouped(array: np.ndarray, of: Original, c0: int, n0: int) -> np.ndarray:
    """``ungrouped`` back: (G, C1, H, W, N1, N0, C0), with zeros beside the groups."""
    groups = Groups.of(of, c0, n0)
    dense = np.zeros((groups.blocks, *_block_shape(of, groups)), array.dtype)
    for block, inside, outside in _places(of, groups):
        dense[block][inside] = array[outside]
    return np.stack([scattered(one, of.letters, AXES["FRACTAL_Z"], {"C": c0, "N": n0}) for one in dense])
