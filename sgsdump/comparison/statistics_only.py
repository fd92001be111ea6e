"""Pairs of which one side has statistics only: their min, max, mean and l2norm are compared instead of values.

The error of a statistic is relative: that of l2norm to the benchmark's, those of min, max and mean to the largest
magnitude among the benchmark's min and max, because a mean near 0 has no sensible relative error of its own. Where
only that one is known, to itself. Equal statistics differ by 0, also two NaN, and those that the six decimals of a
writer's text make differ; anything against NaN, and anything else against 0, by infinity. Statistics that agree do not
prove that values do: the verdict of such a row is ``warn`` at best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from sgsdump.comparison.alignment import Pair
from sgsdump.comparison.metrics import Counts, Sums
from sgsdump.comparison.row import NO_EXTRAS, Extras, Row, row_of
from sgsdump.comparison.vendor_metrics import VendorStatistics
from sgsdump.dumps.dump import Record
from sgsdump.errors import ValuesError
from sgsdump.tensors.statistics import Statistics, summarise
from sgsdump.tensors.tensor import values_of

_DECIMALS = 6
COMPARED = ("min", "max", "mean", "l2norm")


def statistics_row(pair: Pair, vendor: VendorStatistics | None = None) -> Row:
    """The row of a pair by its statistics; its three metrics are NaN. ``vendor`` prints them as its tool does.

    Raises ValuesError when the two have no statistic in common, or are of different sizes.
    """
    shapes = [record.tensor.info.shape for record in pair.records]
    if None not in shapes and math.prod(shapes[0] or ()) != math.prod(shapes[1] or ()):
        raise ValuesError(f"shapes differ: sample {list(shapes[0] or ())}, benchmark {list(shapes[1] or ())}")
    sample_statistics, benchmark_statistics = _figures(pair.sample), _figures(pair.benchmark)
    errors = relative_errors(sample_statistics, benchmark_statistics)
    if not errors:
        for record in pair.records:
            if record.tensor.statistics == Statistics():
                record.tensor.raw()  # raises ValuesError, which says why it has not even statistics
        raise ValuesError(f"no values of {pair.benchmark.name!r} to compare, and no statistics that both dumps have")
    listed = ", ".join(f"{name} {error:.3g}" for name, error in errors.items())
    sides = [s for s, r in (("sample", pair.sample), ("benchmark", pair.benchmark)) if r.tensor.statistics is not None]
    note = f"{' and '.join(sides)} {'have' if len(sides) > 1 else 'has'} statistics only; relative errors: {listed}"
    odd, benchmark_odd = _odd(sample_statistics), _odd(benchmark_statistics)
    counts = Counts(*odd[:2], *benchmark_odd[:2], odd[2], benchmark_odd[2])
    count = benchmark_statistics.count or sample_statistics.count or 0
    extras = Extras(vendor=vendor(sample_statistics, benchmark_statistics).values) if vendor else NO_EXTRAS
    row = row_of(pair, Sums(count, 0, 0, 0, 0, 0, 0, counts), "; ".join(filter(None, [pair.note, note])), extras)
    nan = math.nan
    return replace(row, errors=replace(row.errors, mse=nan, cos=nan, rmse=nan, statistics=errors))


def relative_errors(sample: Statistics, benchmark: Statistics) -> Mapping[str, float]:
    """The errors of the statistics that both have, by name."""
    largest = [abs(figure) for figure in (benchmark.min, benchmark.max) if figure is not None]
    errors = {}
    for name in COMPARED:
        a, b = getattr(sample, name), getattr(benchmark, name)
        if a is not None and b is not None:
            errors[name] = _error(a, b, abs(b) if name == "l2norm" else max([*largest, abs(b)]))
    return errors


def _error(a: float, b: float, base: float) -> float:
    if a == b or (math.isnan(a) and math.isnan(b)) or _one_rounding(a, b):
        return 0.0
    error = abs(a - b) / base if base else math.inf
    return error if math.isfinite(error) else math.inf


def _one_rounding(a: float, b: float) -> bool:
    """Whether one is printed with six decimals, as ATB and GE do, and the other no farther than the last of them."""
    return abs(a - b) <= 1.001 * 10**-_DECIMALS and (round(a, _DECIMALS) == a or round(b, _DECIMALS) == b)


def _figures(record: Record) -> Statistics:
    """What was dumped, or what the values give."""
    if record.tensor.statistics is not None:
        return record.tensor.statistics
    read = values_of(record.tensor.logical())
    return summarise(read.array if read.to_real is None else read.to_real(read.array))


def _odd(figures: Statistics) -> tuple[int, int, int]:
    """How many values are NaN, infinite, and -Inf; at least one where a statistic shows it and nothing counts them."""
    counted = [figures.nan, figures.positive_inf, figures.negative_inf]
    if any(count is not None for count in counted):
        nan, plus, minus = (count or 0 for count in counted)
        return nan, plus + minus, minus
    known = [value for name in COMPARED if (value := getattr(figures, name)) is not None]
    minus = int(-math.inf in known)
    return int(any(map(math.isnan, known))), minus + (math.inf in known), minus
