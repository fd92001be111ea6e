"""The layer table of a golden comparison: a sample and a benchmark, judged by a third run."""

from __future__ import annotations

import math
from dataclasses import replace

from sgsdump.comparison.golden import GoldenComparison, GoldenRow
from sgsdump.reports.layers.table import Entry, Figure, LayerTable, Status


def table_of(comparison: GoldenComparison) -> LayerTable:
    sample, benchmark, golden = comparison.titles
    compared = [row for row in comparison.rows if not row.reason]
    bad = [row for row in compared if not row.passes]
    limits = f"{benchmark}'s error times {comparison.tag:g}" if golden else f"all_close at {comparison.th1:g}"
    verdict = f"{len(bad)} of {len(compared)} compared tensors {'does' if len(bad) == 1 else 'do'} not pass."
    entries = [_entry(index, row, limits) for index, row in enumerate(comparison.rows)]
    entries += [
        Entry(file, "not comparable", sample_name=file, status=_status(comparison, file), remark=reason)
        for file, reason in comparison.unmatched()
    ]
    title = f"{sample} against {benchmark}" + (f", judged by {golden}" if golden else "")
    return LayerTable(title, (verdict,), tuple(entries))


def figures_of(row: GoldenRow) -> dict[str, Figure]:
    """What reports call diff3, against golden: of the sample (sw) and of the benchmark (g)."""
    if row.all_close is not None:
        return {"diff2": row.diff2, "all_close": row.all_close}
    return {name: getattr(row, name) for name in ("max_sw", "max_g", "mean_sw", "mean_g", "diff2")}


def _entry(index: int, row: GoldenRow, limits: str) -> Entry:
    entry = Entry(row.file, row.verdict, op_index=index, sample_name=row.name)
    if row.reason:
        return replace(entry, status="failed", remark=row.reason)
    remark = "; ".join(filter(None, ["NaN or Inf among the values" if row.nan_inf else "", row.note]))
    return replace(entry, figures=figures_of(row), error=_error(row), limits=limits, remark=remark)


def _error(row: GoldenRow) -> float:
    """How many times over what is allowed; without golden, diff2."""
    if row.all_close is not None:
        return row.diff2
    return max(_ratio(row.max_sw, row.max_g * row.tag), _ratio(row.mean_sw, row.mean_g * row.tag))


def _ratio(error: float, allowed: float) -> float:
    if math.isnan(error) or math.isnan(allowed):
        return math.inf
    return error / allowed if allowed else math.inf if error else 0.0


def _status(comparison: GoldenComparison, file: str) -> Status:
    return "only in sample" if file in comparison.only_in_sample else "only in benchmark"
