"""What is seen of a picture's tensors, as they come one by one or as they lie at their places.

One picture's statistics are merged in the pictures' order wherever they were computed, so one process and many give
the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sgsdump.errors import InputError
from sgsdump.executors.onnx_runtime.placed_graph import PlacedRun
from sgsdump.quantisation.ranges.row_ends import RowEnds, Rows
from sgsdump.quantisation.ranges.statistics import Extremes, Moments, Statistics, Wanted
from sgsdump.quantisation.ranges.value_histogram import ValueHistogram, count_values
from sgsdump.tensors.one_pass.rows import RowWatch, extremes, moments

# Tensors wait until so much of them is there, and are looked at together: they still lie in the processor's cache.
WAITING_BYTES = 4 << 20


@dataclass(frozen=True, eq=False)
class Seen:
    """Of one picture or several; the fields are those of ``Statistics``, extremes by rows."""

    ends: RowEnds
    histograms: dict[str, ValueHistogram]
    moments: dict[str, Moments]
    below: dict[str, Extremes]

    def merged(self, other: Seen) -> Seen:
        """Both together. Raises InputError for a tensor whose number of channels changes with the picture."""
        return Seen(
            self.ends.merged(other.ends),
            _both(self.histograms, other.histograms),
            _both(self.moments, other.moments),
            _both(self.below, other.below),
        )

    @property
    def statistics(self) -> Statistics:
        return Statistics(self.ends.whole, self.histograms, self.moments, self.ends.channels, self.below)


class Collector:
    """Observes one picture's tensors one by one and keeps their statistics."""

    def __init__(self, wanted: Wanted, label: str):
        self._wanted, self._label = wanted, label
        self._closer = _Closer(wanted)
        self._ends = RowEnds((), np.empty(0), np.empty(0))
        self._waiting: list[tuple[str, np.ndarray]] = []
        self._bytes = 0

    @property
    def seen(self) -> Seen:
        """Of all tensors seen so far. Raises as ``see``."""
        self._look()
        return self._closer.seen(self._ends)

    def see(self, name: str, array: np.ndarray) -> None:
        """Raises InputError when this tensor, or one before, holds NaN or infinity, which have no range."""
        if not _is_looked_at(array):
            return
        self._waiting.append((name, array))
        self._bytes += array.nbytes
        if self._bytes >= WAITING_BYTES:
            self._look()

    def _look(self) -> None:
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        if not waiting:
            return
        tables = [_table(self._wanted, name, array) for name, array in waiting]
        rows = tuple(_rows(self._wanted, *each, table) for each, table in zip(waiting, tables))
        ends = RowEnds(rows, *extremes(tables))
        _check(ends, self._label)
        self._ends = self._ends.followed_by(ends)
        for name, array in waiting:
            self._closer.look(name, array)


class PlacedCollector:
    """Observes the tensors of one run after another, which lie where they lay before."""

    def __init__(self, run: PlacedRun, wanted: Wanted, looked_at: set[str]):
        self._run, self._wanted = run, wanted
        steps = [
            {n: array for n, array in made.items() if (n in looked_at or not step) and _is_looked_at(array)}
            for step, made in enumerate(run.made)
        ]
        tables = [[_table(wanted, name, array) for name, array in made.items()] for made in steps]
        self._watch = RowWatch(tables)
        self._rows = tuple(
            _rows(wanted, name, array, table)
            for made, group in zip(steps, tables)
            for (name, array), table in zip(made.items(), group)
        )
        self._closer_at = [[(n, array) for n, array in made.items() if n in wanted.closer] for made in steps]

    def seen(self, label: str, feed: Mapping[str, np.ndarray]) -> Seen:
        """Of one feed's tensors. Raises as ``Collector``, and what ``PlacedRun.steps`` raises."""
        closer = _Closer(self._wanted)
        for step in self._run.steps(feed):
            self._watch.look(step)
            for name, array in self._closer_at[step]:
                closer.look(name, array)
        ends = RowEnds(self._rows, *self._watch.ends())
        _check(ends, label)
        return closer.seen(ends)


class _Closer:
    """Looks at more than the extremes."""

    def __init__(self, wanted: Wanted):
        self._wanted = wanted
        self._histograms: dict[str, ValueHistogram] = {}
        self._moments: dict[str, Moments] = {}
        self._below: dict[str, Extremes] = {}

    def look(self, name: str, array: np.ndarray) -> None:
        wanted = self._wanted
        if name in wanted.histograms:
            self._histograms[name] = count_values(array)
        if name in wanted.moments:
            self._moments[name] = _moments(array, wanted.moments[name])
        if name in wanted.softmax:
            below = array - array.max(axis=wanted.softmax[name], keepdims=True)
            self._below[name] = Extremes(float(below.min()), float(below.max()))

    def seen(self, ends: RowEnds) -> Seen:
        return Seen(ends, self._histograms, self._moments, self._below)


def _is_looked_at(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" and array.size > 0


def _table(wanted: Wanted, name: str, array: np.ndarray) -> np.ndarray:
    """A view of the array: one row; where channels matter rows of one channel each, in order and again and again."""
    axis = wanted.channels.get(name)
    if axis is None:
        return array.reshape(1, -1)
    if axis == 1:
        return array.reshape(array.shape[0] * array.shape[1], -1)
    return _by_channel(array, axis)


def _rows(wanted: Wanted, name: str, array: np.ndarray, table: np.ndarray) -> Rows:
    axis = wanted.channels.get(name)
    return Rows(name, len(table), 0 if axis is None else array.shape[axis])


def _check(ends: RowEnds, label: str) -> None:
    odd = ~(np.isfinite(ends.low) & np.isfinite(ends.high))
    if odd.any():
        raise InputError(
            f"tensor {ends.tensor_at(int(odd.argmax()))!r} holds NaN or infinity on {label}, so it has no range; dump "
            f"the float model on this input and look for the first layer with NaN or Inf"
        )


def _both(mine: dict, other: dict) -> dict:
    result = dict(mine)
    for name, statistics in other.items():
        if name not in result:
            result[name] = statistics
            continue
        try:
            result[name] = result[name].merged(statistics)
        except ValueError as error:
            raise InputError(f"tensor {name!r} has another number of channels on another picture: {error}") from error
    return result


def _by_channel(array: np.ndarray, axis: int) -> np.ndarray:
    """[C, values of each]; of the last axis a view, if the array lies in one piece."""
    if axis in (-1, array.ndim - 1):
        return array.reshape(-1, array.shape[axis]).T
    return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)


def _moments(array: np.ndarray, axis: int) -> Moments:
    rows = np.ascontiguousarray(_by_channel(array, axis))
    return Moments(*moments(rows), rows.shape[1])
