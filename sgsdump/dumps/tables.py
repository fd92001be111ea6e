"""Short text tables for terminals and notebooks, and pandas DataFrames (optional extra)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sgsdump.errors import MissingExtra

Row = Sequence[str]


@dataclass(frozen=True)
class ShortTable:
    """The first rows of a table; ``more`` counts the rows that are not shown."""

    title: str
    columns: Row
    rows: Sequence[Row]
    more: int


def text(table: ShortTable) -> str:
    """Return the table as text: title, aligned rows, and the number of further rows."""
    lines = [table.columns, *table.rows] if table.rows else []
    widths = [max(map(len, column)) for column in zip(*lines)]
    texts = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
    more = [f"  … {table.more} more"] if table.more else []
    return "\n".join([f"<{table.title}>", *(f"  {line}" for line in texts), *more])


def data_frame(rows: Sequence[Any], columns: Sequence[str]) -> Any:
    """Return a pandas DataFrame; each row is a sequence in column order or a mapping. Raises MissingExtra."""
    try:
        import pandas
    except ImportError:
        raise MissingExtra("to_pandas needs pandas, which is not installed; pip install 'sgsdump[pandas]'") from None
    return pandas.DataFrame(rows, columns=list(columns))
