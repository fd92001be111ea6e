"""tools/mutate.py: what is changed, which tests are chosen; the long run is for people."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("cosmic_ray", reason="cosmic-ray is not installed")
pytest.importorskip("coverage", reason="coverage is not installed")
ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tools"))

import mutate  # noqa: E402
from mutation.mutants import drawn, mutants_of  # noqa: E402
from mutation.trace import Trace  # noqa: E402

SOURCE = """
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    LIMIT = 1
TOP = 3


def judge(value: int | None = 2, word: str = "") -> int | None:
    if word == "a" and value is not None:
        return (
            value +
            1
        )
    for one in range(4):
        if one > 2:
            return one
    return None
"""


@pytest.fixture
def mutants(tmp_path):
    (tmp_path / "one.py").write_text(SOURCE)
    return mutants_of(tmp_path, "one.py")


def test_what_is_changed_and_what_is_not(mutants):
    added = {row for mutant in mutants for row in mutant.change[1]}
    assert {"TOP = 4", "TOP = 2", "value -", 'if word != "a" and value is not None:', "if one >= 2:"} <= added
    assert 'if word == "a" and value is None:' in added and "for one in []:" in added
    assert not any("LIMIT" in row or "value: int -" in row or "word <" in row or "!= None" in row for row in added)


def test_a_site_is_drawn_once_and_the_same_seed_draws_the_same(mutants):
    every = drawn(mutants, None, 1)
    assert max(Counter((m.start, m.family) for m in every).values()) == 1 and len(every) < len(mutants)
    assert drawn(mutants, 5, 1) == drawn(mutants, 5, 1) and len(drawn(mutants, 5, 1)) == 5
    assert set(drawn(mutants, 5, 1)) <= set(every)


def test_the_tests_of_a_line(tmp_path):
    trace = Trace({"a.py::slow": 2.0, "a.py::fast": 1.0, "b.py::other": 0.5, "c.py::bad": 0.1}, failed={"c.py::bad"})
    lines = trace.contexts["one.py"]
    lines[10] |= {"a.py::slow", "a.py::fast", "c.py::bad"}
    lines[12] |= {"b.py::other"}
    lines[16] |= {"b.py"}
    trace.save(tmp_path / "trace.json")
    trace = Trace.load(tmp_path / "trace.json")
    assert trace.tests_of("one.py", SOURCE, 10) == ["a.py::fast", "a.py::slow"]
    assert trace.tests_of("one.py", SOURCE, 13) == ["b.py::other"]  # the statement begins at line 11
    assert trace.tests_of("one.py", SOURCE, 16) == ["b.py::other"]  # a fixture ran it: every test of the file
    assert trace.tests_of("one.py", SOURCE, 18) == []
    assert trace.tests_of("one.py", SOURCE, 6) == ["b.py::other", "a.py::fast", "a.py::slow"]  # the top: all


def test_every_entry_of_the_list_has_a_reason_and_lines_that_stand_in_its_file():
    entries = mutate.equivalent(mutate.EQUIVALENT.read_text(encoding="utf-8"))
    assert entries and [(path, gone) for path, gone, _ in entries if not _stands_in(ROOT / path, gone)] == []
    with pytest.raises(SystemExit, match="needs lines with -"):
        mutate.equivalent("a.py\n- x\n+ y\n")
    assert list(mutate.equivalent("a.py\n- x\nof no use")) == [("a.py", ("x",), ())]


def _stands_in(file: Path, block: tuple[str, ...]) -> bool:
    lines = tuple(line.strip() for line in file.read_text(encoding="utf-8").splitlines())
    return any(lines[start : start + len(block)] == block for start in range(len(lines)))


def test_every_room_has_sources_and_tests():
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")]
    for room in mutate.ROOMS.values():
        assert list((ROOT / room.source).glob("*.py"))
        assert all(any(file.startswith(start) for file in files) for start in room.tests), room
