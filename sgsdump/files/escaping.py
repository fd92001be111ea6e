"""Escaping of text for its destination: a terminal, a one-line message, a spreadsheet."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Mapping
from typing import Any

_END = "\r\n"  # makes the csv module quote cells that contain \r or \n
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")


def for_terminal(text: str) -> str:
    """Escape characters that standard output cannot encode, such as lone surrogates."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def shown(name: str) -> str:
    """Return a tensor name for a table, quoted and escaped if it has line breaks or control characters."""
    return name if name.isprintable() else repr(name)


def quoted(text: str) -> str:
    """Quote ``text`` for a one-line message: cut to 80 characters, control characters escaped."""
    return repr(text if len(text) <= 80 else text[:77] + "...")


def escaped(row: Mapping[str, Any]) -> dict[str, Any]:
    """Prefix ``'`` to each text of a CSV row that a spreadsheet would run as a formula; numbers, also as text, stay."""
    return {key: f"'{cell}" if isinstance(cell, str) and _runs(cell) else cell for key, cell in row.items()}


def csv_lines(rows: Iterable[Iterable[object]]) -> str:
    """Return rows as CSV with lines ended by a line feed; cells with a line feed or carriage return are quoted."""
    lines = _Lines()
    csv.writer(lines, lineterminator=_END).writerows(rows)
    return "".join(f"{line.removesuffix(_END)}\n" for line in lines)


class _Lines(list[str]):
    """Collector of the lines that a csv writer produces."""

    write = list.append


def _runs(cell: str) -> bool:
    if not cell.startswith(_FORMULA):
        return False
    try:
        float(cell)
    except ValueError:
        return True
    return not cell.isascii() or cell[0] in "\t\r"
