"""The first lines of a dump's table."""

from __future__ import annotations

from sgsdump.dumps.tables import ShortTable
from sgsdump.reports.notebook.base import card, paragraph, table, text


def render(short: ShortTable) -> str:
    lines = table(short.columns, ([text(cell) for cell in row] for row in short.rows)) if short.rows else ""
    return card(paragraph(short.title), lines, paragraph(f"… {short.more} more", small=True) if short.more else "")
