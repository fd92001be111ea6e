"""The layer table of a comparison of two dumps."""

from __future__ import annotations

from collections.abc import Iterator

from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.row import Row
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.dumps.dump import Record
from sgsdump.reports.comparison.base import why
from sgsdump.reports.html.of_comparison import verdict
from sgsdump.reports.layers.table import Entry, Figure, LayerTable, Status

NOT_COMPARABLE = "not comparable"


def table_of(comparison: Comparison, thresholds: Thresholds = DOCUMENTED, title: str = "Comparison") -> LayerTable:
    """Every layer of either dump; its first sentences are the HTML report's."""
    compared = (_entry(row, thresholds) for row in comparison.rows)
    return LayerTable(title, verdict(comparison, thresholds), (*compared, *_left_out(comparison)))


def figures_of(row: Row) -> dict[str, Figure]:
    """RMSE, COS and MSE (where there are statistics only, their largest relative error), the further metrics that were
    asked for, a vendor's as it prints them, and of several runs the mean and the worst RMSE."""
    main: dict[str, Figure] = {"rmse": row.rmse, "cos": row.cos, "mse": row.mse}
    if row.statistics:
        main = {"statistics_error": row.error}
    over_runs: dict[str, Figure] = {}
    if row.runs:
        over_runs = {"mean_rmse": row.runs.mean_rmse, "worst_rmse": row.runs.worst_rmse, "worst_run": row.runs.worst}
    return {**main, **row.extra, **{f"vendor {name}": text for name, text in row.vendor.items()}, **over_runs}


def _entry(row: Row, thresholds: Thresholds) -> Entry:
    return Entry(
        name=row.name,
        verdict=row.verdict(thresholds),
        op_type=row.op_type,
        op_index=row.op_index,
        sample_name=row.sample_name,
        figures=figures_of(row),
        error=row.error,
        limits=str(thresholds.of_layer(*row.names)),
        remark=why(row),
        passes=row.passes(thresholds),
    )


def _left_out(comparison: Comparison) -> Iterator[Entry]:
    for failed in comparison.failed:
        yield _not_compared(failed.pair.benchmark, "failed", failed.reason, failed.pair.sample.name)
    for one in comparison.only_in_benchmark:
        yield _not_compared(one.record, "without counterpart" if one.expected else "only in benchmark", one.reason)
    for one in comparison.only_in_sample:
        status: Status = "without counterpart" if one.expected else "only in sample"
        yield _not_compared(one.record, status, one.reason, one.record.name)
    for name in comparison.unwritten:
        yield Entry(name, NOT_COMPARABLE, status="excluded", remark="nothing had been written to its memory yet")
    for name in comparison.excluded:
        yield Entry(name, NOT_COMPARABLE, status="excluded", remark="excluded")


def _not_compared(record: Record, status: Status, reason: str, sample_name: str = "") -> Entry:
    return Entry(
        record.name, NOT_COMPARABLE, record.op_type, record.op_index, sample_name, status=status, remark=reason
    )
