"""The rows of a comparison as tables for a notebook: HTML, and a pandas DataFrame."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sgsdump.comparison.row import Row
from sgsdump.errors import MissingExtra

if TYPE_CHECKING:
    import pandas

SHOWN = 20  # rows of the HTML table
_FACTS = ("name", "op_index", "op_type", "io", "slot", "type_name", "sample_name", "paired", "count")
_NUMBERS = ("mse", "cos", "rmse", "rise")
_COUNTS = ("sample_nan", "sample_inf", "benchmark_nan", "benchmark_inf")
_DTYPES = ("sample_dtype", "benchmark_dtype")


def html_table(caption: str, rows: Sequence[Row]) -> str:
    """The caption and the first ``SHOWN`` rows; all text is escaped, lone surrogates shown as ``?``."""
    further = list(dict.fromkeys(name for row in rows for name in row.extra))
    head = ["op_index", "name", "op_type", "MSE", "COS", "RMSE", *further, "note"]
    body = [
        [row.op_index, row.name, row.op_type, f"{row.mse:f}", f"{row.cos:f}", f"{row.rmse:f}"]
        + [f"{row.extra[name]:.6g}" if name in row.extra else "" for name in further]
        + ["; ".join(filter(None, [str(row.misnamed or ""), row.note]))]
        for row in rows[:SHOWN]
    ]
    table = (
        f"<table><thead>{_line('th', head)}</thead><tbody>{''.join(_line('td', line) for line in body)}</tbody></table>"
    )
    more = f"<p>… and {len(rows) - SHOWN} more</p>" if len(rows) > SHOWN else ""
    return f"<p>{_escaped(caption)}</p>{table if rows else ''}{more}"


def data_frame(rows: Sequence[Row]) -> pandas.DataFrame:
    """One line per row; further metrics have columns of their names, a vendor's ``vendor NAME``.

    Raises MissingExtra when pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise MissingExtra("to_pandas needs pandas, which is not installed; pip install pandas") from None
    columns = [*_FACTS, *_NUMBERS, *dict.fromkeys(name for row in rows for name in _further(row))]
    columns += [*_COUNTS, *_DTYPES, "misnamed", "note"]
    return pandas.DataFrame([_line_of(row) for row in rows], columns=columns)


def _line_of(row: Row) -> dict[str, Any]:
    facts = {name: getattr(row, name) for name in (*_FACTS, *_NUMBERS, *_COUNTS, *_DTYPES)}
    return facts | _further(row) | {"misnamed": str(row.misnamed or ""), "note": row.note}


def _further(row: Row) -> dict[str, Any]:
    return {**row.extra, **{f"vendor {name}": value for name, value in row.vendor.items()}}


def _line(tag: str, cells: Sequence[object]) -> str:
    return "<tr>" + "".join(f"<{tag}>{_escaped(str(cell))}</{tag}>" for cell in cells) + "</tr>"


def _escaped(text: str) -> str:
    return html.escape(text.encode("utf-8", "replace").decode())
