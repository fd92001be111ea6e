"""Text made safe for where it is shown: a terminal, a one-line message, a spreadsheet."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Mapping
from typing import Any

_END = "\r\n"  # by it the csv module quotes what holds either
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")


def for_terminal(text: str) -> str:
    """The text with what standard output cannot show (names in another encoding, lone surrogates) as escapes."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def shown(name: str) -> str:
    """A tensor's name in a table: quoted and escaped where it has line breaks or control characters."""
    return name if name.isprintable() else repr(name)


def quoted(text: str) -> str:
    """``text`` in quotes and cut to 80 characters, control characters escaped: for use in a one-line message."""
    return repr(text if len(text) <= 80 else text[:77] + "...")


def escaped(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a CSV file with a ``'`` before every text that a spreadsheet would run as a formula; numbers, also
    printed ones, stay numbers."""
    return {key: f"'{cell}" if isinstance(cell, str) and _runs(cell) else cell for key, cell in row.items()}


def csv_lines(rows: Iterable[Iterable[object]]) -> str:
    """CSV of the rows, its lines ended by a line feed; a cell with either line end in it, also alone, is quoted."""
    lines = _Lines()
    csv.writer(lines, lineterminator=_END).writerows(rows)
    return "".join(f"{line.removesuffix(_END)}\n" for line in lines)


class _Lines(list[str]):
    """The lines that a writer of the csv module makes, one by one."""

    write = list.append


def _runs(cell: str) -> bool:
    if not cell.startswith(_FORMULA):
        return False
    try:
        float(cell)
    except ValueError:
        return True
    return not cell.isascii() or cell[0] in "\t\r"
