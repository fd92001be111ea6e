"""The sentences of a comparison: short ones for pictures, and lines that say a shared reason once."""

from types import SimpleNamespace

import numpy as np
import pytest

from sgsdump.comparison.compare import compare
from sgsdump.comparison.finding import Finding
from sgsdump.dumps.dump import Dump, Record
from sgsdump.reports import verdict
from sgsdump.reports.remarks import left_out_title, reason_lines, trouble
from sgsdump.reports.text import shortened
from sgsdump.reports.verdict import blamed_lines, next_steps
from sgsdump.tensors.tensor import Tensor

NAN, INF = np.nan, np.inf


def row(sample, benchmark):
    sides = [Dump([Record("out", 0, 0, "Conv", Tensor.of("a", np.float32(v)))]) for v in (sample, benchmark)]
    return compare(*sides).rows[0]


@pytest.mark.parametrize(
    ("sample", "benchmark", "said"),
    [
        ([1, 2], [1, 2], ""),
        ([NAN, 2], [1, 2], "sample 1 NaN"),
        ([NAN, INF, 1], [INF, INF, 1], "sample 1 NaN 1 Inf, benchmark 2 Inf"),
        ([], [], "no values"),
    ],
)
def test_what_troubles_a_layer(sample, benchmark, said):
    assert trouble(row(sample, benchmark)) == said


def test_a_shared_reason_stands_once_before_its_names():
    pairs = [("a", "sizes differ"), ("b", "no values"), ("c", "sizes differ"), ("d", "sizes differ")]
    assert list(reason_lines(pairs)) == ["  sizes differ (3):", "    a, c, d", "  b: no values"]
    assert list(reason_lines(pairs, 2))[1] == "    a, c and 1 more"


@pytest.mark.parametrize(("first", "told"), [("a", 0), ("b", 1), (None, 1)])
def test_a_cause_is_told_beside_the_first_difference_where_it_is_another(monkeypatch, first, told):
    found = first and SimpleNamespace(output=SimpleNamespace(name=first))
    monkeypatch.setattr(verdict, "first_difference", lambda *_, **__: found)
    cause = Finding("cause", "a", "Conv", {"error": 0.5}, "by value")
    comparison = SimpleNamespace(causes=[cause], rows=(), completeness=SimpleNamespace(by_flow=True))
    assert len(list(blamed_lines(comparison))) == told


@pytest.mark.parametrize(
    ("missing", "expected", "title"),
    [
        (0, 0, "Not compared: 0"),
        (2, 0, "Not compared: 2"),
        (2, 3, "Not compared: 2. Without a counterpart by design, so not missing: 3"),
        (0, 3, "Without a counterpart by design, so not missing: 3"),
    ],
)
def test_the_title_of_what_was_left_out(missing, expected, title):
    assert left_out_title(missing, expected) == title


def test_what_to_do_next_depends_on_the_thresholds():
    values = np.float32([1, 2, 3])
    good, bad, none = ([("a", values)], [("a", values * 2)], [])
    dumps = [Dump([Record("out", 0, 0, "Conv", Tensor.of(*pair)) for pair in pairs]) for pairs in (good, bad, none)]
    steps = [next_steps(compare(dump, dumps[0] if dump is not dumps[2] else dump)) for dump in dumps]
    assert [[bool(step.copy) for step in each] for each in steps] == [[False], [False, True], []]


def test_a_name_in_a_sentence_loses_its_middle_beyond_72_characters():
    assert shortened("n" * 72) == "n" * 72 and shortened("a" * 40 + "b" * 33) == "a" * 24 + "…" + "a" * 14 + "b" * 33
