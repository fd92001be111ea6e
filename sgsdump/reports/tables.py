"""A table as text in aligned columns, and as CSV."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import chain

from sgsdump.files.escaping import csv_lines, escaped


def aligned(rows: Sequence[Sequence[str]], right: Container[int] = (), gap: str = "  ") -> list[str]:
    """A line for each row, its columns as wide as their longest cell; the columns ``right`` are flush right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        gap.join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """CSV with a line of titles. Missing cells are empty; texts that a spreadsheet would run begin with ``'``."""
    cells = ([row.get(column, "") for column in columns] for row in map(escaped, rows))
    return csv_lines(chain([columns], cells))
