"""Statistics of the channels of a float model's tensors over images: range, power and mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
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

    Only one tensor is in memory at a time. ``axes`` may name inputs.
    """
    runner = SegmentRunner(model, keep_sessions=True)
    names = frozenset(axes)
    found: dict[str, _Total] = {}

    def add(name: str, array: np.ndarray) -> None:
        if array.ndim >= 2 and array.dtype.kind == "f" and array.size:
            found.setdefault(name, _Total()).add(np.moveaxis(array, axes[name], 0))

    for _, feed in feeds:
        for name in names.intersection(feed):
            add(name, feed[name])
        for layer in runner.run(feed, only=names):
            add(layer.name, layer.array)
    return {name: total.figures() for name, total in found.items()}


class _Total:
    def __init__(self) -> None:
        self.low, self.high = np.float64(np.inf), np.float64(-np.inf)
        self.power, self.mean, self.count = np.float64(0), np.float64(0), 0

    def add(self, array: np.ndarray) -> None:
        """Add values [C, ...]."""
        flat = array.reshape(array.shape[0], -1)
        self.low = np.minimum(self.low, flat.min(axis=1))
        self.high = np.maximum(self.high, flat.max(axis=1))
        self.power = self.power + np.einsum("ij,ij->i", flat, flat, dtype=np.float64)
        self.mean = self.mean + flat.sum(axis=1, dtype=np.float64)
        self.count += flat.shape[1]

    def figures(self) -> ChannelFigures:
        return ChannelFigures(
            np.asarray(self.low, np.float64),
            np.asarray(self.high, np.float64),
            np.asarray(self.power) / self.count,
            np.asarray(self.mean) / self.count,
        )
