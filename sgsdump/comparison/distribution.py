"""Distribution of each layer's values relative to its calibration range: the figures behind the histograms.

A fixed model divides the range [min, max] of ``tensor_min_max`` into 2**8 or 2**16 levels. Values outside the range are
clipped. A wide range wastes levels if nearly all values lie in a small part of it. For this case the user guide
recommends: if the values are concentrated and max - min exceeds about 30, use INT16 input for the convolution that
reads the layer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.tables import data_frame
from sgsdump.errors import FileChanged, SgsdumpError
from sgsdump.files.names import normalised
from sgsdump.files.process import cores
from sgsdump.plugins import as_html, ask
from sgsdump.tensors.stages import SUFFIX, StageNames
from sgsdump.tensors.statistics import Statistics, count_outside, histogram, narrowest_span, summarise
from sgsdump.tensors.types import Range

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BINS = 256
LEVELS = 256
SHARE = 0.99
WIDE = 30.0
FEW_LEVELS = LEVELS // 4
CLIPPED_SHARE = 0.01
CLIPPED_REACH = 0.1
# Bins are counted 16 times finer than drawn, so that the central share is known to 1/16 of a bin.
_FINER = 16
# Ranges in text are rounded to six decimals; a value beyond the range by that much is not outside.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Distribution:
    """Values of a layer relative to its calibration range.

    index     number of the operator that produces it, or that reads it as network input, as in the dump.
    shape     logical shape; None if the file does not state it.
    counts    int64 (BINS,): finite values per equally wide bin over [stats.min, stats.max].
    central   narrowest interval that contains 99 % of the finite values.
    limits    (min, max) of the calibration range over all channels, or None.
    outside   number of finite values outside ``limits``.
    levels    number of the 256 levels of an 8-bit quantiser that ``central`` uses; None without a range.
    """

    index: int
    name: str
    op_type: str
    shape: tuple[int, ...] | None
    stats: Statistics
    counts: np.ndarray
    central: tuple[float, float]
    limits: tuple[float, float] | None
    outside: int
    levels: int | None

    @property
    def width(self) -> float:
        """Width of the range, max - min; NaN without a range."""
        return self.limits[1] - self.limits[0] if self.limits else math.nan

    @property
    def broken(self) -> bool:
        """True if a value is NaN or Inf, or if there are no values."""
        return self.stats.finite < (self.stats.count or 1)

    @property
    def overshoot(self) -> float:
        """Distance of the farthest value beyond the range, as a fraction of the range's width.

        0.0 if none is outside.
        """
        if self.limits is None or not self.outside:
            return 0.0
        low, high = self.stats.span
        beyond = max(self.limits[0] - low, high - self.limits[1])
        return beyond / self.width if self.width > 0 else math.inf

    @property
    def clipped(self) -> bool:
        """True if more than 1 % of the values are outside the range, or one value by more than a tenth of its width.

        Fewer values outside are normal, because the dumped image is not a calibration image. Values within half a level
        of the range do not count, because rounding brings them back.
        """
        many = self.outside > CLIPPED_SHARE * self.stats.finite and self.overshoot > 0.5 / LEVELS
        return many or self.overshoot > CLIPPED_REACH

    @property
    def wasteful(self) -> bool:
        """True if the range is wider than 30 and 99 % of the values use less than a quarter of it."""
        return self.levels is not None and self.width > WIDE and self.levels < FEW_LEVELS

    @property
    def troubled(self) -> bool:
        """True if the layer needs review."""
        return self.broken or self.clipped or self.wasteful

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the histogram and the range into matplotlib axes; None creates new axes with ``pyplot``."""
        drawn: Axes = ask("plot of a distribution", self, axes)
        return drawn

    def _repr_html_(self) -> str | None:
        """Return the histogram and the range as HTML for a notebook."""
        return as_html("distribution", self)


@dataclass(frozen=True)
class Undrawn:
    """Layer whose values are not available, with the reason."""

    name: str
    reason: str


def layers(dump: Dump) -> list[Record]:
    """Return the network's inputs and every output in file order, without constants and repeated inputs."""
    names: set[str] = set()
    records = []
    for record in dump.records:
        if record.constant or (record.io == "in" and (record.name in dump.outputs or record.name in names)):
            continue
        names.add(record.name)
        records.append(record)
    return records


def pair_ranges(names: Iterable[str], ranges: Mapping[str, Range]) -> dict[str, str]:
    """Return layer name -> name in ``ranges``: the same name, else the only name that the SDK's tools treat as equal.

    A blob of a Caffe reference has no stage in its name; it gets the range of its last stage.
    """
    names = list(names)
    alike: dict[str, list[str]] = {}
    for name in ranges:
        alike.setdefault(normalised(name), []).append(name)
    later = {name for name in ranges if name.endswith(SUFFIX) and name.removesuffix(SUFFIX) in ranges}
    stages = StageNames(ranges) if later and not later & set(names) else None
    pairs = {}
    for layer in names:
        name = (stages and stages.last(layer)) or layer
        candidates = [name] if name in ranges else alike.get(normalised(name), [])
        if len(candidates) == 1:
            pairs[layer] = candidates[0]
    return pairs


def distributions(
    dump: Dump, ranges: Mapping[str, Range], threads: int | None = None
) -> Iterator[Distribution | Undrawn]:
    """Yield one result per record of ``layers(dump)``, in order; ``ranges`` is by layer name.

    Each thread holds the values of one layer; None starts one thread per core. Layers whose values cannot be read, such
    as integers of unknown scale, give an Undrawn.
    """

    pool = ThreadPoolExecutor(threads or cores())
    try:
        yield from pool.map(partial(distribution_of, ranges=ranges), layers(dump))
    finally:
        pool.shutdown(cancel_futures=True)


def distribution_of(record: Record, ranges: Mapping[str, Range]) -> Distribution | Undrawn:
    """Return the distribution of one layer; ``ranges`` is by layer name."""
    try:
        values = record.tensor.real(layout="logical")
    except FileChanged:
        raise
    except SgsdumpError as error:
        return Undrawn(record.name, str(error))
    return describe(record, values, ranges.get(record.name))


def describe(record: Record, values: np.ndarray, range: Range | None) -> Distribution:
    """Reduce a layer's real values to the figures of its histogram."""
    stats = summarise(values)
    index, info = record.op_index, record.tensor.info
    op_type = record.op_type if record.io == "out" else "network input"
    limits = (range.low, range.high) if range else None
    nothing = (math.nan, math.nan)
    if not stats.finite:
        no_counts = np.zeros(BINS, np.int64)
        return Distribution(index, record.name, op_type, info.shape, stats, no_counts, nothing, limits, 0, None)
    fine = histogram(values, *stats.span, BINS * _FINER)
    central = narrowest_span(fine, *stats.span, SHARE)
    counts = fine.reshape(BINS, _FINER).sum(axis=1)
    outside = _outside(values, stats, limits) if limits else 0
    levels = used_levels(central, limits) if limits else None
    return Distribution(index, record.name, op_type, info.shape, stats, counts, central, limits, outside, levels)


def used_levels(central: tuple[float, float], limits: tuple[float, float]) -> int | None:
    """Return how many of LEVELS equal parts of ``limits`` the interval ``central`` touches.

    None for a range of zero width, or with a width beyond float64.
    """
    low, high = limits
    if not 0 < high - low < math.inf:
        return None
    first, last = ((min(max(edge, low), high) - low) / (high - low) * LEVELS for edge in central)
    return min(max(math.ceil(last) - math.floor(first), 1), LEVELS)


def _outside(values: np.ndarray, stats: Statistics, limits: tuple[float, float]) -> int:
    slack = _ROUNDING * max(1.0, abs(limits[0]), abs(limits[1]))
    low, high = limits[0] - slack, limits[1] + slack
    return count_outside(values, low, high) if stats.span[0] < low or stats.span[1] > high else 0


def to_pandas(layers: Iterable[Distribution | Undrawn]) -> Any:
    """Return a pandas DataFrame with one row per layer: statistics, range, central interval and problems.

    For a layer whose values are not available, it holds the name and the reason. Raises MissingExtra if pandas is not
    installed.
    """
    return data_frame([facts_of(layer) for layer in layers], _COLUMNS)


_COLUMNS = [
    *("name", "op_type", "shape", "count", "nan", "inf", "min", "max", "mean", "central_low", "central_high"),
    *("range_low", "range_high", "outside", "levels", "broken", "clipped", "wasteful", "reason"),
]


def facts_of(layer: Distribution | Undrawn) -> dict[str, Any]:
    """Return a layer's row of the table."""
    if isinstance(layer, Undrawn):
        return {"name": layer.name, "reason": layer.reason}
    stats, limits = layer.stats, layer.limits or (None, None)
    facts = {name: getattr(layer, name) for name in ("name", "op_type", "shape", "outside", "levels")}
    facts |= {name: getattr(layer, name) for name in ("broken", "clipped", "wasteful")}
    facts |= {name: getattr(stats, name) for name in ("count", "nan", "inf", "min", "max", "mean")}
    facts |= {"central_low": layer.central[0], "central_high": layer.central[1]}
    return facts | {"range_low": limits[0], "range_high": limits[1], "reason": ""}
