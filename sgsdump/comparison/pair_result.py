"""Turn a pair of records into its row: load both sides, match their layouts, measure in one pass.

If a side has only statistics, the pair is compared by the statistics that both sides have (``COMPARED``) instead of
values. The error of a statistic is relative. The base of a norm is the benchmark's norm. The base of min, max, mean and
std is the largest magnitude among the benchmark's min and max, because a mean near 0 is no sensible base; if these are
unknown, the statistic's own magnitude is the base. Statistics count as equal (error 0) if both are NaN, or if they
differ only in the last digit of a writer's text (``Statistics.digits``, else the sixth decimal). NaN against a number,
and a number against 0, give an infinite error. Equal statistics do not prove equal values, so the verdict of such a row
is ``warn`` at best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from sgsdump.comparison.alignment import Pair
from sgsdump.comparison.channels import Channels, channel_sums, channels_of
from sgsdump.comparison.details import details_of
from sgsdump.comparison.layout_match import (
    RETRY_BELOW,
    Fit,
    Layouts,
    Measured,
    Turn,
    best_turned,
    fit,
    without_alignment,
    without_overallocation,
)
from sgsdump.comparison.metrics import Accumulator, Counts, Metric, Settings, Sums, cos
from sgsdump.comparison.own_metric import Asked, OwnMetric, measured_by, sorted_out
from sgsdump.comparison.row import DIFFER, EQUAL, NO_EXTRAS, Extras, Failed, Row, row_of, step_of
from sgsdump.comparison.stored_integers import (
    IN_STEPS,
    Differences,
    StoredIntegers,
    are_indices,
    both_quantised,
    integers_of,
    measured_in_steps,
    unlike,
)
from sgsdump.comparison.sums.summation import feed_all, hold_equal, pair_sums, sums_of_each, takes
from sgsdump.comparison.sums.tiles import ChannelSums, Picked, ToSum
from sgsdump.comparison.vendor_metrics import (
    VENDOR_METRICS,
    VENDOR_STATISTICS,
    Printed,
    VendorMetrics,
    VendorStatistics,
)
from sgsdump.dumps.dump import Record
from sgsdump.errors import FileChanged, FormatError, SgsdumpError, ValuesError
from sgsdump.files.mapped import in_memory
from sgsdump.tensors.device import PLAIN, conversion, is_device
from sgsdump.tensors.dtypes import is_complex
from sgsdump.tensors.statistics import Statistics, l1norm_and_std, saturated, summarise
from sgsdump.tensors.tensor import Tensor, Values, values_of
from sgsdump.tensors.types import NHWC

_DECIMALS = 6
_ROUNDED = 1e-4  # share of Σ|b| by which runtimes may differ
_NEAR = 10  # the sums of squares may differ by this factor more, relatively
_COLOURS, _PIXELS = 3, 16  # colours of an image, and the fewest pixels that identify its format
RGBA_STREAM = (
    "holds only the first three quarters of an RGBA image, an SDK bug with eliminateGarbage; dump again without "
    "eliminateGarbage"
)
_SORTED = 0.1  # share of Σ|a-b| that may remain after sorting if only the order differs
COMPARED = ("min", "max", "mean", "l2norm", "l1norm", "std")
_NORMS = ("l2norm", "l1norm")


def statistics_row(pair: Pair, vendor: VendorStatistics | None = None) -> Row:
    """Return the row of a pair compared by its statistics; its mse, cos and rmse are NaN.

    ``vendor`` formats the statistics as the vendor's tool does. Raises ValuesError if the sides share no statistic or
    differ in size.
    """
    shapes = [record.tensor.info.shape for record in pair.records]
    if None not in shapes and math.prod(shapes[0] or ()) != math.prod(shapes[1] or ()):
        raise ValuesError(f"shapes differ: sample {list(shapes[0] or ())}, benchmark {list(shapes[1] or ())}")
    sample_statistics = _figures(pair.sample, pair.benchmark.tensor.statistics)
    benchmark_statistics = _figures(pair.benchmark, pair.sample.tensor.statistics)
    errors = relative_errors(sample_statistics, benchmark_statistics)
    is_empty = all(shape is not None and 0 in shape for shape in shapes)
    checksums = EQUAL if is_empty else _checksums(sample_statistics, benchmark_statistics)
    if not errors and not checksums:
        for record in pair.records:
            if record.tensor.statistics == Statistics():
                record.tensor.raw()  # raises ValuesError with the reason
        raise ValuesError(
            f"the two dumps have no common values or statistics of {pair.benchmark.name!r}, so this "
            "tensor cannot be compared"
        )
    listed = ", ".join(f"{name} {error:.3g}" for name, error in errors.items())
    sides = [s for s, r in (("sample", pair.sample), ("benchmark", pair.benchmark)) if r.tensor.statistics is not None]
    have = f"{' and '.join(sides)} {'have' if len(sides) > 1 else 'has'}"
    notes = [f"{have} statistics only; relative errors: {listed}"] if errors and checksums != EQUAL else []
    notes += [f"{have} statistics only, and the checksums differ"] if checksums == DIFFER else []
    odd, benchmark_odd = _odd(sample_statistics), _odd(benchmark_statistics)
    counts = Counts(*odd[:2], *benchmark_odd[:2], odd[2], benchmark_odd[2])
    count = benchmark_statistics.count or sample_statistics.count or 0
    is_bool = any(record.tensor.info.dtype == np.bool_ for record in pair.records)
    extras = Extras(vendor=vendor(sample_statistics, benchmark_statistics, is_bool).values) if vendor else NO_EXTRAS
    row = row_of(pair, Sums(count, 0, 0, 0, 0, 0, 0, counts), "; ".join(filter(None, [pair.note, *notes])), extras)
    nan = math.nan
    return replace(row, errors=replace(row.errors, mse=nan, cos=nan, rmse=nan, statistics=errors, checksums=checksums))


def _checksums(sample: Statistics, benchmark: Statistics) -> str:
    """Return whether the checksums are equal, or "" if they are of different kinds."""
    a, b = sample.checksum, benchmark.checksum
    if not a or not b or a.partition(":")[0] != b.partition(":")[0]:
        return ""
    return EQUAL if a == b else DIFFER


def relative_errors(sample: Statistics, benchmark: Statistics) -> Mapping[str, float]:
    """Return the relative errors, by name, of the statistics that both sides have."""
    largest = [abs(figure) for figure in (benchmark.min, benchmark.max) if figure is not None]
    digits = min((side.digits for side in (sample, benchmark) if side.digits), default=0)
    errors = {}
    for name in COMPARED:
        a, b = getattr(sample, name), getattr(benchmark, name)
        if a is not None and b is not None:
            errors[name] = _error(a, b, abs(b) if name in _NORMS else max([*largest, abs(b)]), digits)
    return errors


def _error(a: float, b: float, base: float, digits: int) -> float:
    if a == b or (math.isnan(a) and math.isnan(b)) or (_one_digit(a, b, digits) if digits else _one_rounding(a, b)):
        return 0.0
    error = abs(a - b) / base if base else math.inf
    return error if math.isfinite(error) else math.inf


def _one_rounding(a: float, b: float) -> bool:
    """Return whether one number has six printed decimals, as by ATB and GE, and equals the other up to the last."""
    return abs(a - b) <= 1.001 * 10**-_DECIMALS and (round(a, _DECIMALS) == a or round(b, _DECIMALS) == b)


def _one_digit(a: float, b: float, digits: int) -> bool:
    """Return whether two numbers differ by at most one unit in the last of their significant digits."""
    largest = max(abs(a), abs(b))
    if not math.isfinite(largest) or not largest:
        return False
    return abs(a - b) <= 1.001 * 10.0 ** (math.floor(math.log10(largest)) - digits + 1)


def _figures(record: Record, other: Statistics | None) -> Statistics:
    """Return the dumped statistics, or compute them from the values, with all statistics that the other side has."""
    if record.tensor.statistics is not None:
        return record.tensor.statistics
    read = values_of(record.tensor.logical())
    array = in_memory(read.array)
    array = array if read.to_real is None else read.to_real(array)
    figures = summarise(array)
    if other is None or (other.l1norm is None and other.std is None):
        return figures
    l1norm, std = l1norm_and_std(array, figures.mean)
    return replace(figures, l1norm=l1norm, std=std)


def _odd(figures: Statistics) -> tuple[int, int, int]:
    """Return the numbers of NaN, infinite and -Inf values.

    Without counts, a value is counted once if a statistic shows it.
    """
    counted = [figures.nan, figures.positive_inf, figures.negative_inf]
    if any(count is not None for count in counted):
        nan, plus, minus = (count or 0 for count in counted)
        return nan, plus + minus, minus
    extremes = [value for name in COMPARED if (value := getattr(figures, name)) is not None]
    minus = int(-math.inf in extremes)
    return int(any(map(math.isnan, extremes))), minus + (math.inf in extremes), minus


class Started(NamedTuple):
    """Pair in matching layouts, whose sums are still to be computed.

    notes        remarks for the row.
    kinds        classes of the accumulators that the metrics need.
    looks_again  the metrics need a second look at all values.
    by_kernel    the C kernel can sum the pair.
    channels     receives the sums per channel.
    loaded       values of both records if their own layouts fit, else (None, None).
    """

    pair: Pair
    fit: Fit
    notes: list[str]
    kinds: tuple[type[Accumulator], ...]
    looks_again: bool
    by_kernel: bool
    channels: ChannelSums | None = None
    loaded: tuple[Values, Values] | tuple[None, None] = (None, None)

    def to_sum(self, picked: tuple[Picked, Picked] | None = None) -> ToSum:
        """Return the task for the kernel; ``picked`` values are collected on the way if the shapes allow."""
        fit = self.fit
        if picked and [side.shape for side in picked] != [fit.sample.array.shape, fit.benchmark.array.shape]:
            picked = None
        return ToSum(fit.a, fit.b, self.by_kernel, picked, self.channels)


@dataclass(frozen=True)
class Measures:
    """Measures of every pair besides MSE, COS and RMSE.

    further   additional metrics by name, with their ``settings``; ``own`` are the user's functions.
    vendor    a vendor's set of metrics, or None; ``vendor_statistics`` formats statistics as the vendor does, or None.
    crop      network inputs may hold the SDK's over-allocation of images, which is left out.
    details   rows get ``details`` too, in a separate pass.
    threads   number of threads for a large pair.
    turns     try other orders of axes if the order is unknown and the values do not match.
    """

    further: Mapping[str, Metric]
    settings: Settings | None = None
    vendor: VendorMetrics | None = None
    vendor_statistics: VendorStatistics | None = None
    crop: bool = True
    own: Mapping[str, OwnMetric] = field(default_factory=dict)
    details: bool = False
    threads: int = 1
    turns: bool = True

    @classmethod
    def of(
        cls, metrics: Asked, settings: Settings | None, compatible: str | None, crop: bool, details: bool = False
    ) -> Measures:
        """Return the measures for names of metrics and of a vendor's tool. Raises ConfigError for unknown names."""
        vendor = VENDOR_METRICS[compatible] if compatible else None
        of_statistics = VENDOR_STATISTICS[compatible] if compatible and compatible in VENDOR_STATISTICS else None
        further, own = sorted_out(metrics) if metrics else ({}, {})
        return cls(further, settings, vendor, of_statistics, crop, own, details)

    def result(self, pair: Pair) -> Row | Failed:
        """Return the row of a pair, or the reason why it cannot be compared."""
        started = self.started(pair)
        if not isinstance(started, Started):
            return started
        [sums] = sums_of_each([started.to_sum()], self.threads)
        return self.finished(started, sums)

    def started(self, pair: Pair) -> Started | Row | Failed:
        """Load a pair and match its layouts; return its result directly if no sums are needed."""
        try:
            if pair.sample.tensor.statistics is not None or pair.benchmark.tensor.statistics is not None:
                return statistics_row(pair, self.vendor_statistics)
            return self._fitted(pair)
        except FileChanged:
            raise
        except SgsdumpError as error:
            return _failed(pair, error)

    def finished(self, started: Started, sums: Sums | SgsdumpError) -> Row | Failed:
        """Return the result of a pair from its sums, or from the error that prevented them."""
        pair = started.pair
        if isinstance(sums, SgsdumpError):
            return _failed(pair, sums)
        try:
            measured = self._matched(started, sums)
            accumulators = {kind: kind(self.settings or Settings()) for kind in started.kinds}
            if accumulators:
                feed_all(measured.sample, measured.benchmark, tuple(accumulators.values()))
        except FileChanged:
            raise
        except SgsdumpError as error:
            return _failed(pair, error)
        equality = _equality(measured)
        notes = [*started.notes, equality]
        if measured.turn or measured.is_flattened:
            notes.insert(-1, measured.note)
        extras = NO_EXTRAS
        if started.looks_again or self.further:
            extras = self._extras(pair, measured, accumulators)
            in_steps = extras.integers and not extras.integers.identical and measured_in_steps(pair)
            notes.append(IN_STEPS if in_steps else "")
        retried, sums = measured.cos_untried is not None, measured.sums
        has_channels = started.channels is not None and started.channels.whole and not _is_near_nothing(pair, sums)
        if started.channels is not None and has_channels and sums.d1 and not retried:
            channels = self._channels(started, started.channels)
            extras = Extras(channels=channels) if extras is NO_EXTRAS else replace(extras, channels=channels)
        row = row_of(pair, sums, "; ".join(filter(None, notes)), extras, bool(equality))
        return row.replaced(retried=True) if retried else row

    def of_selected(self, pair: Pair, select: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Row | Failed:
        """Return the row of selected values of a pair.

        Details, vendor figures and channels are left out, because they need whole tensors.

        select  takes the real values of both sides, of equal shape, and returns a mask of the values to keep.
        """
        started = self._fitted(pair)
        fit = started.fit
        matched = self._matched(started, pair_sums(fit.a, fit.b, threads=self.threads))
        a, b = (v.array if v.to_real is None else v.to_real(v.array) for v in (matched.sample, matched.benchmark))
        kept = select(a, b)
        ours, theirs = (Values(np.ascontiguousarray(side[kept])) for side in (a, b))
        flat = Fit(ours, theirs, ours, theirs, None, False, settled=True)
        started = started._replace(fit=flat, by_kernel=takes(ours) and takes(theirs), channels=None)
        sums = pair_sums(ours, theirs, threads=self.threads)
        return replace(self, vendor=None, details=False).finished(started, sums)

    def _channels(self, started: Started, share: ChannelSums) -> Channels | None:
        """Return the errors of the channels.

        Recompute them from all values if only some channels of a subset are lost.
        """
        fit, step = started.fit, step_of(started.pair)
        channels = channels_of(share, fit.a.array.size, step)
        if channels is None or channels.lost in (0, channels.count) or share.skip == 1:
            return channels
        of_all = ChannelSums(fit.a.array.shape, share.axis, skip=1)
        [sums] = sums_of_each([ToSum(fit.a, fit.b, started.by_kernel, None, of_all)], self.threads)
        return channels if isinstance(sums, SgsdumpError) else channels_of(of_all, fit.a.array.size, step)

    def fitted(self, pair: Pair) -> tuple[Values, Values]:
        """Return both sides in matching layouts. Raises ValuesError if they do not fit."""
        started = self._fitted(pair)
        return started.fit.a, started.fit.b

    def measured(self, pair: Pair) -> tuple[Measured, list[str]]:
        """Return the pair in the best matching layouts with its sums, and notes.

        Raises ValuesError if the sides do not fit.
        """
        started = self._fitted(pair)
        sums = pair_sums(started.fit.a, started.fit.b, threads=self.threads)
        return self._matched(started, sums), started.notes

    def _fitted(self, pair: Pair) -> Started:
        as_stored = compared_as_stored(pair)
        are_quantised = pair.sample.tensor.info.quant is not None and both_quantised(pair)
        quants = (measured_in_steps(pair) if are_quantised else None) or (None, None)
        sample = pair.sample.tensor if as_stored else pair.sample.tensor.logical()
        a = values_of(sample, quants[0])
        benchmark = pair.benchmark.tensor if as_stored else pair.benchmark.tensor.logical()
        b = values_of(benchmark, quants[1])
        loaded = (None, None) if as_stored or quants != (None, None) else (a, b)
        notes = [pair.note, _conversion_note(pair, as_stored)]
        if pair.parts:
            a, b = without_alignment(a, b, pair.parts)
            notes.append(f"without the alignment zeros of its {len(pair.parts)} parts")
        if pair.benchmark.io == "in" and self.crop:
            if _is_rgba_stream(a, sample, b.array.shape):
                raise ValuesError(RGBA_STREAM, tensor=pair.sample.name)
            a, b, cropped = without_overallocation(a, b)
            notes.append(cropped)
        notes += [_flat_note(pair, a, b), _saturation_note(a, b)]
        kinds = tuple(dict.fromkeys(m.accumulator for m in self.further.values() if m.accumulator is not None))
        kinds += (Differences,) if are_quantised or are_indices(pair) else ()
        looks_again = bool(kinds or self.own or self.vendor or self.details)
        fitted = _fit(a, b, (None, None) if as_stored else _layouts(sample, benchmark))
        by_kernel, channels = takes(fitted.a) and takes(fitted.b), None
        if not are_indices(pair) and not as_stored:
            channels = channel_sums(ToSum(fitted.a, fitted.b, by_kernel), _order_of_axes(pair, fitted.turn))
        return Started(pair, fitted, notes, kinds, looks_again, by_kernel, channels, loaded)

    def _matched(self, started: Started, sums: Sums) -> Measured:
        fitted = started.fit
        if self.turns and not fitted.settled and cos(sums) < RETRY_BELOW:
            return best_turned(fitted, sums, self.threads)
        return Measured(fitted.a, fitted.b, sums, fitted.turn, fitted.is_flattened)

    def _extras(self, pair: Pair, measured: Measured, accumulators: Mapping[type[Accumulator], Accumulator]) -> Extras:
        """Return the measures besides the sums; the accumulators must have seen all values."""
        a, b = measured.sample, measured.benchmark
        values, left_out = {}, {}
        for name, metric in self.further.items():
            accumulator = accumulators[metric.accumulator] if metric.accumulator else None
            values[name] = metric.of(measured.sums if accumulator is None else accumulator)
            if accumulator is not None and accumulator.left_out:
                left_out[name] = accumulator.left_out
        printed = _printed(pair, measured, self.vendor) if self.vendor else None
        differing, whole = accumulators.get(Differences), are_indices(pair)
        return Extras(
            values | measured_by(self.own, a, b) if self.own else values,
            left_out,
            printed.values if printed else {},
            printed.message if printed else "",
            None if whole else _integers(pair, differing),
            _indices(differing) if whole else None,
            details=details_of(a, b, _axes(pair, measured)) if self.details else None,
        )


def _is_rgba_stream(values: Values, tensor: Tensor, shape: tuple[int, ...]) -> bool:
    """Return whether a quantised three-channel image is the beginning of a four-channel image with zeros in the fourth.

    The SDK writes such a stream for an RGBA input with eliminateGarbage. An image of one colour is not recognised.
    """
    array, quant = values.array, tensor.info.quant
    count = math.prod(shape)
    is_picture = (len(shape) == 4 and shape[-1] == _COLOURS) or (len(shape) == 1 and count % _COLOURS == 0)
    if quant is None or not is_picture or not (_COLOURS + 1) * _PIXELS <= count <= array.size:
        return False
    flat = np.ravel(array)[:count]
    return bool((flat[3::4] == flat[3]).all() and (flat[:3] != flat[3]).any())


def _is_near_nothing(pair: Pair, sums: Sums) -> bool:
    """Return whether the benchmark's values lie within one step of the quantised sample, which cannot resolve them."""
    return sums.count > 0 and sums.bb <= sums.count * step_of(pair) ** 2


def may_be_rearranged(row: Row) -> bool:
    """Return whether the sums of squares allow both sides to hold the same values in another order."""
    sums = row.sums
    if sums is None or not sums.d1 or not row.finite:
        return False
    return abs(sums.aa - sums.bb) * sums.b1 <= _NEAR * _left_by_sorting(row, sums) * (sums.aa + sums.bb)


def _left_by_sorting(row: Row, sums: Sums) -> float:
    """Return the largest Σ|a-b| of sorted values that rounding, or a quantised side's step, explains."""
    return max(_ROUNDED * sums.b1, row.step * row.count)


def is_rearranged(pair: Pair, row: Row, measures: Measures) -> bool:
    """Return whether both sides of a measured pair hold the same values in another order.

    Sorted, such values agree to rounding or to the step of a quantised side.
    """
    try:
        fitted = measures.fitted(pair)
        sides = [
            np.sort(np.ravel(side.array if side.to_real is None else side.to_real(side.array)).astype(np.float64))
            for side in fitted
        ]
    except SgsdumpError:
        return False
    with np.errstate(invalid="ignore"):  # -Inf on both sides, as in masks
        apart = float(np.abs(sides[0] - sides[1]).sum())
    sums = row.sums
    return sums is not None and apart <= _left_by_sorting(row, sums) and apart <= _SORTED * sums.d1


# Layouts.


def compared_as_stored(pair: Pair) -> bool:
    """Return whether both sides are compared as stored, including padding.

    This is the case if both have the same device layout and shape and the original shape of one is unknown. If both
    original shapes are known, the logical tensors are compared, as by msaccucmp.
    """
    sample, benchmark = pair.sample.tensor.info, pair.benchmark.tensor.info
    if not is_device(sample.layout) or (sample.layout, sample.shape) != (benchmark.layout, benchmark.shape):
        return False
    return not (conversion(sample) and conversion(benchmark))


def layouts(pair: Pair, as_stored: bool) -> Layouts:
    """Return the layouts of both tensors after device layouts are undone; None if unknown or compared as stored.

    Raises ValuesError if a device layout cannot be undone.
    """
    return (None, None) if as_stored else _layouts(pair.sample.tensor.logical(), pair.benchmark.tensor.logical())


def _layouts(sample: Tensor, benchmark: Tensor) -> Layouts:
    """Return both layouts; NHWC on both sides counts as unknown, because SigmaStar dumps always state NHWC."""
    layouts = sample.info.layout, benchmark.info.layout
    return (None, None) if layouts == (NHWC, NHWC) else layouts


def _fit(a: Values, b: Values, layouts: Layouts) -> Fit:
    """Return the matching views, without any search if shapes and layouts are equal."""
    if a.array.shape != b.array.shape or layouts[0] != layouts[1]:
        return fit(a, b, layouts)
    return Fit(a, b, a, b, None, False, settled=layouts[0] in PLAIN and len(layouts[0]) == a.array.ndim)


def _axes(pair: Pair, measured: Measured) -> str | None:
    return _order_of_axes(pair, measured.turn)


def _order_of_axes(pair: Pair, turn: Turn | None) -> str | None:
    """Return the order of the axes of the matched arrays.

    None if unknown, as in SigmaStar dumps, which state NHWC whatever they contain.
    """
    if turn and turn.side == "benchmark":
        return turn.after
    layout = pair.sample.tensor.info.layout
    return layout if layout != NHWC else None


# Notes.


def _failed(pair: Pair, error: SgsdumpError) -> Failed:
    difference = unlike(pair) if both_quantised(pair) else ""
    why = error.reason_of(pair.sample.name, pair.benchmark.name)
    reason = f"quantised differently: {difference}; {why}" if difference else why
    return Failed(pair, reason, difference, isinstance(error, FormatError))


def _conversion_note(pair: Pair, as_stored: bool) -> str:
    """Return a note on how device layouts were converted, or ""."""
    infos = {"sample": pair.sample.tensor.info, "benchmark": pair.benchmark.tensor.info}
    if as_stored:
        return (
            f"both tensors have layout {infos['sample'].layout} and were compared including padding, because "
            "the original shape is unknown"
        )
    changes = {side: conversion(info) for side, info in infos.items() if is_device(info.layout)}
    return "; ".join(f"{side} {change}" for side, change in changes.items() if change)


def _flat_note(pair: Pair, a: Values, b: Values) -> str:
    """Return a note if one side is flat and the other is not, although both dumps state their shapes."""
    if a.array.shape == b.array.shape:
        return ""
    if any(record.tensor.info.shape is None for record in pair.records):
        return ""
    shapes = [[size for size in side.array.shape if size != 1] for side in (a, b)]
    if a.array.size != b.array.size or shapes[0] == shapes[1] or min(map(len, shapes)) > 1:
        return ""
    return f"compared flat: sample {list(a.array.shape)}, benchmark {list(b.array.shape)}"


def _saturation_note(a: Values, b: Values) -> str:
    """Return a note on float16 values at the limit of the type, to which larger results were clipped."""
    if 2 not in (a.array.itemsize, b.array.itemsize):
        return ""
    counts = {side: _saturated(values.array) for side, values in (("sample", a), ("benchmark", b))}
    told = ", ".join(f"{count} in {side}" for side, count in counts.items() if count)
    return f"float16 values at ±65504: {told}" if told else ""


def _saturated(array: np.ndarray) -> int:
    return saturated(in_memory(array)) if array.itemsize == 2 else 0


def _equality(measured: Measured) -> str:
    """Return a note if both tensors are equal but no metric shows it (both empty, or with -Inf), else ""."""
    sums, odd = measured.sums, measured.sums.odd
    if not sums.count:
        return "both are empty"
    if odd.sample_nan or not odd.sample_inf or odd.sample_inf != odd.sample_minus_inf or odd.odd_apart:
        return ""
    if not hold_equal(measured.sample, measured.benchmark):
        return ""
    return f"all values are equal; {odd.sample_inf} of the values are -Inf"


# Extras.


def _integers(pair: Pair, differences: Accumulator | None) -> StoredIntegers | None:
    """Return how the integers of a pair differ, or None if a side has none."""
    if not isinstance(differences, Differences):
        return None
    return integers_of(pair, differences, measured_in_steps(pair) is not None)


def _indices(differences: Accumulator | None) -> StoredIntegers | None:
    """Return how whole numbers that are no quantised values differ, or None."""
    if not isinstance(differences, Differences):
        return None
    largest = round(differences.largest) if math.isfinite(differences.largest) else None
    return StoredIntegers(differences.count, differences.differing, largest)


def _printed(pair: Pair, measured: Measured, vendor: VendorMetrics) -> Printed:
    """Return the vendor tool's figures as it prints them.

    It reads booleans as numbers and complex values as real parts.
    """
    arrays = [(v, in_memory(v.array)) for v in (measured.sample, measured.benchmark)]
    sides = [array if v.to_real is None else v.to_real(array) for v, array in arrays]
    stored = [in_memory(record.tensor.stored_view()) for record in pair.records]
    if any(is_complex(side.dtype) for side in stored):
        sides = stored
    return vendor(*(side.astype(np.uint8) if side.dtype == np.bool_ else side for side in sides))
