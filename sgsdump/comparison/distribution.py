"""How the values of each layer lie in its calibrated range: the figures that the histograms draw.

A fixed model cuts the range [min, max] of ``tensor_min_max`` into 2**8 levels (or 2**16). Values outside it are
clipped; a wide range with nearly all values in a small part of it wastes the levels. The user guide's rule for the
latter: when the values are concentrated and max - min exceeds about 30, let the convolution that reads the layer take
INT16 input.
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
# Bins are counted finer than they are drawn, so that the central share is known to 1/16 of a bin.
_FINER = 16
# Ranges in text are rounded to six decimals; a maximum that moved by that much is not outside.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Distribution:
    """The values of one layer against its range.

    index     its number: the operator that makes it, or that a network input goes to, as the dump counts them.
    shape     logical shape, None when the file does not say.
    counts    int64 (BINS,): finite values per bin of equal width over [stats.min, stats.max].
    central   the narrowest interval that holds 99 % of the finite values.
    limits    (min, max) of the calibrated range, over all channels; None when it has none.
    outside   finite values outside ``limits``.
    levels    how many of the 256 levels of an 8-bit quantiser of that range ``central`` uses; None without a range.
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
        """max - min of the range; nan without one."""
        return self.limits[1] - self.limits[0] if self.limits else math.nan

    @property
    def broken(self) -> bool:
        """NaN or Inf among the values, or no value at all."""
        return self.stats.finite < (self.stats.count or 1)

    @property
    def overshoot(self) -> float:
        """How far the values reach beyond the range, as a part of its width; 0.0 when they do not."""
        if self.limits is None or not self.outside:
            return 0.0
        low, high = self.stats.span
        beyond = max(self.limits[0] - low, high - self.limits[1])
        return beyond / self.width if self.width > 0 else math.inf

    @property
    def clipped(self) -> bool:
        """More than 1 % of the values outside the range, or one of them by more than a tenth of its width.

        Less is usual: the picture of the dump is not one of those the ranges were calibrated on. Nor does it count
        when the farthest is within half a level of the range, since rounding brings it back.
        """
        many = self.outside > CLIPPED_SHARE * self.stats.finite and self.overshoot > 0.5 / LEVELS
        return many or self.overshoot > CLIPPED_REACH

    @property
    def wasteful(self) -> bool:
        """A range wider than 30 of which 99 % of the values use less than a quarter."""
        return self.levels is not None and self.width > WIDE and self.levels < FEW_LEVELS

    @property
    def troubled(self) -> bool:
        """Needs review."""
        return self.broken or self.clipped or self.wasteful

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the histogram and the range into axes of matplotlib; None: new ones of ``pyplot``."""
        drawn: Axes = ask("plot of a distribution", self, axes)
        return drawn

    def _repr_html_(self) -> str | None:
        """Its histogram within its range, for a notebook."""
        return as_html("distribution", self)


@dataclass(frozen=True)
class Undrawn:
    """A layer whose values cannot be had, and why."""

    name: str
    reason: str


def layers(dump: Dump) -> list[Record]:
    """The network's inputs and every output, in file order; constants and repeated inputs are left out."""
    names: set[str] = set()
    records = []
    for record in dump.records:
        if record.constant or (record.io == "in" and (record.name in dump.outputs or record.name in names)):
            continue
        names.add(record.name)
        records.append(record)
    return records


def pair_ranges(names: Iterable[str], ranges: Mapping[str, Range]) -> dict[str, str]:
    """Layer name -> name in ``ranges``: the same name, else the only one that the SDK's tools take for the same.

    A blob of a Caffe reference, whose names lack the stages that the ranges have, takes the range of its last stage.
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
    """One result for each of ``layers(dump)``, in their order; ``ranges`` is by layer name.

    Each thread holds the values of one layer; None is a thread per core. Layers whose values cannot be read, integers
    of unknown scale among them, come as Undrawn.
    """

    pool = ThreadPoolExecutor(threads or cores())
    try:
        yield from pool.map(partial(distribution_of, ranges=ranges), layers(dump))
    finally:
        pool.shutdown(cancel_futures=True)


def distribution_of(record: Record, ranges: Mapping[str, Range]) -> Distribution | Undrawn:
    """One layer's; ``ranges`` is by layer name."""
    try:
        values = record.tensor.real(layout="logical")
    except FileChanged:
        raise
    except SgsdumpError as error:
        return Undrawn(record.name, str(error))
    return describe(record, values, ranges.get(record.name))


def describe(record: Record, values: np.ndarray, range: Range | None) -> Distribution:
    """Reduce one layer's real values to what its picture shows."""
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
    """How many of LEVELS equal parts of ``limits`` the interval ``central`` touches.

    None for a range of no width, or of one beyond float64.
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
    """A pandas DataFrame with one line per layer: its statistics, range and central interval, and what is wrong with
    it; of a layer whose values cannot be had the name and the reason.

    Raises MissingExtra when pandas is not installed.
    """
    return data_frame([facts_of(layer) for layer in layers], _COLUMNS)


_COLUMNS = [
    *("name", "op_type", "shape", "count", "nan", "inf", "min", "max", "mean", "central_low", "central_high"),
    *("range_low", "range_high", "outside", "levels", "broken", "clipped", "wasteful", "reason"),
]


def facts_of(layer: Distribution | Undrawn) -> dict[str, Any]:
    """What a line of the table says of a layer."""
    if isinstance(layer, Undrawn):
        return {"name": layer.name, "reason": layer.reason}
    stats, limits = layer.stats, layer.limits or (None, None)
    facts = {name: getattr(layer, name) for name in ("name", "op_type", "shape", "outside", "levels")}
    facts |= {name: getattr(layer, name) for name in ("broken", "clipped", "wasteful")}
    facts |= {name: getattr(stats, name) for name in ("count", "nan", "inf", "min", "max", "mean")}
    facts |= {"central_low": layer.central[0], "central_high": layer.central[1]}
    return facts | {"range_low": limits[0], "range_high": limits[1], "reason": ""}
