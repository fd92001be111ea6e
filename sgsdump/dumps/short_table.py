"""A few rows of a long list, as text for a terminal and as HTML for a notebook."""

from __future__ import annotations

import html
from collections.abc import Sequence

Row = Sequence[str]


def text(title: str, columns: Row, rows: Sequence[Row], more: int) -> str:
    """The title, a line per row in columns, and how many ``more`` rows there are."""
    table = [columns, *rows] if rows else []
    widths = [max(len(row[i]) for row in table) for i in range(len(columns))] if table else []
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in table]
    return "\n".join([title, *(f"  {line}" for line in lines), *([f"  … {more} more"] if more else [])])


def as_html(title: str, columns: Row, rows: Sequence[Row], more: int) -> str:
    """The same as an HTML table; every text is escaped."""
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    rest = f"<p>… {more} more</p>" if more else ""
    return f"<p>{html.escape(title)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"
