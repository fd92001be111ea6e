"""The comparison as CSV: one line per layer of either dump, numbers in full precision, ``nan`` and ``inf`` as such.

``status`` is ``compared``, ``failed``, ``only in benchmark`` or ``only in sample``; the last three have no metrics.
``verdict`` is ``pass``, ``warn``, ``fail`` or, for the last three, ``not comparable``. Further metrics stand behind the
remark, each with how many values it left out where there are any; a vendor's as it prints them. ``statistics_error`` is
the largest relative error of the statistics of a layer that has nothing else. Of two runs of a fixed model,
``differing_integers`` says how many integers differ, ``largest_step`` by how much at most (empty: unknown). Where the
rows are of several runs, ``runs`` says in how many the layer was compared, ``worst_run`` in which its error is largest.
Texts that a spreadsheet would run begin with ``'``.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping

from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.row import OverRuns, Row
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.dumps.dump import Record
from sgsdump.files.escaping import escaped
from sgsdump.reports.comparison.base import remark

_PLACE = ["op_index", "name", "io", "slot", "op_type"]
_NUMBERS = ["count", "mse", "cos", "rmse", "rise"]
_NOT_FINITE = ["sample_nan", "sample_inf", "benchmark_nan", "benchmark_inf"]
_PAIR = ["sample_name", "paired"]
_TYPES = ["sample_dtype", "benchmark_dtype"]
_SIGNS = ["sample_minus_inf", "benchmark_minus_inf", "odd_apart"]
_STATISTICS = "statistics_error"
_INTEGERS = ["differing_integers", "largest_step"]
COLUMNS = [
    "status", *_PLACE, "type", *_NUMBERS, "within", *_NOT_FINITE, *_PAIR, "remark", "verdict", *_TYPES, *_SIGNS,
    _STATISTICS, *_INTEGERS,
]  # fmt: skip


def render(comparison: Comparison, thresholds: Thresholds) -> str:
    text = io.StringIO()
    more = dict.fromkeys(name for row in comparison.rows for name in _further(row))
    table = csv.DictWriter(text, [*COLUMNS, *more], lineterminator="\n")
    table.writeheader()

    def write(line: Mapping[str, object]) -> None:
        table.writerow(escaped(line))

    for row in comparison.rows:
        own = {name: getattr(row, name) for name in [*_PLACE, *_NUMBERS, *_NOT_FINITE, *_PAIR, *_TYPES, *_SIGNS]}
        own |= _further(row) | {"verdict": row.verdict(thresholds)}
        own |= {_STATISTICS: row.error} if row.statistics else {}
        if row.integers and not row.integers.unlike:
            own |= zip(_INTEGERS, (row.integers.differing, row.integers.largest))
        within = "yes" if row.passes(thresholds) else "no"
        write(own | {"status": "compared", "type": row.type_name, "within": within, "remark": remark(row)})
    for failed in comparison.failed:
        sample = {"sample_name": failed.pair.sample.name, "paired": failed.pair.how}
        write(_facts(failed.pair.benchmark, "failed", failed.reason) | sample)
    for unpaired in comparison.only_in_benchmark:
        write(_facts(unpaired.record, "only in benchmark", unpaired.reason))
    for unpaired in comparison.only_in_sample:
        write(_facts(unpaired.record, "only in sample", unpaired.reason))
    return text.getvalue()


def _facts(record: Record, status: str, reason: str) -> dict[str, object]:
    facts = {name: getattr(record, name) for name in _PLACE}
    return facts | {"status": status, "remark": reason, "verdict": "not comparable"}


def _further(row: Row) -> dict[str, object]:
    """What was asked for beyond the three metrics; a vendor's columns are prefixed, as names may coincide."""
    left_out = {f"{name} left out": count for name, count in row.left_out.items()}
    vendor = {f"vendor {name}": value for name, value in row.vendor.items()}
    return {**row.extra, **left_out, **vendor, **(_runs(row.runs) if row.runs else {})}


def _runs(runs: OverRuns) -> dict[str, object]:
    means = {"mean_cos": runs.mean_cos, "mean_rmse": runs.mean_rmse}
    worst = {"worst_run": runs.worst, "worst_cos": runs.worst_cos, "worst_rmse": runs.worst_rmse}
    return {"runs": runs.count, **means, **worst}
