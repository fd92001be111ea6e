"""Which layers are listed, and what JUnit makes of each."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from sgsdump.comparison.compare import compare
from sgsdump.comparison.golden import GoldenSettings, compare_golden
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.dumps.dump import Dump, Record
from sgsdump.reports.layers import junit, markdown
from sgsdump.reports.layers.table import Entry, Listing, golden_table_of, table_of
from sgsdump.tensors.tensor import Tensor


def dump(**arrays):
    tensors = [Tensor.of(name, np.float32(array)) for name, array in arrays.items()]
    return Dump([Record("out", 0, index, "Conv", tensor) for index, tensor in enumerate(tensors)])


@pytest.mark.parametrize(
    ("listing", "places"),
    [
        (Listing(), [0, 1, 2, 3]),
        (Listing("worst"), [2, 1, 0, 3]),
        (Listing(top=2), [1, 2]),
        (Listing("worst", 2), [2, 1]),
        (Listing(only_bad=True), [1, 3]),
        (Listing("worst", 1, only_bad=True), [1]),
        (Listing(top=9), [0, 1, 2, 3]),
    ],
)
def test_which_are_listed(listing, places):
    """NaN ranks first; equal errors stay in the network's order."""
    errors = (("pass", 0.1), ("fail", 0.7), ("warn", float("nan")), ("fail", 0.1))
    assert listing.places([Entry("x", verdict, error=error) for verdict, error in errors]) == places


def outcomes(table):
    return {
        re.sub(r"^\d+\.", "", case.get("name")): (case[0].tag, case[0].get("message") or case[0].text)
        for case in ElementTree.fromstring(junit.render(table)).iter("testcase")
    }


def test_every_outcome_of_a_layer():
    sample = dump(good=[4, 4], far=[6, 6], short=[1], mine=[1], out=[1], nan=[np.nan, 1])
    benchmark = dump(good=[4, 4], far=[4, 4], short=[1, 2], yours=[1], out=[1], nan=[1, 1])
    limits = Thresholds(max_rmse=0.25, layers=(("fa*", "rmse", 0.125),))
    table = table_of(compare(sample, benchmark, exclude=["out"]), limits, "a against b")
    found = outcomes(table)
    assert found == {
        "good": ("system-out", "RMSE 0.000000, COS 1.000000, MSE 0.000000"),
        "far": ("failure", "RMSE 0.500000, COS 1.000000, MSE 4.000000"),
        "nan": ("failure", "RMSE nan, COS nan, MSE nan"),
        "short": ("error", found["short"][1]),
        "yours": ("failure", "no output of this name in the sample"),
        "mine": ("skipped", "no output of this name in the benchmark"),
        "out": ("skipped", "excluded"),
    }
    assert found["short"][1].startswith("sizes differ")
    suites = ElementTree.fromstring(junit.render(table))
    assert [suites.get(name) for name in ("name", "tests", "failures", "errors", "skipped")] == [
        *("a against b", "7", "3", "1", "2"),
    ]
    far = next(case for case in suites.iter("testcase") if case.get("name") == "1.far")
    assert far.get("classname") == "a against b.Conv" and "limits: RMSE > 0.125" in far[0].text


def test_golden_layers_are_ranked_by_how_far_past_the_limit_they_are():
    """Errors against golden 10: the benchmark's 1, so 2 are allowed; the sample's 1, 3, and NaN."""
    golden, benchmark = dump(a=[10], b=[10], c=[10], d=[10]), dump(a=[11], b=[11], c=[11], e=[11])
    sample = dump(a=[11], b=[13], c=[np.nan], d=[10])
    table = golden_table_of(compare_golden(sample, benchmark, golden, GoldenSettings(tag=2.0)))
    assert [entry.verdict for entry in table.compared] == ["pass", "fail", "fail"]
    assert [table.compared[place].sample_name for place in Listing("worst").places(table.compared)] == ["c", "b", "a"]
    assert table.compared[1].error == pytest.approx(1.5)
    assert {entry.sample_name for entry in table.left_out} == {"d.npy", "e.npy"}
    assert table.verdict[0].startswith("FAIL: layer c max diff3 nan, limit 0.2; 2 of 3 layers exceed the limits.")
    assert table.verdict[3] == "Compared: 3 of 3 layers; 1 only in sample; 1 only in benchmark."
    assert "| ❌ fail | 2 | `c.npy` | nan |" in markdown.render(table)
    assert outcomes(table)["b.npy"][0] == "failure"


def test_markdown_lists_the_worst_hundred_unless_told_otherwise():
    names = {f"x{i}": [1 + i / 1000] for i in range(120)}
    table = table_of(compare(dump(**names), dump(**{name: [1] for name in names})))
    text = markdown.render(table)
    assert text.count("`x") == 100 and "100 of 120 compared layers are listed." in text and "`x19`" not in text
    assert markdown.render(table, Listing(top=120)).count("`x") == 120
    assert markdown.render(table, Listing("worst", 2)).index("`x119`") < text.index("`x118`")
