"""Facts in the table of formats, which the modules of the formats must confirm."""

from __future__ import annotations

from sgsdump.dumps.format import Format
from sgsdump.dumps.formats import FORMATS, OF_FILES, OWNERS


def test_formats_of_files_only() -> None:
    formats = FORMATS.own.items()
    assert {name for name, format in formats if not format.looks_for and format.runs is None} == OF_FILES


def test_formats_that_own_runs_of_other_formats() -> None:
    assert tuple(name for name, format in FORMATS.own.items() if format.owns is not Format.owns) == OWNERS
