"""Some of the real bugs, and what the table of them says."""

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.append(str(Path(__file__).parents[2] / "tools"))

import real_bugs
from bugs.table import BUGS

DOCS = Path(__file__).parents[2] / "docs" / "how_well_it_finds.md"


@pytest.mark.parametrize("name", ["untied_head", "feed_forward_overflow", "gru"])
def test_the_culprit_is_named_first(name, tmp_path):
    (bug,) = (bug for bug in BUGS if bug.name == name)
    outcome = real_bugs.outcome_of(bug, tmp_path)
    assert outcome.first, outcome.line


def test_each_bug_has_a_source_and_half_are_in_bfloat16():
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+(#\d+|@[0-9a-f]{8})", bug.source) for bug in BUGS)
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 20
    in_bfloat16 = [bug for bug in BUGS if bug.precision in ("bfloat16", "autocast")]
    assert 2 * len(in_bfloat16) >= len(BUGS)


def test_docs_have_a_row_of_each_bug():
    text = DOCS.read_text()
    assert [bug.name for bug in BUGS if f"| {bug.wrong} | {bug.source} | {bug.precision} |" not in text] == []
