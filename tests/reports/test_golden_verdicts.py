"""The first lines of forty verdicts, in one file to read: tests/golden/verdicts.txt."""

import os
from pathlib import Path

from reports_verdicts import situations

from sgsdump.comparison.finding import CAUSES
from sgsdump.reports.three_lines import three_lines, verdict_block

GOLDEN = Path(__file__).parents[1] / "golden" / "verdicts.txt"
MOST_WORDS = 45  # of a line: a sentence or two


def written():
    return "\n".join(f"# {title}\n" + "".join(f"{line}\n" for line in verdict_block(v)) for title, v in situations())


def test_the_verdicts_are_those_of_the_file():
    if os.environ.get("SGSDUMP_WRITE_GOLDEN"):
        GOLDEN.write_text(written(), encoding="utf-8")
    assert written() == GOLDEN.read_text(encoding="utf-8")


def test_every_outcome_and_every_kind_of_cause_is_among_them():
    verdicts = [verdict for _, verdict in situations()]
    assert len(verdicts) >= 40
    assert {v.outcome for v in verdicts} == {"PASS", "FAIL", "INCOMPLETE", "EQUAL", "WITHIN ROUNDING", "DIFFERS"}
    assert {v.cause.kind for v in verdicts if v.cause is not None} >= CAUSES - {"outside"}


def test_three_lines_begin_alike():
    for _, verdict in situations():
        first, second, third = three_lines(verdict)
        assert first.startswith(f"{verdict.outcome}: ")
        assert second.startswith(("Cause: ", "No cause: ", "No cause to fix: ", "No single cause: "))
        assert third.startswith("Next: ")
        assert all(len(line.split()) <= MOST_WORDS and "\n" not in line for line in (first, second, third))


def test_exit_status_follows_the_first_word():
    for _, verdict in situations():
        assert verdict.exit_status() == (1 if verdict.outcome in ("FAIL", "INCOMPLETE") else 0)
