"""The code that called a layer: of the sample, else of the benchmark; of both sides if it differs."""

import numpy as np
import pytest

from sgsdump.comparison.compare import compare
from sgsdump.dumps.dump import Dump, Operator, Record
from sgsdump.reports.html.document import document
from sgsdump.reports.report import Context, report_of
from sgsdump.tensors.tensor import Tensor

A, B = ("def f(x):", "    return x + 1"), ("def f(x):", "    return x + 2")


def dump(source, lines):
    """A dump whose operators are numbered unlike the other side's if it has no code."""
    number = 3 if lines else 4
    records = [
        Record("out", 0, index, "Add", Tensor.of(name, np.ones(3, np.float32)))
        for index, name in ((1, "other"), (number, "y"))
    ]
    made = Dump(records, network=lambda: {number: Operator("", "aten.add", source=source)})
    return made.in_environment(dict, source_lines=lambda: lines)


def code_of(sample, benchmark):
    """The code of the last layer on the page, and its attributes."""
    comparison = compare(sample, benchmark)
    report = report_of(comparison, context=Context(sample=sample, benchmark=benchmark))
    first, last = document(report)["layers"]
    assert "code" not in first
    return last.get("code", []), last.get("attributes", [])


def of(place, lines, first=1, side=""):
    fields = {"place": place, "first": first, "called": int(place.rpartition(":")[2]), "lines": list(lines)}
    return {**fields, "side": side} if side else fields


CALLED = [["called at", "net.py:2"]]


@pytest.mark.parametrize(
    ("sample", "benchmark", "code", "attributes"),
    [
        (("net.py:2", {}), ("net.py:2", {}), [], CALLED),
        (("net.py:2", {"net.py:2": (1, A)}), ("", {}), [of("net.py:2", A)], []),
        (("", {}), ("net.py:2", {"net.py:2": (1, A)}), [of("net.py:2", A)], []),
        (("net.py:2", {"net.py:9": (8, A)}), ("net.py:2", {}), [], CALLED),
        (("net.py:2", {"net.py:2": (1, A)}), ("net.py:2", {"net.py:2": (1, A)}), [of("net.py:2", A)], []),
        # the same text, further down in the other file
        (("net.py:2", {"net.py:2": (1, A)}), ("old.py:5", {"old.py:5": (4, A)}), [of("net.py:2", A)], []),
        (
            ("net.py:2", {"net.py:2": (1, A)}),
            ("net.py:2", {"net.py:2": (1, B)}),
            [of("net.py:2", A, side="sample"), of("net.py:2", B, side="benchmark")],
            [],
        ),
        # another line of the same text
        (
            ("net.py:2", {"net.py:2": (1, A)}),
            ("net.py:1", {"net.py:1": (1, A)}),
            [of("net.py:2", A, side="sample"), of("net.py:1", A, side="benchmark")],
            [],
        ),
        # the place of the sample has no code
        (("net.py:2", {}), ("old.py:5", {"old.py:5": (4, B)}), [of("old.py:5", B, 4, "benchmark")], CALLED),
    ],
)
def test_the_side_of_the_code(sample, benchmark, code, attributes):
    assert code_of(dump(*sample), dump(*benchmark)) == (code, attributes)


def test_a_part_of_a_dump_has_the_code():
    made = dump("net.py:2", {"net.py:2": (1, A)})
    assert made.select("y").source_lines() == {"net.py:2": (1, A)}
    assert Dump([]).source_lines() == {}
