"""Probes of tensors: 64 values each, at places that tensors of one size share, in the layouts of 4-D ones too.

Equal tensors have equal probes, whatever their layout. Of larger tensors the probes are picked up while their pairs are
compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from sgsdump.comparison.sums.tiles import Picked
from sgsdump.dumps.dump import Record
from sgsdump.errors import SgsdumpError
from sgsdump.files.mapped import let_go
from sgsdump.tensors.device import is_device
from sgsdump.tensors.dtypes import is_complex
from sgsdump.tensors.tensor import Values, values_of
from sgsdump.tensors.types import to_nchw, to_nhwc

PROBES = 64
WORTH = 1 << 16  # values of a tensor whose probes are picked up before it is known whether they are needed


@dataclass(frozen=True, eq=False)
class Probes:
    """The rows of records, as ``probe`` gives them, each made once; by the records' ``id``."""

    _rows: dict[int, np.ndarray | None] = field(default_factory=dict)
    _sizes: dict[int, int] = field(default_factory=dict)

    def of(self, record: Record) -> np.ndarray | None:
        """None where the values cannot be had."""
        if id(record) not in self._rows:
            self._rows[id(record)] = _rows_of(record)
        return self._rows[id(record)]

    def to_pick(self, sample: Record, benchmark: Record) -> tuple[Picked, Picked] | None:
        """What is to be picked up while the two are compared, for ``keep``; None where that is not worth it."""
        shapes = [record.tensor.info.shape for record in (sample, benchmark) if id(record) not in self._rows]
        large = [shape for shape in shapes if shape is not None and math.prod(shape) >= WORTH]
        if len(large) < 2:
            return None
        return Picked(large[0], _in_order(large[0])[0]), Picked(large[1], _in_order(large[1])[0])

    def keep(self, sample: Record, benchmark: Record, picked: tuple[Picked, Picked]) -> None:
        """What ``to_pick`` gave for the two, once they were compared."""
        for record, side in zip((sample, benchmark), picked):
            if side.whole:
                self._rows[id(record)] = side.values[_in_order(side.shape)[1]]

    def size(self, record: Record) -> int:
        """How many real values a record holds; 0 where they cannot be had."""
        if id(record) not in self._sizes:
            self._sizes[id(record)] = _size(record)
        return self._sizes[id(record)]


def probe(values: Values) -> np.ndarray:
    """A row of PROBES values: as stored and, of a 4-D tensor, in the other layouts. Not of an empty one."""
    array = values.array
    places = _places(array.shape)
    flat = array.flags.c_contiguous
    picked = array.reshape(-1)[places] if flat else array[np.unravel_index(places, array.shape)]
    return np.asarray(picked if values.to_real is None else values.to_real(picked))


def probe_all(tensors: Iterable[Values]) -> tuple[np.ndarray, np.ndarray]:
    """The rows of all tensors, after the number of the tensor each row is of, ascending."""
    rows = []
    for values in tensors:
        rows.append(probe(values))
        let_go(values.array)
    return stacked(rows)


@lru_cache(maxsize=1024)
def _places(shape: tuple[int, ...]) -> np.ndarray:
    """Where tensors of a shape are probed: for each layout the same places, as indices into the values as stored."""
    places = np.random.default_rng(math.prod(shape)).integers(0, math.prod(shape), PROBES)
    if len(shape) != 4:
        return places[None]
    stored = np.empty(shape, np.uint8)  # of which nothing is read but the strides
    views = stored, to_nchw(stored), to_nhwc(stored)
    return np.stack([np.dot(view.strides, np.unravel_index(places, view.shape)) for view in views])


@lru_cache(maxsize=1024)
def _in_order(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The places in ascending order, and where in this order each of them is."""
    ascending, where = np.unique(_places(shape), return_inverse=True)
    return ascending.astype(np.int64, copy=False), where.reshape(_places(shape).shape)


def _size(record: Record) -> int:
    info = record.tensor.info
    if info.shape is not None and not is_device(info.layout) and not is_complex(info.dtype):
        return math.prod(info.shape)
    try:
        return values_of(record.tensor.logical()).array.size
    except SgsdumpError:
        return 0


def _rows_of(record: Record) -> np.ndarray | None:
    try:
        values = values_of(record.tensor.logical())
    except SgsdumpError:
        return None
    return probe(values) if values.array.size else None


def stacked(rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    owners = np.repeat(np.arange(len(rows)), [len(own) for own in rows])
    return owners, np.concatenate(rows, dtype=np.float64, casting="unsafe")
