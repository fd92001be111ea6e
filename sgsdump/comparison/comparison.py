"""Hold a sample dump against a benchmark dump, layer by layer: ``compare`` gives a ``Comparison``."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from threadpoolctl import threadpool_limits

from sgsdump.comparison.alignment import Given, Pair, Unpaired, align
from sgsdump.comparison.dataflow import with_rises
from sgsdump.comparison.device_pairs import compared_as_stored, layout_note, layouts
from sgsdump.comparison.layout_match import Measured, measure, without_overallocation
from sgsdump.comparison.match_by_value import pairs_by_value
from sgsdump.comparison.metrics import METRICS
from sgsdump.comparison.metrics.base import Accumulator, Metric, Settings
from sgsdump.comparison.misnamed import find_twins
from sgsdump.comparison.naming.pairs_by_map import pairs_by_map
from sgsdump.comparison.naming.sources import NameSources
from sgsdump.comparison.own_inputs import has_own_inputs
from sgsdump.comparison.real_values import RealValues
from sgsdump.comparison.row import Failed, Row, row_of
from sgsdump.comparison.statistics_only import by_figures, figures_row
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.comparison.vendor_metrics import VENDOR_METRICS
from sgsdump.comparison.vendor_metrics.base import VendorMetrics
from sgsdump.dumps.dump import Dump
from sgsdump.dumps.formats.sigmastar.net_facts import with_layouts
from sgsdump.dumps.formats.sigmastar.true_scales import Ranges
from sgsdump.errors import SgsdumpError
from sgsdump.progress import SILENT, Progress, each
from sgsdump.sidecars.parse_net import ParseNet

JUMP_SHARE = 0.1


@dataclass(frozen=True)
class Comparison:
    """The result: rows in the benchmark's file order, and everything that was not compared; and the dumps' notes."""

    rows: tuple[Row, ...]
    only_in_sample: tuple[Unpaired, ...]
    only_in_benchmark: tuple[Unpaired, ...]
    failed: tuple[Failed, ...]
    sample_notes: tuple[str, ...] = ()
    benchmark_notes: tuple[str, ...] = ()

    @property
    def suspects(self) -> tuple[Row, ...]:
        """Rows whose names agree although they are different tensors."""
        return tuple(row for row in self.rows if row.twin)

    @property
    def alike(self) -> tuple[Row, ...]:
        """Rows that hold one tensor against the same one: all but the suspects."""
        return tuple(row for row in self.rows if not row.twin)

    @property
    def worst(self) -> Row | None:
        """The row of the largest error (Σ|a-b|/Σ|b|; NaN and Inf first), suspects apart."""
        return max(self.alike or self.rows, key=lambda row: (row.error, -row.cos), default=None)

    @property
    def jumps(self) -> tuple[Row, ...]:
        """Where the error arises: the rows whose error rises over the layers that feed them, steepest first.

        Rises below a tenth of the steepest finite one are left out.
        """
        rising = sorted((row for row in self.alike if row.rise > 0), key=lambda row: -row.rise)
        steepest = next((row.rise for row in rising if math.isfinite(row.rise)), 0.0)
        return tuple(row for row in rising if row.rise >= JUMP_SHARE * steepest)

    def past(self, thresholds: Thresholds = DOCUMENTED) -> tuple[Row, ...]:
        """The rows past the thresholds, suspects apart."""
        return tuple(row for row in self.alike if not row.passes(thresholds))

    def passes(self, thresholds: Thresholds = DOCUMENTED) -> bool:
        """True when something was compared, nothing failed to be, and every row (suspects too) is within."""
        return bool(self.rows) and not self.failed and all(row.passes(thresholds) for row in self.rows)


def compare(
    sample: Dump,
    benchmark: Dump,
    *,
    inputs: bool = False,
    ranges: Ranges | None = None,
    net: ParseNet | None = None,
    name_map: Mapping[str, str] | NameSources | None = None,
    match_by_value: bool = False,
    metrics: Sequence[str] = (),
    settings: Settings | None = None,
    compatible: str | None = None,
    threads: int | None = None,
    progress: Progress = SILENT,
) -> Comparison:
    """Compare the dump under test with the reference, output tensors only; with ``inputs`` the network's inputs too,
    and so where either dump has each operator's inputs under names of their own (``has_own_inputs``).

    ranges    calibrated ranges, for integer dumps whose headers give their scales to six decimals only.
    net       the fixed model's parse_net text, which unpads and dequantises its integer dumps.
    name_map  benchmark name -> sample name, for pairs that names do not make; or all that mapping files and rules say.
    match_by_value  pair what holds the same values (two float runs of the same weights), and the rest by name.
    metrics   names of further metrics (of ``METRICS``), for the rows' ``extra``; settings are theirs.
    compatible  a vendor's tool (of ``VENDOR_METRICS``), for the rows' ``vendor``; it reads whole tensors.
    threads   how many tensors are compared at once; None is one per core.
    progress  shows how many pairs are done; see ``sgsdump.progress``.

    Nothing raises for a single pair: what cannot be compared is in ``failed``. BLAS is held to one thread meanwhile.
    Raises ConfigError for an unknown metric or vendor's tool.
    """
    own_inputs = has_own_inputs(sample) or has_own_inputs(benchmark)
    inputs = inputs or own_inputs
    further = {name: METRICS[name] for name in metrics}
    accumulators = list(
        dict.fromkeys(metric.accumulator for metric in further.values() if metric.accumulator is not None)
    )
    vendor = VENDOR_METRICS[compatible] if compatible else None
    if net is not None:
        sample, benchmark = with_layouts(sample, net), with_layouts(benchmark, net)
    given = pairs_by_map(sample, benchmark, name_map, inputs) if name_map else Given()
    ours, theirs = RealValues(sample, ranges, net), RealValues(benchmark, ranges, net)

    def one(pair: Pair) -> Row | Failed:
        try:
            if by_figures(pair):
                return figures_row(pair, ours, theirs)
            as_stored = compared_as_stored(pair)
            a, b = ours.of(pair.sample, as_stored), theirs.of(pair.benchmark, as_stored)
            notes = [pair.note, layout_note(pair, as_stored)]
            if pair.benchmark.io == "in" and not own_inputs:
                a, b, cropped = without_overallocation(a, b)
                notes.append(cropped)
            found = measure(a, b, accumulators, settings, layouts(pair, as_stored))
        except SgsdumpError as error:
            return Failed(pair, str(error))
        row = row_of(pair, found.sums, "; ".join(filter(None, [*notes, found.note])))
        return _with_extra(_with_vendor(row, found, vendor) if vendor else row, found, further)

    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(threads or _cores()) as pool:
        if match_by_value:
            given = pairs_by_value(ours, theirs, inputs, given, pool.map)
        alignment = align(sample, benchmark, inputs, given)
        stream: Iterable[Row | Failed] = pool.map(one, alignment.pairs)
        done = list(each(progress, stream, "compare", "layer", len(alignment.pairs)))
        twins = find_twins(alignment.pairs, done, ours, theirs, inputs)
    rows = [replace(found, twin=twins.get(i)) for i, found in enumerate(done) if isinstance(found, Row)]
    failed = [
        replace(found, reason=f"{found.reason}; {twins[i]}" if i in twins else found.reason)
        for i, found in enumerate(done)
        if isinstance(found, Failed)
    ]
    return Comparison(
        tuple(with_rises(rows, sample, benchmark)),
        alignment.only_in_sample,
        alignment.only_in_benchmark,
        tuple(failed),
        sample.notes,
        benchmark.notes,
    )


def _with_extra(row: Row, found: Measured, further: Mapping[str, Metric]) -> Row:
    """The row with further metrics, and how many values each left out."""
    if not further:
        return row
    sources = {name: found.accumulators[m.accumulator] if m.accumulator else found.sums for name, m in further.items()}
    values = {name: metric.of(sources[name]) for name, metric in further.items()}
    left_out = {
        name: accumulator.left_out
        for name, accumulator in sources.items()
        if isinstance(accumulator, Accumulator) and accumulator.left_out
    }
    return replace(row, extra=values, left_out=left_out)


def _with_vendor(row: Row, found: Measured, vendor: VendorMetrics) -> Row:
    """The row with what the vendor's tool prints; of two dumps, where booleans are numbers to it."""
    sides = (v.array if v.to_real is None else v.to_real(v.array) for v in (found.sample, found.benchmark))
    printed = vendor(*(side.astype(np.uint8) if side.dtype == np.bool_ else side for side in sides))
    return replace(row, vendor=printed.values, vendor_message=printed.message)


def _cores() -> int:
    """The cores this process may use; more threads than eight only wait for memory."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(8, available)
