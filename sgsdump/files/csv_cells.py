"""Cells of a CSV file that a spreadsheet will not run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")


def escaped(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with a ``'`` before every text that a spreadsheet would take for a formula; numbers, also printed ones,
    stay numbers."""
    return {key: f"'{cell}" if _runs(cell) else cell for key, cell in row.items()}


def _runs(cell: Any) -> bool:
    return isinstance(cell, str) and cell.startswith(_FORMULA) and not _is_number(cell)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii() and text[0] not in "\t\r"
