"""The report's text: everything is text, the numbers are those of the comparison, nothing is fetched, and its size."""

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from verdict_words import sentences

from sgsdump.comparison.compare import compare
from sgsdump.dumps.dump import Dump, Record
from sgsdump.reports.html import document
from sgsdump.reports.html.document import render
from sgsdump.reports.report import Context, Report, report_of
from sgsdump.reports.text import number, shown
from sgsdump.tensors.tensor import Tensor

from .reports import HOSTILE, compared, hostile, report, tradeoff


class Elements(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.script = [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.script = dict(attrs) if tag == "script" else None

    def handle_data(self, data):
        if self.script is not None:
            self.scripts.append((self.script, data))
            self.script = None


def data_of(page):
    return next(json.loads(text) for attributes, text in Elements(page).scripts if attributes.get("id") == "data")


def test_hostile_names_add_no_element_and_run_nothing():
    page = render(hostile())
    harmless = render(report([f"name{i}" for i in range(len(HOSTILE))], {3}, title="t", assumptions=["a"]))
    tags = Elements(page).tags
    assert {tag for tag, _ in tags} <= {tag for tag, _ in Elements(harmless).tags}
    assert sum(tag == "script" for tag, _ in tags) == 2 and sum(tag == "style" for tag, _ in tags) == 1
    assert not [name for _, attributes in tags for name in attributes if name.startswith("on") or name == "style"]
    assert page.encode()  # no lone surrogate
    assert "\u202e" not in page and "\\u202e" in page and "\x1b" not in page
    assert [layer["name"] for layer in data_of(page)["layers"]] == [shown(name) for name in HOSTILE]


def test_nothing_is_fetched():
    page = render(replace(report(["a", "b"]), tradeoff=tradeoff()))
    for _, attributes in Elements(page).tags:
        assert not {"src", "href", "action", "srcset"} & attributes.keys()
    assert "default-src 'none'" in page
    assert "url(" not in page and "@import" not in page
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)


def test_the_numbers_are_those_of_the_comparison():
    comparison, sample, benchmark = compared(["a", "b", "c"], {1})
    layers = data_of(render(report_of(comparison, context=Context(sample=sample, benchmark=benchmark))))["layers"]
    for row, layer in zip(comparison.rows, layers):
        for name in ("mse", "cos", "rmse"):
            value = getattr(row, name)
            assert float(layer[name]) == value or (math.isnan(value) and layer[name] == "nan")
        assert layer["verdict"] == row.verdict()
        assert [layers[place]["name"] for place in layer["sources"]] == list(row.sources) if row.sources else True
    assert layers[0]["rmse"] == pytest.approx(comparison.rows[0].rmse, abs=0)
    page = render(report_of(comparison))
    for row in comparison.rows:
        assert f">{number(row.cos)}<" in page.replace("\n", "")
    assert "nan" in page


def test_zeros_are_told():
    values = np.ones((1, 2, 2, 2), np.float32)
    dump = Dump([Record("out", 0, 0, "Conv", Tensor.of("same", values))])
    (layer,) = data_of(render(report_of(compare(dump, dump, details=True))))["layers"]
    assert (layer["rmse"], layer["mse"], layer["index"], layer["sqnr"]) == (0.0, 0.0, 0, "inf")


def test_500_layers_take_less_than_3_megabytes():
    random = np.random.default_rng(0)
    big = random.normal(size=(1, 40, 40, 64)).astype(np.float32)
    other = big + random.normal(size=big.shape).astype(np.float32)
    sample = Dump([Record("out", 0, 0, "Conv", Tensor.of("layer", other))])
    benchmark = Dump([Record("out", 0, 0, "Conv", Tensor.of("layer", big))])
    one = report_of(compare(sample, benchmark, details=True))
    layers = tuple(replace(one.layers[0], name=f"net/stage{i}/block/conv/Conv_output_0", index=i) for i in range(500))
    assert len(render(replace(one, layers=layers)).encode()) < 3e6


def test_what_was_not_compared_is_listed_with_the_reason():
    page = render(report(["a"]))
    assert "Not compared: 1" in page and "&lt;i&gt;alone&lt;/i&gt;" in page
    assert "no output of this name in the sample" in page


def test_the_side_that_has_a_layer_is_named():
    def dump(name, count):
        tensors = (Tensor.of(name, np.ones(3, np.float32)), Tensor.of("short", np.ones(count, np.float32)))
        return Dump([Record("out", 0, i, "Conv", tensor) for i, tensor in enumerate(tensors)])

    page = render(report_of(compare(dump("mine", 2), dump("yours", 3))))
    headings = re.findall(r"<dt>(.*?) <small>1 layer(.*?)</small></dt>\n<dd><bdi>(\w+)", page)
    assert {name: side for _, side, name in headings} == {
        "short": "",
        "yours": ", only in the benchmark",
        "mine": ", only in the sample",
    }


def test_a_reason_of_many_layers_is_said_once():
    values = np.ones(3, np.float32)
    benchmark = Dump([Record("out", 0, i, "Conv", Tensor.of(f"n{i}", values)) for i in range(50)])
    page = render(report_of(compare(Dump([benchmark.records[0]]), benchmark)))
    assert page.count("no output of this name in the sample") == 1 and "49 layers" in page


def test_an_empty_report():
    assert "nothing" in render(Report("t", ("nothing",)))


def test_the_verdict_is_three_lines_that_name_the_layer():
    comparison, *_ = compared([f"layer{i}" for i in range(40)])
    first, cause, following, completeness, *more = sentences(comparison)
    assert first.startswith("DIFFERS: output layer39 RMSE ") and "the sample lacks 1 layer (<i>alone</i>)" in first
    assert cause.startswith("Cause: layer ") and following.startswith("Next: ")
    assert completeness.endswith("; 1 missing from the sample.")
    assert any(comparison.worst.name in line for line in more) and comparison.jumps[0].name in more[-1]


@pytest.mark.parametrize(
    ("value", "text"),
    [(math.nan, "nan"), (-math.inf, "-inf"), (0.0, "0.000000"), (1.25e-9, "1.25e-09"), (2.5, "2.500000"), (None, "")],
)
def test_numbers(value, text):
    assert number(value) == text


def test_every_script_of_the_page_is_in_it():
    scripts = {path.stem for path in (Path(document.__file__).parent / "page").glob("*.js")}
    assert scripts == set(document.SCRIPTS)


def test_many_numbers_are_rounded_as_one_is():
    """To three and four significant digits, as text is; also halves, powers of ten and what has no exact power."""
    random = np.random.default_rng(5)
    values = np.concatenate([random.normal(size=2000) * 10.0 ** random.integers(-30, 30, 2000), random.random(2000)])
    halves = np.array([0.0, -0.0, 1.0, 10.0, 999.5, 1e-5, 0.1, 1e22, 1e300, 5e-324, np.inf, -np.inf, np.nan, 12.25])
    values = np.concatenate([values, halves])
    for digits in (3, 4):
        found = document._each_rounded(values, digits)
        wanted = [float(f"{value:.{digits - 1}e}") for value in values]
        assert [repr(float(value)) for value in found] == [repr(value or 0.0) for value in wanted]
        json.dumps(found, allow_nan=False)
    counts = np.concatenate([np.arange(3000), 10 ** np.arange(18), random.integers(0, 1 << 50, 3000)]).astype(float)
    assert document._counts(counts) == [int(float(f"{count:.2e}")) for count in counts]
