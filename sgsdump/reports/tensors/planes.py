"""Values of a pair of tensors as planes of height and width, in matching layouts.

A tensor with four axes, height and width has one plane per image and channel. Otherwise axes of length 1 are dropped;
the last two axes form a plane, and the axes before them number the planes. A tensor with a single axis has one plane of
height 1, drawn as a vector.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from sgsdump.comparison.alignment import Pair
from sgsdump.comparison.details import planes_of
from sgsdump.comparison.pair_result import Measures
from sgsdump.comparison.row import Row
from sgsdump.dumps.dump import Dump, Record
from sgsdump.errors import FileChanged, SgsdumpError
from sgsdump.files.mapped import in_memory
from sgsdump.tensors.tensor import Values

BLOCK = 1 << 18  # values that are converted at a time


@dataclass(frozen=True, eq=False)
class PairPlanes:
    """Both sides of a layer as planes.

    Attributes
    ----------
    sample, benchmark : Values
        Stored values, in arrays of shape (planes, height, width).
    noun : str
        What a plane is: ``channel`` or ``slice``; "" for a single plane.
    is_vector : bool
        Whether the tensor has a single axis.
    """

    sample: Values
    benchmark: Values
    noun: str
    is_vector: bool

    @property
    def count(self) -> int:
        """Number of planes."""
        return self.sample.array.shape[0]

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of a plane."""
        _, height, width = self.sample.array.shape
        return height, width

    def plane(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the real values of one plane as float64 arrays of shape (height, width)."""
        sample, benchmark = (_real(side, slice(number, number + 1)) for side in (self.sample, self.benchmark))
        return sample[0], benchmark[0]

    def blocks(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield the number of the first plane of a block, and the real values of both sides."""
        height, width = self.size
        planes = max(BLOCK // max(height * width, 1), 1)
        for first in range(0, self.count, planes):
            block = slice(first, min(first + planes, self.count))
            yield first, _real(self.sample, block), _real(self.benchmark, block)


def _real(side: Values, block: slice) -> np.ndarray:
    part = in_memory(side.array[block])
    return np.asarray(part if side.to_real is None else side.to_real(part), np.float64)


Records = Mapping[tuple[str, str], Record]


def records_of(dump: Dump) -> Records:
    """Return the first record of each direction (``"in"`` or ``"out"``) and name."""
    return {(record.io, record.name): record for record in reversed(dump.records)}


def pair_of(row: Row, sample: Records, benchmark: Records) -> Pair | None:
    """Return the records of a row; None if a dump does not have them, or if only statistics were compared."""
    ours = sample.get((row.io, row.sample_name), sample.get(("out", row.sample_name)))
    theirs = benchmark.get((row.io, row.name))
    return None if ours is None or theirs is None or row.statistics else Pair(ours, theirs, row.paired)


def pair_planes(pair: Pair, retried: bool = False) -> PairPlanes | None:
    """Return the planes of a pair; None if a side has no values or the sides do not fit.

    Parameters
    ----------
    pair : Pair
        Records of both sides.
    retried : bool
        Whether the comparison found the order of axes from the values.

    Raises
    ------
    FileChanged
        If a file of a dump changed since the dump was opened.
    """
    measures, layout = Measures({}), pair.sample.tensor.info.layout
    try:
        if retried:
            measured, _ = measures.measured(pair)
            a, b, turn = measured.sample, measured.benchmark, measured.turn
            layout = turn.after if turn and turn.side == "benchmark" else layout
        else:
            a, b = measures.fitted(pair)
    except FileChanged:
        raise
    except SgsdumpError:
        return None
    if not a.array.size or a.array.shape != b.array.shape:
        return None
    return _as_planes(a, b, layout)


def _as_planes(a: Values, b: Values, layout: str | None) -> PairPlanes:
    shape = a.array.shape
    if len(shape) == 4 and (view := planes_of(shape, layout)).pictures:
        images, channels, height, width = view.shape
        arrays = [view.view(side.array).reshape(images * channels, height, width) for side in (a, b)]
        return PairPlanes(a.of(arrays[0]), b.of(arrays[1]), "channel" if channels > 1 else "image", False)
    lengths = tuple(length for length in shape if length != 1) or (1,)
    height = lengths[-2] if len(lengths) > 1 else 1
    planes = (math.prod(lengths[:-2]), height, lengths[-1])
    return PairPlanes(
        a.of(a.array.reshape(planes)), b.of(b.array.reshape(planes)), "slice" if planes[0] > 1 else "", height == 1
    )
