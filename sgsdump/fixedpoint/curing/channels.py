"""Statistics of the channels of a float model's tensors over images: range, power and mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np

from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.executors.workers.task_pool import in_threads
from sgsdump.files.process import cores
from sgsdump.models.model import Model


@dataclass(frozen=True, eq=False)
class ChannelFigures:
    """Statistics per channel, float64 [C]; ``power`` is the mean square, over images and positions like ``mean``."""

    low: np.ndarray
    high: np.ndarray
    power: np.ndarray
    mean: np.ndarray

    @property
    def top(self) -> np.ndarray:
        return np.maximum(np.abs(self.low), np.abs(self.high))

    def times(self, factors: np.ndarray) -> ChannelFigures:
        """Return the statistics of the channels multiplied by positive factors."""
        return ChannelFigures(self.low * factors, self.high * factors, self.power * factors**2, self.mean * factors)


def channel_figures(
    model: Model, feeds: Iterable[tuple[str, Mapping[str, np.ndarray]]], axes: Mapping[str, int]
) -> dict[str, ChannelFigures]:
    """Return the statistics of each tensor in ``axes``, along its axis and over all feeds.

    Feeds run in parallel, one thread each, with the tensors of about one segment in memory. ``axes`` may name inputs.
    """
    runner = SegmentRunner(model, keep_sessions=True, threads=1)
    names = frozenset(axes)

    def seen(labelled: tuple[str, Mapping[str, np.ndarray]]) -> dict[str, _Total]:
        _, feed = labelled
        fed = ((name, feed[name]) for name in names.intersection(feed))
        layers = ((layer.name, layer.array) for layer in runner.run(feed, only=names))
        return {
            name: _Total.of(np.moveaxis(array, axes[name], 0))
            for name, array in chain(fed, layers)
            if array.ndim >= 2 and array.dtype.kind == "f" and array.size
        }

    found: dict[str, _Total] = {}
    for totals in in_threads(seen, feeds, cores()):
        for name, total in totals.items():
            found[name] = found[name].plus(total) if name in found else total
    return {name: total.figures() for name, total in found.items()}


@dataclass(frozen=True, eq=False)
class _Total:
    """Extremes (in the tensor's dtype) and sums (float64) of the channels, [C], over ``count`` values each."""

    low: np.ndarray
    high: np.ndarray
    power: np.ndarray
    total: np.ndarray
    count: int

    @classmethod
    def of(cls, array: np.ndarray) -> _Total:
        """Return the totals of values [C, ...]."""
        flat = array.reshape(array.shape[0], -1)
        power = np.einsum("ij,ij->i", flat, flat, dtype=np.float64)
        return cls(flat.min(axis=1), flat.max(axis=1), power, flat.sum(axis=1, dtype=np.float64), flat.shape[1])

    def plus(self, other: _Total) -> _Total:
        return _Total(
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            self.power + other.power,
            self.total + other.total,
            self.count + other.count,
        )

    def figures(self) -> ChannelFigures:
        return ChannelFigures(
            self.low.astype(np.float64),
            self.high.astype(np.float64),
            self.power / self.count,
            self.total / self.count,
        )
