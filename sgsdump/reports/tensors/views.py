"""8-bit copies of the tensors of a few layers, small enough for the page.

A view holds the planes with the largest errors. A plane that is larger than ``MOST_SIDE`` is divided into parts; each
part shows the value with the largest difference, so that a single wrong row or value stays visible.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sgsdump.comparison.row import Row
from sgsdump.dumps.dump import Dump
from sgsdump.files.json_yaml import strict
from sgsdump.progress import SILENT, Progress, each
from sgsdump.reports.tensors.planes import PairPlanes, pair_of, pair_planes, records_of

MOST_LAYERS = 20
BUDGET = 10_000_000  # bytes of the views in a page
MOST_SIDE = 160  # parts of a plane in each direction
MOST_VECTOR = 2048  # parts of a vector
MOST_BARS = 512  # planes with a bar
NOT_FINITE = 255  # byte for NaN and infinity; 0 to 254 are values
TEXT = 4 / 3  # bytes of base64 text for a byte


@dataclass(frozen=True, eq=False)
class TensorView:
    """Planes of a layer with 8 bits per value.

    Attributes
    ----------
    noun : str
        What a plane is; see ``PairPlanes``.
    is_vector : bool
        Whether the tensor has a single axis.
    count : int
        Number of planes of the tensor.
    size : tuple of int
        Height and width of a plane.
    numbers : tuple of int
        Number of each plane in the view, largest error first.
    scales : numpy.ndarray
        float64 of shape (planes, 3): smallest and largest value of both sides, and largest absolute difference.
    places : numpy.ndarray
        int64 of shape (planes, 2): row and column of the largest difference.
    errors : numpy.ndarray
        float64 of length ``count``: Σ|sample - benchmark| of each plane.
    benchmark, difference : numpy.ndarray
        uint8 of shape (planes, height, width) of the view.
    """

    noun: str
    is_vector: bool
    count: int
    size: tuple[int, int]
    numbers: tuple[int, ...]
    scales: np.ndarray
    places: np.ndarray
    errors: np.ndarray
    benchmark: np.ndarray
    difference: np.ndarray

    def data(self) -> dict[str, Any]:
        """Return the data for the script of the page."""
        planes = [
            [number, *(_figure(value) for value in scales), *place]
            for number, scales, place in zip(self.numbers, self.scales.tolist(), self.places.tolist())
        ]
        return {
            "noun": self.noun,
            "vector": self.is_vector,
            "count": self.count,
            "size": list(self.size),
            "grid": list(self.benchmark.shape[1:]),
            "planes": planes,
            "errors": [_figure(error) for error in bars_of(self.errors).tolist()],
            "benchmark": _text(self.benchmark),
            "difference": _text(self.difference),
        }


def views_of(
    rows: Sequence[Row],
    sample: Dump | None,
    benchmark: Dump | None,
    added: Mapping[str, float],
    first: str = "",
    budget: int = BUDGET,
    progress: Progress = SILENT,
) -> dict[str, TensorView]:
    """Return the views by layer: the outputs, and the layers that add the largest error.

    Parameters
    ----------
    rows : sequence of Row
        Compared layers.
    sample, benchmark : Dump or None
        Compared dumps; without them there are no views.
    added : mapping of str to float
        Error that each layer adds.
    first : str
        Layer that the page selects first.
    budget : int
        Largest number of bytes of all views in the page.
    progress : Progress
        Receives the number of finished layers.

    Raises
    ------
    FileChanged
        If a file of a dump changed since the dump was opened.
    """
    if sample is None or benchmark is None or budget <= 0:
        return {}
    chosen, sides = _chosen(rows, added, first), (records_of(sample), records_of(benchmark))
    views: dict[str, TensorView] = {}
    left = budget
    for place, row in enumerate(each(progress, chosen, "read", "layer", len(chosen))):
        pair = pair_of(row, *sides)
        planes = None if pair is None else pair_planes(pair, row.retried)
        if planes is not None:
            view = view_of(planes, int(left / (len(chosen) - place) / TEXT))
            if view is not None:
                views[row.name] = view
                left -= int(2 * view.benchmark.size * TEXT) + 64 * len(view.numbers)
    return views


def _chosen(rows: Sequence[Row], added: Mapping[str, float], first: str) -> list[Row]:
    """Return the layers with a view, most important first."""
    read = {name for row in rows for name in row.sources}
    outputs = [row for row in rows if row.name not in read][-MOST_LAYERS:] if read else list(rows[-1:])
    worst = sorted(rows, key=lambda row: -_finite(added.get(row.name, 0.0)))[:MOST_LAYERS]
    named = [row for row in rows if row.name == first]
    return list({row.name: row for row in (*named, *worst, *outputs)}.values())


def _finite(added: float) -> float:
    return math.inf if math.isnan(added) else added


def view_of(planes: PairPlanes, budget: int) -> TensorView | None:
    """Return the view of a tensor in at most ``budget`` bytes; None if not even one plane fits."""
    errors = errors_of(planes)
    grid = _grid(planes)
    fitting = budget // (2 * grid[0] * grid[1])
    if not fitting:
        return None
    odd_last = np.where(np.isfinite(errors), errors, np.inf)
    numbers = np.argsort(-odd_last, kind="stable")[:fitting].tolist()
    kept = [_plane(*planes.plane(number), grid) for number in numbers]
    return TensorView(
        planes.noun,
        planes.is_vector,
        planes.count,
        planes.size,
        tuple(numbers),
        np.array([plane.scale for plane in kept]),
        np.array([plane.place for plane in kept]),
        errors,
        np.stack([plane.benchmark for plane in kept]),
        np.stack([plane.difference for plane in kept]),
    )


def bars_of(errors: np.ndarray) -> np.ndarray:
    """Return the errors of the planes; with more than ``MOST_BARS``, the largest error of each run of planes."""
    step = math.ceil(len(errors) / MOST_BARS)
    padded = np.concatenate([errors, np.zeros(-len(errors) % step)])
    largest: np.ndarray = padded.reshape(-1, step).max(axis=1)
    return largest


def errors_of(planes: PairPlanes) -> np.ndarray:
    """Return Σ|sample - benchmark| of each plane."""
    errors = np.zeros(planes.count)
    with np.errstate(all="ignore"):
        for first, sample, benchmark in planes.blocks():
            errors[first : first + len(sample)] = np.abs(sample - benchmark).sum(axis=(1, 2))
    return errors


def _grid(planes: PairPlanes) -> tuple[int, int]:
    most = MOST_VECTOR if planes.is_vector else MOST_SIDE
    height, width = (math.ceil(length / math.ceil(length / most)) for length in planes.size)
    return height, width


@dataclass(frozen=True, eq=False)
class _Plane:
    scale: tuple[float, float, float]
    place: tuple[int, int]
    benchmark: np.ndarray
    difference: np.ndarray


def _plane(sample: np.ndarray, benchmark: np.ndarray, grid: tuple[int, int]) -> _Plane:
    with np.errstate(all="ignore"):
        difference = sample - benchmark
    size = np.where(np.isnan(difference), np.inf, np.abs(difference))
    row, column = divmod(int(size.argmax()), size.shape[1])
    both = np.concatenate([sample.ravel(), benchmark.ravel()])
    finite = both[np.isfinite(both)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    most = float(size[np.isfinite(size)].max(initial=0.0))
    at = largest_of_parts(size, grid)
    shown, differing = benchmark.ravel()[at], difference.ravel()[at]
    return _Plane((low, high, most), (row, column), _bytes(shown, low, high), _bytes(differing, -most, most))


def largest_of_parts(size: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """Return the flat index of the largest value of each part; parts at the end may be smaller."""
    height, width = size.shape
    if grid == (height, width):
        return np.arange(size.size).reshape(grid)
    high, wide = math.ceil(height / grid[0]), math.ceil(width / grid[1])
    padded = np.full((grid[0] * high, grid[1] * wide), -1.0)
    padded[:height, :width] = size
    parts = padded.reshape(grid[0], high, grid[1], wide).transpose(0, 2, 1, 3).reshape(*grid, high * wide)
    row, column = np.divmod(parts.argmax(axis=2), wide)
    rows = np.arange(grid[0])[:, None] * high + row
    columns = np.arange(grid[1])[None, :] * wide + column
    return rows * width + columns


def _bytes(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return values from low to high as 0 to 254, and ``NOT_FINITE`` for NaN and infinity."""
    with np.errstate(all="ignore"):
        scaled = (values - low) / (high - low) * 254 if high > low else np.full(values.shape, 127.0)
    scaled = np.where(np.isfinite(values), np.clip(np.rint(scaled), 0, 254), NOT_FINITE)
    return scaled.astype(np.uint8)


def _figure(value: float) -> float | str:
    return strict(float(f"{value:.6g}"))


def _text(array: np.ndarray) -> str:
    return base64.b64encode(array.tobytes()).decode()
