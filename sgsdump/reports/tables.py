"""A table as text in aligned columns, and as CSV."""

from __future__ import annotations

import csv
from collections.abc import Container, Iterable, Mapping, Sequence

from sgsdump.files.escaping import escaped

_END = "\r\n"  # by it the csv module quotes what holds either; lines end with the second alone


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
    lines = _Lines()
    table = csv.DictWriter(lines, columns, lineterminator=_END)
    table.writeheader()
    table.writerows(map(escaped, rows))
    return "".join(f"{line.removesuffix(_END)}\n" for line in lines)


class _Lines(list[str]):
    """The lines that a writer of the csv module makes, one by one."""

    write = list.append
