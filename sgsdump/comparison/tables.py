"""Results of comparisons as pandas DataFrames: one line per layer, numbers in full precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sgsdump.comparison.row import Row
from sgsdump.dumps.data_frame import data_frame

if TYPE_CHECKING:
    import pandas

_FACTS = ("name", "op_index", "op_type", "io", "slot", "type_name", "sample_name", "paired", "count")
_NUMBERS = ("mse", "cos", "rmse", "rise")
_COUNTS = ("sample_nan", "sample_inf", "benchmark_nan", "benchmark_inf")
_DTYPES = ("sample_dtype", "benchmark_dtype")


def frame_of(rows: Sequence[Row]) -> pandas.DataFrame:
    """One line per row; further metrics have columns of their names, a vendor's ``vendor NAME``. Where a layer has
    statistics only, ``statistics_error`` is their largest relative error; of several runs there are ``runs``,
    ``worst_run``, ``worst_cos``, ``worst_rmse``, ``mean_cos`` and ``mean_rmse``, as in the CSV.

    Raises MissingExtra when pandas is not installed.
    """
    columns = [*_FACTS, *_NUMBERS, *dict.fromkeys(name for row in rows for name in _further(row))]
    columns += [*_COUNTS, *_DTYPES, "misnamed", "note"]
    frame: pandas.DataFrame = data_frame([_line_of(row) for row in rows], columns)
    return frame


def _line_of(row: Row) -> dict[str, Any]:
    facts = {name: getattr(row, name) for name in (*_FACTS, *_NUMBERS, *_COUNTS, *_DTYPES)}
    return facts | _further(row) | {"misnamed": str(row.misnamed or ""), "note": row.note}


def _further(row: Row) -> dict[str, Any]:
    further = {**row.extra, **{f"vendor {name}": value for name, value in row.vendor.items()}}
    further |= {"statistics_error": row.error} if row.statistics else {}
    if row.runs:
        further |= {"runs": row.runs.count, "worst_run": row.runs.worst}
        further |= {name: getattr(row.runs, name) for name in ("worst_cos", "worst_rmse", "mean_cos", "mean_rmse")}
    return further
