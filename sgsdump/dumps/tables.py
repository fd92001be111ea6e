"""Tables: a few rows of a long list as text for a terminal (a notebook shows the same), and pandas' (an extra)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sgsdump.errors import MissingExtra

Row = Sequence[str]


@dataclass(frozen=True)
class ShortTable:
    """``more`` is how many further rows there are."""

    title: str
    columns: Row
    rows: Sequence[Row]
    more: int


def text(table: ShortTable) -> str:
    """The title, a line per row in columns, and how many more rows there are."""
    lines = [table.columns, *table.rows] if table.rows else []
    widths = [max(map(len, column)) for column in zip(*lines)]
    texts = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
    more = [f"  … {table.more} more"] if table.more else []
    return "\n".join([f"<{table.title}>", *(f"  {line}" for line in texts), *more])


def data_frame(rows: Sequence[Any], columns: Sequence[str]) -> Any:
    """A pandas DataFrame of rows, each a sequence in the columns' order or a mapping. Raises MissingExtra without
    pandas."""
    try:
        import pandas
    except ImportError:
        raise MissingExtra("to_pandas needs pandas, which is not installed; pip install 'sgsdump[pandas]'") from None
    return pandas.DataFrame(rows, columns=list(columns))
