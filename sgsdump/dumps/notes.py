"""The messages of a dump's reader, in a few lines of text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

SHOWN = 3


def note_lines(path: str | Path, notes: Sequence[str]) -> list[str]:
    """The first notes of a dump, a line each that begins with where it is, and how many more there are."""
    lines = [f"Note on {path}: {note}" for note in notes[:SHOWN]]
    more = len(notes) - SHOWN
    return lines + ([f"Notes on {path}: {more} more, which sgsdump show lists"] if more > 0 else [])
