"""The order in which the sums of a pair are added up, and how a pair is cut for it: what both ways of summing share.

A chunk of at most CHUNK values is seen as rows of LANES values: value i belongs to lane i % LANES. Each lane is summed
row by row, and then added to the lane's total; at the end the lanes are added up, the first one first. All of it is
float64. So the digits depend on nothing but the values: not on the processor, the number of threads, or whether the
compiled kernel is there. (Dot products, as fast as they are, have another order on every processor.)

A pair is walked as tables of rows and columns, in tiles of at most a chunk, in parts that may go side by side. Where a
side is a transposed view, the tiles are broad in the memory of both. The order depends on shape and strides alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from sgsdump.tensors.tensor import Values

LANES = 256
CHUNK = 1 << 15
SUMS = 6
COUNTS = 7
# Of a part of a pair: Σa², Σb², Σab, Σd², Σ|d| and Σ|b|, and the counts of ``Sums`` from ``sample_nan`` on.
Part = tuple[list[float], list[int]]


PART = 128 * CHUNK
ENOUGH = 64  # values of a channel
_BROAD = 64


@dataclass(frozen=True, eq=False)
class Table:
    """Two-dimensional views of both sides, of one shape, and the shape of the tiles."""

    a: np.ndarray
    b: np.ndarray
    tile: tuple[int, int]

    @property
    def size(self) -> int:
        return self.a.size

    @property
    def is_flat(self) -> bool:
        """Whether no other table has values between those of this one."""
        return len(self.a) == 1 and self.a.flags.c_contiguous and self.b.flags.c_contiguous

    def tiles(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Row by row; the last ones of a row or column are smaller."""
        (rows, columns), (high, wide) = self.a.shape, self.tile
        for row in range(0, rows, high):
            for column in range(0, columns, wide):
                tile = slice(row, row + high), slice(column, column + wide)
                yield self.a[tile], self.b[tile]

    def cut(self) -> Iterator[Table]:
        """Of whole tiles, each of about PART values."""
        (rows, columns), (high, wide) = self.a.shape, self.tile
        if rows == 1:
            for column in range(0, columns, PART // wide * wide):
                columns_of_part = slice(column, column + PART // wide * wide)
                yield Table(self.a[:, columns_of_part], self.b[:, columns_of_part], self.tile)
            return
        step = max(1, PART // (columns * high)) * high
        for row in range(0, rows, step):
            yield Table(self.a[row : row + step], self.b[row : row + step], self.tile)


def parts(a: np.ndarray, b: np.ndarray) -> Iterator[list[Table]]:
    """Two arrays of equal shape as lists of tables of about PART values each: small tables come together, a large one
    is cut."""
    part: list[Table] = []
    size = 0
    if 0 < a.size <= PART and a.flags.c_contiguous and b.flags.c_contiguous:
        yield [Table(a.reshape(1, -1), b.reshape(1, -1), (1, min(a.size, CHUNK)))]
        return
    for table in _tables(a, b):
        for piece in table.cut() if table.size > PART else [table]:
            part.append(piece)
            size += piece.size
            if size >= PART:
                yield part
                part, size = [], 0
    if part:
        yield part


def _tables(a: np.ndarray, b: np.ndarray) -> Iterator[Table]:
    if not a.size:
        return
    shape = _merged(a, b)
    *outer, rows, columns = (1,) * (2 - len(shape)) + shape
    high = min(rows, _BROAD)
    wide = min(columns, CHUNK // high)
    tile = min(rows, CHUNK // wide), wide
    a, b = (side.reshape(*outer, rows, columns) for side in (a, b))  # views: nothing is merged that needs a copy
    for index in np.ndindex(*outer):
        yield Table(a[index], b[index], tile)


def _merged(a: np.ndarray, b: np.ndarray) -> tuple[int, ...]:
    """The shape with as few axes as the strides of both allow."""
    if a.flags.c_contiguous and b.flags.c_contiguous:
        return (a.size,)
    axes = [axis for axis in zip(a.shape, a.strides, b.strides) if axis[0] != 1]
    merged = axes[:1]
    for size, *strides in axes[1:]:
        before, *steps = merged[-1]
        if all(step == size * stride for step, stride in zip(steps, strides)):
            merged[-1] = (before * size, strides[0], strides[1])
        else:
            merged.append((size, strides[0], strides[1]))
    shape = tuple(size for size, *_ in merged)
    assert math.prod(shape) == a.size
    return shape


class Picked:
    """The real values at some places of a tensor, as float32; they count when they are ``whole``.

    shape   of the tensor as stored.
    places  flat indices into it, ascending, as int64.
    """

    __slots__ = ("places", "shape", "values", "whole")

    def __init__(self, shape: tuple[int, ...], places: np.ndarray):
        self.shape, self.places = shape, places
        self.values = np.empty(len(places), np.float32)
        self.whole = False


class ChannelSums:
    """The sums of |a-b| and of |b| of each channel, to six digits; they count when they are ``whole``. Of channels of
    more than twice ENOUGH values an even share is taken, unless ``skip`` says which.

    axis    the channels' axis of the arrays.
    inner   how many values of a channel follow each other.
    skip    of so many values one is taken.
    totals  (2, channels) float64.
    """

    __slots__ = ("axis", "count", "inner", "skip", "totals", "whole")

    def __init__(self, shape: tuple[int, ...], axis: int, skip: int | None = None):
        self.axis, self.count = axis, shape[axis]
        self.inner, self.skip = _inner_and_skip(shape, axis)
        self.skip = skip or self.skip
        self.totals = np.zeros((2, self.count))
        self.whole = False


@lru_cache(maxsize=1024)
def _inner_and_skip(shape: tuple[int, ...], axis: int) -> tuple[int, int]:
    """The share is odd: widths and heights are mostly even, and one column is not a fair share."""
    skip = math.prod(shape) // max(shape[axis], 1) // ENOUGH
    return math.prod(shape[axis + 1 :]), skip | 1 if skip > 1 else 1


class ToSum(NamedTuple):
    """Two sides of equal shape, whether the kernel takes them, values of either to be picked up where it reads both
    in the order in which they are stored, and the sums of its channels."""

    sample: Values
    benchmark: Values
    by_kernel: bool
    picked: tuple[Picked, Picked] | None = None
    channels: ChannelSums | None = None

    @property
    def is_flat(self) -> bool:
        """Whether the values of both lie one after the other."""
        flat: bool = self.sample.array.flags.c_contiguous and self.benchmark.array.flags.c_contiguous
        return flat


def are_wide(a: Values, b: Values) -> bool:
    """Return whether float64 may lose the difference: integers of 64 bits, of one type, real as stored."""
    types = a.array.dtype, b.array.dtype
    return types[0] == types[1] and types[0].kind in "iu" and types[0].itemsize == 8 and a.to_real is b.to_real is None
