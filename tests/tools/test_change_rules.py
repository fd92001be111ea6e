"""tools/change_rules.py: its list fits the source, and what counts as noticed; the long run is for people."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tools"))
pytest.importorskip("resource")  # what a trial's memory is bounded by

import change_rules  # noqa: E402
from change_rules import RuleChange, changed, is_noticed, rule_changes  # noqa: E402

ENTRIES = list(rule_changes(change_rules.LIST.read_text(encoding="utf-8")))
SOURCE = "def larger(a, b):\n    if a > b:\n        return a\n    return b\n"
TEST = "from larger import larger\n\n\ndef test_larger():\n    assert larger(2, 1) == 2\n"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.rule)
def test_an_entry_fits_the_source_and_names_tests_that_exist(entry):
    source = (ROOT / entry.path).read_text(encoding="utf-8")
    assert changed(source, entry) != source
    assert all((ROOT / test).exists() for test in entry.tests), entry.tests


def test_every_room_has_entries_and_no_rule_stands_twice():
    rooms = {path.name for path in (ROOT / "sgsdump").iterdir() if (path / "__init__.py").is_file()}
    assert rooms <= {Path(entry.path).parts[1] for entry in ENTRIES}
    assert (
        len({entry.rule for entry in ENTRIES}) == len({(e.path, e.removed, e.added) for e in ENTRIES}) == len(ENTRIES)
    )


def test_an_entry_has_lines_that_go_tests_and_words():
    whole = "# of a\na.py\n- x\n-     y\n+ z\ntests tests/a tests/b\nz goes\nbefore y\n"
    assert list(rule_changes(f"\n\n{whole}\n\n# end")) == [
        RuleChange("a.py", ("x", "    y"), ("z",), ("tests/a", "tests/b"), "z goes before y")
    ]
    for lacking in ("- x\ntests tests/a\n", "+ z\ntests tests/a\nwords\n", "- x\nwords\n"):
        with pytest.raises(ValueError, match=r"a\.py needs lines with -, tests, and the rule in words"):
            list(rule_changes(f"a.py\n{lacking}"))


def test_the_lines_stand_once_and_what_comes_is_python():
    assert changed(SOURCE, _change("return a", "return -a")) == SOURCE.replace("return a", "return -a")
    assert changed(SOURCE, _change("if a > b:\n    return a")) == "def larger(a, b):\n    return b\n"
    for lines, times in (("return c", 0), ("if a > b:\nreturn a", 0)):
        with pytest.raises(ValueError, match=f"occurs {times} times"):
            changed(SOURCE, _change(lines))
    with pytest.raises(ValueError, match="occurs 2 times"):
        changed(SOURCE + SOURCE, _change("return a"))
    with pytest.raises(SyntaxError):
        changed(SOURCE, _change("if a > b:\n    return a", "if a > b:\nreturn a"))


def test_what_is_noticed(tmp_path):
    (tmp_path / "larger.py").write_text(SOURCE)
    (tmp_path / "test_larger.py").write_text(TEST)
    assert is_noticed(tmp_path, _change("return a", "return -a"))
    assert not is_noticed(tmp_path, _change("if a > b:", "if a >= b:"))
    assert (tmp_path / "larger.py").read_text() == SOURCE


def test_a_test_that_fails_or_does_not_run_anyway_notices_nothing(tmp_path):
    (tmp_path / "larger.py").write_text(SOURCE)
    (tmp_path / "test_larger.py").write_text(TEST.replace("== 2", "== 3"))
    with pytest.raises(RuntimeError, match="also fails without the change"):
        is_noticed(tmp_path, _change("return a", "return -a"))
    (tmp_path / "test_larger.py").write_text("")
    with pytest.raises(RuntimeError, match="no test finished"):
        is_noticed(tmp_path, _change("return a", "return -a"))
    assert (tmp_path / "larger.py").read_text() == SOURCE


def _change(removed: str, added: str = "") -> RuleChange:
    return RuleChange("larger.py", tuple(removed.splitlines()), tuple(added.splitlines()), ("test_larger.py",), "words")
