"""The record of one layer's details: histograms, error against value, error per channel and over height and width.

A tensor seen as images, channels, height and width, whatever its rank, and cut into blocks of bounded size.

The details of one pair of tensors in one pass over its values, and those of several pictures merged.

``details_of`` gives one picture's; ``merged`` those of several, without loss (see ``binned.py``). ``compare`` makes
them with ``details=True`` (``Row.details``), and ``merge`` merges them with the rows.

What a report shows of one selected layer, made in one pass over a pair of tensors and mergeable over pictures.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from sgsdump.comparison.binned import Binned, indices, narrowest_bins, of_edges
from sgsdump.tensors.tensor import Values


@dataclass(frozen=True, eq=False)
class Details:
    """Counts and sums over one layer's values, of one picture or of several (``merged`` of ``layer_details``).

    edges           the outer edges of the bins of equal width in which both sides' values are counted.
    sample          int64 counts per bin, of finite values; ``benchmark`` likewise, in the same bins.
    low, high       the calibrated range of the layer; None where it has none.
    error_edges     the outer edges of the bins of ``errors``: int64 counts of sample - benchmark.
    error_by_value  Σ|sample - benchmark| per bin of the benchmark's value (float64); over ``benchmark`` it is the mean.
    channels        (channels, 2) float64: Σ|sample - benchmark| and Σ|benchmark| of each; (0, 2) where there are none.
    heat            (rows, columns) float64, at most 32 by 32: the mean |sample - benchmark| of each part of height and
                    width, over all channels; (0, 0) where the tensor has no height and width.
    heat_of         the picture that ``heat`` is of: the worst one, where there are several.
    heat_error      the RMSE (Σ|a-b|/Σ|b|) of that picture.
    size            height and width of the tensor that ``heat`` is of.
    """

    edges: tuple[float, float]
    sample: np.ndarray
    benchmark: np.ndarray
    low: float | None
    high: float | None
    error_edges: tuple[float, float]
    errors: np.ndarray
    error_by_value: np.ndarray
    channels: np.ndarray
    heat: np.ndarray
    heat_of: str = ""
    heat_error: float = 0.0
    size: tuple[int, int] = (0, 0)


BLOCK = 1 << 16


@dataclass(frozen=True)
class Planes:
    """shape    (images, channels, height, width); of other ranks than 4 the last axis is the channels'.

    axes      the order of the tensor's own axes that gives ``shape``; () where it is reshaped first.
    channels  whether the tensor has channels, ``pictures`` whether it has height and width.
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
        """Indices of parts of at most BLOCK values that together are the whole."""
        images, channels, height, width = self.shape
        wide = max(min(width, BLOCK), 1)
        deep = max(min(channels, BLOCK // wide), 1)
        high = max(min(height, BLOCK // (wide * deep)), 1)
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
    """How to see a tensor of this shape. ``layout`` decides for four axes; where it is neither NCHW nor NHWC, height
    and width are the two that are more alike, and channels come first where that does not decide."""
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


BINS = 256
ERROR_BINS = 128
HEAT = 32


def details_of(sample: Values, benchmark: Values, layout: str | None = None) -> Details:
    """One pass over two tensors of equal shape; memory is that of a few blocks of values.

    layout  ``NCHW`` or ``NHWC``, where it is known: it says which axis the channels are. NaN and infinite values are
            in no bin; the error of their channel and of their part of the heat map is not finite.
    """
    planes = planes_of(sample.array.shape, layout)
    sums = _Sums(planes)
    a, b = planes.view(sample.array), planes.view(benchmark.array)
    with np.errstate(all="ignore"):
        for block in planes.blocks():
            x, y = (
                np.asarray(part if side.to_real is None else side.to_real(part), np.float64)
                for side, part in ((sample, a[block]), (benchmark, b[block]))
            )
            sums.add(block, x, y)
        return sums.details()


def merged(details: Sequence[Details], pictures: Sequence[str] = ()) -> Details:
    """The details of several pictures of one layer: counts and sums are added, the heat map is that of the worst.

    pictures  their names, for ``heat_of``.
    """
    named = [replace(each, heat_of=name) for each, name in zip(details, pictures)] if pictures else list(details)
    total = named[0]
    for each in named[1:]:
        total = _plus(total, each)
    return total


def _plus(one: Details, two: Details) -> Details:
    values = _values(one).plus(_values(two), BINS)
    errors = of_edges(one.error_edges, one.errors[None]).plus(of_edges(two.error_edges, two.errors[None]), ERROR_BINS)
    worst = two if not two.heat_error <= one.heat_error else one
    return replace(
        worst,
        edges=values.edges,
        sample=values.rows[0].astype(np.int64),
        benchmark=values.rows[1].astype(np.int64),
        error_by_value=values.rows[2],
        error_edges=errors.edges,
        errors=errors.rows[0].astype(np.int64),
        channels=one.channels + two.channels if one.channels.shape == two.channels.shape else np.zeros((0, 2)),
        low=one.low,
        high=one.high,
    )


def _values(details: Details) -> Binned:
    return of_edges(details.edges, np.stack([details.sample, details.benchmark, details.error_by_value]))


class _Sums:
    """What grows while the blocks go by."""

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
        # in the order they lie in memory, where that is one order
        order: Literal["K", "C"] = "K" if x.strides == y.strides == difference.strides == error.strides else "C"
        x, y, difference, error = (each.ravel(order) for each in (x, y, difference, error))
        if not np.isfinite(difference.sum()):
            finite = np.isfinite(difference)
            known = np.isfinite(y)
            counted = _counted(x[np.isfinite(x)], y[known], np.where(finite, error, 0.0)[known])
            self.values = self.values.plus(counted, BINS)
            difference = difference[finite]
        else:
            self.values = self.values.plus(_counted(x, y, error), BINS)
        self.errors = self.errors.plus(_error_counts(difference), ERROR_BINS)

    def details(self) -> Details:
        images, channels, height, width = self.planes.shape
        base, benchmark = self.channels.sum(axis=0)
        heat = self.heat
        if heat.size:
            heat = heat / (_parts(height, heat.shape[0])[:, None] * _parts(width, heat.shape[1]) * images * channels)
        return Details(
            edges=self.values.edges,
            sample=self.values.rows[0].astype(np.int64),
            benchmark=self.values.rows[1].astype(np.int64),
            low=None,
            high=None,
            error_edges=self.errors.edges,
            errors=self.errors.rows[0].astype(np.int64),
            error_by_value=self.values.rows[2],
            channels=self.channels if self.planes.channels else np.zeros((0, 2)),
            heat=heat,
            heat_error=float(base / benchmark) if base else 0.0,
            size=(height, width) if self.planes.pictures else (0, 0),
        )


def _counted(x: np.ndarray, y: np.ndarray, error: np.ndarray) -> Binned:
    """Counts of x, counts of y and sums of the error by y; all are finite."""
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
    """How many of ``size`` positions fall to each of the parts."""
    return np.bincount(np.arange(size) * parts // size, minlength=parts).astype(np.float64)


@dataclass(frozen=True)
class StoredIntegers:
    """The integers of a pair.

    count      how many there are.
    differing  how many differ.
    largest    the largest difference in steps; None where the scale is too coarse to tell it.
    unlike     how the two sides are quantised, where that is not alike: the other numbers are 0 then.
    """

    count: int
    differing: int
    largest: int | None = 0
    unlike: str = ""

    @property
    def identical(self) -> bool:
        return not self.differing and not self.unlike

    @property
    def size(self) -> str:
        """By how much at most the integers differ, to stand behind how many do; "" where it is not known."""
        return "" if self.largest is None else f", by at most {self.largest} step{'' if self.largest == 1 else 's'}"

    def __str__(self) -> str:
        if self.unlike:
            return f"quantised differently: {self.unlike}"
        return f"{self.differing} of {self.count} values differ{self.size}" if self.differing else "identical integers"
