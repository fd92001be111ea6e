"""Details of a layer for a report: histograms, error by value, error per channel, and an error map over the image.

``details_of`` computes the details of a pair of tensors in one pass over its values. ``merged`` combines the details of
several images without loss (see ``binned.py``). ``compare`` computes details with ``details=True`` (``Row.details``);
``merge`` merges them with the rows. A tensor of any rank is viewed as images, channels, height and width, and processed
in blocks of bounded size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal

import numpy as np

from sgsdump.comparison.binned import Binned, indices, narrowest_bins, of_edges
from sgsdump.files.mapped import in_memory
from sgsdump.tensors.tensor import Values

BINS = 256
ERROR_BINS = 128
HEAT = 32
BLOCK = 1 << 16


@dataclass(frozen=True)
class Channels:
    """Channels of a layer: their number, the number of lost channels, and the ``worst`` channel with its RMSE."""

    count: int
    lost: int
    worst: int
    worst_rmse: float


@dataclass(frozen=True, eq=False)
class Heat:
    """Map of the error over one image, the worst one if there are several.

    mean     (rows, columns) float64, at most 32 by 32: mean |sample - benchmark| of each part of height and width over
             all channels; (0, 0) if the tensor has no height and width.
    size     height and width of the tensor.
    picture  name of the image.
    error    RMSE of the image (Σ|a-b|/Σ|b|).
    """

    mean: np.ndarray
    size: tuple[int, int]
    picture: str = ""
    error: float = 0.0


@dataclass(frozen=True, eq=False)
class Details:
    """Counts and sums over a layer's values, of one image or of several (``merged``).

    edges           outer edges of the equally wide bins in which the values of both sides are counted.
    sample          int64 counts of finite values per bin; ``benchmark`` likewise, in the same bins.
    error_edges     outer edges of the bins of ``errors``: int64 counts of sample - benchmark.
    error_by_value  Σ|sample - benchmark| per bin of the benchmark's value (float64); divided by ``benchmark``, the
                    mean.
    channels        (channels, 2) float64: Σ|sample - benchmark| and Σ|benchmark| per channel; (0, 2) without channels.
    low, high       calibration range of the layer, or None.
    """

    edges: tuple[float, float]
    sample: np.ndarray
    benchmark: np.ndarray
    error_edges: tuple[float, float]
    errors: np.ndarray
    error_by_value: np.ndarray
    channels: np.ndarray
    heat: Heat
    low: float | None = None
    high: float | None = None

    @property
    def mean_shift(self) -> float:
        """Mean of sample - benchmark over mean |benchmark|, to the width of a bin: the common offset of all values.

        NaN without values.
        """
        total = int(self.errors.sum())
        middles = self._middles(self.edges, self.benchmark.size)
        size = float(np.abs(middles) @ self.benchmark) / max(int(self.benchmark.sum()), 1)
        if not total or not size:
            return float("nan")
        return float(self._middles(self.error_edges, self.errors.size) @ self.errors) / total / size

    @property
    def outside(self) -> float | None:
        """Share of the benchmark's values outside the calibration range, to the width of a bin.

        None without a range.
        """
        total = int(self.benchmark.sum())
        if self.low is None or self.high is None or not total:
            return None
        edges = np.linspace(*self.edges, self.benchmark.size + 1)
        width = np.maximum(np.diff(edges), np.finfo(np.float64).tiny)
        within = np.clip(np.minimum(edges[1:], self.high) - np.maximum(edges[:-1], self.low), 0, None) / width
        return max(1 - float(np.minimum(within, 1) @ self.benchmark) / total, 0.0)

    @staticmethod
    def _middles(edges: tuple[float, float], bins: int) -> np.ndarray:
        ends = np.linspace(*edges, bins + 1)
        return (ends[:-1] + ends[1:]) / 2

    @property
    def largest_error(self) -> float:
        """Largest absolute error, to the width of a bin."""
        if not self.errors.size or not self.errors.any():
            return 0.0
        ends = np.linspace(*self.error_edges, self.errors.size + 1)
        taken = np.flatnonzero(self.errors)
        return float(max(abs(ends[taken[0]]), abs(ends[taken[-1] + 1])))

    def of_picture(self, name: str) -> Details:
        """Return a copy that carries the name of this image."""
        return replace(self, heat=replace(self.heat, picture=name))


@dataclass(frozen=True)
class Planes:
    """View of a tensor as images, channels, height and width.

    shape     (images, channels, height, width); for ranks other than 4, the last axis holds the channels.
    axes      order of the tensor's own axes that gives ``shape``; () if the tensor must be reshaped first.
    channels  the tensor has channels; ``pictures``: it has height and width.
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
        """Yield indices of blocks of at most BLOCK values that together cover the tensor.

        A block is contiguous in memory as far as possible, because a mapped file is read from its first to its last
        value.
        """
        images, channels, height, width = self.shape
        first, second, third = (width, height, channels) if self.axes == (0, 1, 2, 3) else (channels, width, height)
        first = max(min(first, BLOCK), 1)
        second = max(min(second, BLOCK // first), 1)
        third = max(min(third, BLOCK // (first * second)), 1)
        wide, high, deep = (first, second, third) if self.axes == (0, 1, 2, 3) else (second, third, first)
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
    """Return how to view a tensor of this shape.

    ``layout`` decides for four axes. If it is neither NCHW nor NHWC, height and width are the two most similar adjacent
    axes; channels come first if this does not decide.
    """
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


def details_of(sample: Values, benchmark: Values, layout: str | None = None) -> Details:
    """Return the details of two tensors of equal shape in one pass; memory is that of a few blocks.

    layout  ``NCHW`` or ``NHWC`` if known; it decides which axis holds the channels.

    NaN and infinite values are in no bin; the error of their channel and of their part of the heat map is not finite.
    """
    planes = planes_of(sample.array.shape, layout)
    sums = _Sums(planes)
    a, b = planes.view(sample.array), planes.view(benchmark.array)
    with np.errstate(all="ignore"):
        for block in planes.blocks():
            x, y = (
                np.asarray(part if side.to_real is None else side.to_real(part), np.float64)
                for side, part in ((sample, in_memory(a[block])), (benchmark, in_memory(b[block])))
            )
            sums.add(block, x, y)
        return sums.details()


def merged(details: Sequence[Details], pictures: Sequence[str] = ()) -> Details:
    """Return the details of several images of one layer: counts and sums are added, the heat map is the worst image's.

    pictures  names of the images, for ``heat``.
    """
    named = [item.of_picture(name) for item, name in zip(details, pictures)] if pictures else details
    return reduce(_plus, named)


def _plus(first: Details, second: Details) -> Details:
    values = _values(first).plus(_values(second), BINS)
    errors = of_edges(first.error_edges, first.errors[None]).plus(
        of_edges(second.error_edges, second.errors[None]), ERROR_BINS
    )
    return Details(
        values.edges,
        values.rows[0].astype(np.int64),
        values.rows[1].astype(np.int64),
        errors.edges,
        errors.rows[0].astype(np.int64),
        values.rows[2],
        first.channels + second.channels if first.channels.shape == second.channels.shape else np.zeros((0, 2)),
        second.heat if not second.heat.error <= first.heat.error else first.heat,
        first.low,
        first.high,
    )


def _values(details: Details) -> Binned:
    return of_edges(details.edges, np.stack([details.sample, details.benchmark, details.error_by_value]))


class _Sums:
    """Running sums over the blocks."""

    def __init__(self, planes: Planes):
        self.planes = planes
        self.values, self.errors = Binned.nothing(3), Binned.nothing(1)
        self.channels = np.zeros((planes.shape[1], 2))
        _, _, height, width = planes.shape
        self.heat = np.zeros((min(height, HEAT), min(width, HEAT)) if planes.pictures else (0, 0))

    def add(self, block: tuple[int, slice, slice, slice], x: np.ndarray, y: np.ndarray) -> None:
        difference = x - y
        error = np.abs(difference)
        self.channels[block[1], 0] += error.sum(axis=(1, 2))
        self.channels[block[1], 1] += np.abs(y).sum(axis=(1, 2))
        if self.heat.size:
            rows, columns = (
                np.arange(part.start, part.stop) * parts // size
                for part, parts, size in zip(block[2:], self.heat.shape, self.planes.shape[2:])
            )
            np.add.at(self.heat, (rows[:, None], columns[None, :]), error.sum(axis=0))
        # memory order is fastest, if all arrays share it
        order: Literal["K", "C"] = "K" if x.strides == y.strides == difference.strides == error.strides else "C"
        x, y, difference, error = (array.ravel(order) for array in (x, y, difference, error))
        if not np.isfinite(difference.sum()):
            finite, in_bins = np.isfinite(difference), np.isfinite(y)
            x, y, error = x[np.isfinite(x)], y[in_bins], np.where(finite, error, 0.0)[in_bins]
            difference = difference[finite]
        self.values = self.values.plus(_counted(x, y, error), BINS)
        self.errors = self.errors.plus(_error_counts(difference), ERROR_BINS)

    def details(self) -> Details:
        images, channels, height, width = self.planes.shape
        difference, benchmark = self.channels.sum(axis=0)
        heat = self.heat
        if heat.size:
            heat = heat / (_parts(height, heat.shape[0])[:, None] * _parts(width, heat.shape[1]) * images * channels)
        size = (height, width) if self.planes.pictures else (0, 0)
        return Details(
            self.values.edges,
            self.values.rows[0].astype(np.int64),
            self.values.rows[1].astype(np.int64),
            self.errors.edges,
            self.errors.rows[0].astype(np.int64),
            self.values.rows[2],
            self.channels if self.planes.channels else np.zeros((0, 2)),
            Heat(heat, size, error=float(difference / benchmark) if difference else 0.0),
        )


def _counted(x: np.ndarray, y: np.ndarray, error: np.ndarray) -> Binned:
    """Return counts of x, counts of y and sums of the error by y; all values are finite."""
    sides = [side for side in (x, y) if side.size]
    if not sides:
        return Binned.nothing(3)
    exponent, first, last = narrowest_bins(min(float(s.min()) for s in sides), max(float(s.max()) for s in sides), BINS)
    count = last - first + 1
    at = indices(y, exponent, first)
    rows = [np.bincount(indices(x, exponent, first), minlength=count), np.bincount(at, minlength=count)]
    return Binned(exponent, first, np.stack([*rows, np.bincount(at, error, count)]).astype(np.float64))


def _error_counts(difference: np.ndarray) -> Binned:
    if not difference.size:
        return Binned.nothing(1)
    exponent, first, last = narrowest_bins(float(difference.min()), float(difference.max()), ERROR_BINS)
    at = indices(difference, exponent, first)
    return Binned(exponent, first, np.bincount(at, minlength=last - first + 1)[None].astype(np.float64))


def _parts(size: int, parts: int) -> np.ndarray:
    """Return how many of ``size`` positions fall into each part."""
    return np.bincount(np.arange(size) * parts // size, minlength=parts).astype(np.float64)
