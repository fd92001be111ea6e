"""Cells of a CSV file that a spreadsheet will not run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")


def escaped(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with a ``'`` before every text that a spreadsheet would take for a formula; numbers stay numbers."""
    return {
        key: f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell for key, cell in row.items()
    }
