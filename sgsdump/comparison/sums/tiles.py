"""Order in which the sums of a pair are added up, and how a pair is cut; common to both implementations.

A chunk of at most CHUNK values is viewed as rows of LANES values: value i belongs to lane i % LANES. Each lane is
summed row by row and then added to the lane's total. At the end the lanes are added up, first lane first. Everything is
float64. The digits therefore depend only on the values: not on the processor, the number of threads, or the presence of
the compiled kernel. (Dot products are as fast, but their order differs between processors.)

A pair is walked as tables of rows and columns, in tiles of at most a chunk, in parts that may run in parallel. If a
side is a transposed view, the tiles are wide in the memory of both sides. The order depends only on shape and strides.
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
# Result of a part: Σa², Σb², Σab, Σd², Σ|d|, Σ|b|, and the counts of ``Sums`` from ``sample_nan`` on.
Part = tuple[list[float], list[int]]


PART = 128 * CHUNK
ENOUGH = 64  # values per channel that are sufficient
_BROAD = 64


@dataclass(frozen=True, eq=False)
class Table:
    """Two-dimensional views of both sides with equal shape, and the shape of the tiles."""

    a: np.ndarray
    b: np.ndarray
    tile: tuple[int, int]

    @property
    def size(self) -> int:
        return self.a.size

    @property
    def is_flat(self) -> bool:
        """True if both sides are contiguous, so that no other table has values in between."""
        return len(self.a) == 1 and self.a.flags.c_contiguous and self.b.flags.c_contiguous

    def tiles(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the tiles row by row; the last tiles of a row or column are smaller."""
        (rows, columns), (high, wide) = self.a.shape, self.tile
        for row in range(0, rows, high):
            for column in range(0, columns, wide):
                tile = slice(row, row + high), slice(column, column + wide)
                yield self.a[tile], self.b[tile]

    def cut(self) -> Iterator[Table]:
        """Yield tables of whole tiles with about PART values each."""
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
    """Yield two arrays of equal shape as lists of tables with about PART values per list.

    Small tables are grouped, a large table is cut.
    """
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
    a, b = (side.reshape(*outer, rows, columns) for side in (a, b))  # views: axes are merged only if no copy is needed
    for index in np.ndindex(*outer):
        yield Table(a[index], b[index], tile)


def _merged(a: np.ndarray, b: np.ndarray) -> tuple[int, ...]:
    """Return the shape with as few axes as the strides of both arrays allow."""
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
    """Real values at some positions of a tensor as float32; valid if ``whole``.

    shape   shape of the tensor as stored.
    places  ascending flat indices, int64.
    """

    __slots__ = ("places", "shape", "values", "whole")

    def __init__(self, shape: tuple[int, ...], places: np.ndarray):
        self.shape, self.places = shape, places
        self.values = np.empty(len(places), np.float32)
        self.whole = False


class ChannelSums:
    """Sums of |a-b| and |b| per channel, to six digits; valid if ``whole``.

    Channels with more than twice ENOUGH values are sampled evenly, unless ``skip`` is given.

    axis    axis of the channels in the arrays.
    inner   number of consecutive values of a channel.
    skip    one of so many values is used.
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
    """Return ``inner`` and ``skip``; skip is odd, because with even widths an even skip would sample few columns."""
    skip = math.prod(shape) // max(shape[axis], 1) // ENOUGH
    return math.prod(shape[axis + 1 :]), skip | 1 if skip > 1 else 1


class ToSum(NamedTuple):
    """Two sides of equal shape to sum.

    by_kernel  the kernel supports both sides.
    picked     values to pick up if both sides are read in stored order.
    channels   receives the sums per channel.
    """

    sample: Values
    benchmark: Values
    by_kernel: bool
    picked: tuple[Picked, Picked] | None = None
    channels: ChannelSums | None = None

    @property
    def is_flat(self) -> bool:
        """True if the values of both sides are contiguous."""
        flat: bool = self.sample.array.flags.c_contiguous and self.benchmark.array.flags.c_contiguous
        return flat


def are_wide(a: Values, b: Values) -> bool:
    """Return whether float64 may lose the difference: 64-bit integers of one type, without scaling."""
    types = a.array.dtype, b.array.dtype
    return types[0] == types[1] and types[0].kind in "iu" and types[0].itemsize == 8 and a.to_real is b.to_real is None
