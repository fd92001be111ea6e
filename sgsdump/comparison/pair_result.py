"""From a pair of records to its row: load both, match their layouts, measure in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from sgsdump.comparison.details.layer_details import details_of
from sgsdump.comparison.device_pairs import compared_as_stored, layout_note, layouts
from sgsdump.comparison.layout_match import Fit, Measured, fit, measured, without_alignment, without_overallocation
from sgsdump.comparison.metrics.base import Accumulator, Metric, Settings, Sums
from sgsdump.comparison.own_metric import Asked, OwnMetric, measured_by, sorted_out
from sgsdump.comparison.pair_sums import hold_equal, sums_of_each
from sgsdump.comparison.pairing.alignment import Pair
from sgsdump.comparison.real_values import real_values
from sgsdump.comparison.row import Failed, Row, row_of
from sgsdump.comparison.statistics_only import has_statistics_only, statistics_row
from sgsdump.comparison.stored_integers import (
    IN_STEPS,
    Differences,
    both_quantised,
    integers_of,
    measured_in_steps,
    unlike,
)
from sgsdump.comparison.sums import compiled
from sgsdump.comparison.sums.picked import Picked
from sgsdump.comparison.sums.to_sum import ToSum
from sgsdump.comparison.vendor_metrics import VENDOR_METRICS, VENDOR_STATISTICS
from sgsdump.comparison.vendor_metrics.base import VendorMetrics, VendorStatistics
from sgsdump.errors import SgsdumpError, ValuesError
from sgsdump.tensors.dtypes import is_complex
from sgsdump.tensors.statistics import saturated
from sgsdump.tensors.tensor import Values
from sgsdump.tensors.types import NHWC


@dataclass(frozen=True)
class Measures:
    """What is measured of every pair besides MSE, COS and RMSE.

    further   further metrics by name, with their settings; own are the user's functions.
    vendor    a vendor's set of metrics, or None; vendor_statistics what it prints of statistics, or None.
    crop      network inputs may hold the SDK's over-allocation of pictures, which is left out.
    details   the rows get ``details`` too, in a pass of their own.
    threads   what a large pair may use for itself.
    """

    further: Mapping[str, Metric]
    settings: Settings | None = None
    vendor: VendorMetrics | None = None
    vendor_statistics: VendorStatistics | None = None
    crop: bool = True
    own: Mapping[str, OwnMetric] = field(default_factory=dict)
    details: bool = False
    threads: int = 1

    @classmethod
    def of(
        cls, metrics: Asked, settings: Settings | None, compatible: str | None, crop: bool, details: bool = False
    ) -> Measures:
        """By the names of metrics and of the vendor's tool. Raises ConfigError for unknown ones."""
        vendor = VENDOR_METRICS[compatible] if compatible else None
        of_statistics = VENDOR_STATISTICS[compatible] if compatible and compatible in VENDOR_STATISTICS else None
        further, own = sorted_out(metrics)
        return cls(further, settings, vendor, of_statistics, crop, own, details)

    def result(self, pair: Pair) -> Row | Failed:
        """The row of a pair, or why it cannot be compared."""
        started = self.started(pair)
        if not isinstance(started, Started):
            return started
        [sums] = sums_of_each([started.to_sum()], self.threads)
        return self.finished(started, sums)

    def started(self, pair: Pair) -> Started | Row | Failed:
        """What is known of a pair before its sums are; its result where that needs no sums."""
        try:
            return statistics_row(pair, self.vendor_statistics) if has_statistics_only(pair) else self._fitted(pair)
        except SgsdumpError as error:
            return _failed(pair, error)

    def finished(self, started: Started, sums: Sums | SgsdumpError) -> Row | Failed:
        """The result of a pair whose sums are known, or the error that kept them from being."""
        pair = started.pair
        if isinstance(sums, SgsdumpError):
            return _failed(pair, sums)
        try:
            measured = self._measured(started, sums)
        except SgsdumpError as error:
            return _failed(pair, error)
        equality = _equality(measured)
        row = row_of(pair, measured.sums, "; ".join(filter(None, [*started.notes, measured.note, equality])))
        row = _with_integers(replace(row, equal=True) if equality else row, pair, measured)
        row = _with_further(_with_vendor(row, pair, measured, self.vendor), measured, self.further)
        if self.details:
            row = replace(row, details=details_of(measured.sample, measured.benchmark, _layout(pair, measured)))
        own = measured_by(self.own, measured.sample, measured.benchmark)
        return replace(row, extra={**row.extra, **own}) if own else row

    def measured(self, pair: Pair) -> tuple[Measured, list[str]]:
        """The pair in layouts that match, its sums, and notes. Raises ValuesError when the two do not fit."""
        started = self._fitted(pair)
        [sums] = sums_of_each([started.to_sum()], self.threads)
        if isinstance(sums, ValuesError):
            raise sums
        return self._measured(started, sums), started.notes

    def _fitted(self, pair: Pair) -> Started:
        as_stored = compared_as_stored(pair)
        are_quantised = both_quantised(pair)
        quants = (measured_in_steps(pair) if are_quantised else None) or (None, None)
        a, b = real_values(pair.sample, as_stored, quants[0]), real_values(pair.benchmark, as_stored, quants[1])
        notes = [pair.note, layout_note(pair, as_stored)]
        if pair.parts:
            a, b = without_alignment(a, b, pair.parts)
            notes.append(f"without the zeros that align its {len(pair.parts)} parts")
        if pair.benchmark.io == "in" and self.crop:
            a, b, cropped = without_overallocation(a, b)
            notes.append(cropped)
        notes += [_flat_note(pair, a, b), _saturation_note(a, b)]
        kinds = dict.fromkeys(m.accumulator for m in self.further.values() if m.accumulator is not None)
        kinds |= {Differences: None} if are_quantised else {}
        looks_again = bool(kinds or self.own or self.vendor or self.details)
        fitted = fit(a, b, layouts(pair, as_stored))
        by_kernel = compiled.takes_both(fitted.a, fitted.b)
        return Started(pair, fitted, notes, tuple(kinds), looks_again, by_kernel)

    def _measured(self, started: Started, sums: Sums) -> Measured:
        return measured(started.fit, sums, started.kinds, self.settings, self.threads)


class Started(NamedTuple):
    """A pair in layouts that fit, notes, and the accumulators that are wanted; its sums are still to be made.
    ``looks_again``: what is measured of it needs all values once more; ``by_kernel``: the kernel takes it."""

    pair: Pair
    fit: Fit
    notes: list[str]
    kinds: tuple[type[Accumulator], ...]
    looks_again: bool
    by_kernel: bool

    def to_sum(self, picked: tuple[Picked, Picked] | None = None) -> ToSum:
        """``picked``, of the sides as stored, is picked up on the way where it can be."""
        fit = self.fit
        if picked and [one.shape for one in picked] != [fit.sample.array.shape, fit.benchmark.array.shape]:
            picked = None
        return ToSum(fit.a, fit.b, self.by_kernel, picked)


def _failed(pair: Pair, error: SgsdumpError) -> Failed:
    apart = unlike(pair) if both_quantised(pair) else ""
    why = str(error)
    for record in (pair.sample, pair.benchmark):
        # The name is told beside the reason, which others may share.
        why = why.removeprefix(f"tensor {record.name!r} ")
    return Failed(pair, f"quantised differently: {apart}; {why}" if apart else why)


def _layout(pair: Pair, measured: Measured) -> str | None:
    """The order of the axes of the matched arrays; None where it is not known, as in SigmaStar's dumps, all of which
    are called NHWC whatever was written into them."""
    if measured.note.startswith("benchmark transposed "):
        return measured.note.split()[4]
    known = pair.sample.tensor.info.layout
    return known if known != NHWC else None


def _flat_note(pair: Pair, a: Values, b: Values) -> str:
    """That one side is flat where the other has several dimensions, though both dumps say their shapes."""
    if a.array.shape == b.array.shape:
        return ""
    if any(record.tensor.info.shape is None for record in (pair.sample, pair.benchmark)):
        return ""
    shapes = [[size for size in side.array.shape if size != 1] for side in (a, b)]
    if a.array.size != b.array.size or shapes[0] == shapes[1] or min(map(len, shapes)) > 1:
        return ""
    return f"compared flat: sample {list(a.array.shape)}, benchmark {list(b.array.shape)}"


def _saturation_note(a: Values, b: Values) -> str:
    """That float16 values are at the end of what the type holds, where larger results were cut to."""
    if 2 not in (a.array.itemsize, b.array.itemsize):
        return ""
    counts = {"sample": saturated(a.array), "benchmark": saturated(b.array)}
    told = ", ".join(f"{count} in {side}" for side, count in counts.items() if count)
    return f"float16 values at ±65504: {told}" if told else ""


def _equality(measured: Measured) -> str:
    """How two tensors are equal that no metric can show so: both empty, or -Inf at the same places; "" otherwise."""
    sums = measured.sums
    if not sums.count:
        return "both are empty"
    if sums.sample_nan or not sums.sample_inf or sums.sample_inf != sums.sample_minus_inf or sums.odd_apart:
        return ""
    if not hold_equal(measured.sample, measured.benchmark):
        return ""
    return f"all values are equal, {sums.sample_inf} of them -Inf"


def _with_integers(row: Row, pair: Pair, measured: Measured) -> Row:
    """The row with what its integers are, where both sides have such."""
    differences = measured.accumulators.get(Differences)
    if not isinstance(differences, Differences):
        return row
    in_steps = measured_in_steps(pair) is not None
    integers = integers_of(pair, differences, in_steps)
    if not in_steps or integers.identical:
        return replace(row, integers=integers)
    return replace(row, integers=integers, note="; ".join(filter(None, [row.note, IN_STEPS])))


def _with_further(row: Row, measured: Measured, further: Mapping[str, Metric]) -> Row:
    """The row with further metrics, and how many values each left out."""
    if not further:
        return row
    sources = {
        name: measured.accumulators[metric.accumulator] if metric.accumulator else measured.sums
        for name, metric in further.items()
    }
    values = {name: metric.of(sources[name]) for name, metric in further.items()}
    left_out = {
        name: source.left_out for name, source in sources.items() if isinstance(source, Accumulator) and source.left_out
    }
    return replace(row, extra=values, left_out=left_out)


def _with_vendor(row: Row, pair: Pair, measured: Measured, vendor: VendorMetrics | None) -> Row:
    """The row with what the vendor's tool prints of the pair; booleans of a pair of dumps are numbers to it, complex
    values their real parts."""
    if vendor is None:
        return row
    sides = [v.array if v.to_real is None else v.to_real(v.array) for v in (measured.sample, measured.benchmark)]
    stored = [record.tensor.stored() for record in (pair.sample, pair.benchmark)]
    if any(is_complex(side.dtype) for side in stored):
        sides = stored
    printed = vendor(*(side.astype(np.uint8) if side.dtype == np.bool_ else side for side in sides))
    return replace(row, vendor=printed.values, vendor_message=printed.message)
