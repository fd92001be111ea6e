"""What the outputs say on the picture that is furthest off."""

from dataclasses import replace

import numpy as np

from sgsdump.reports.html.document import render
from sgsdump.reports.report import View
from sgsdump.reports.worst_picture import worst_picture

from .html.reports import report

FLOAT = np.float32([[0.1, 4, 3, -1, 2, 0]])
FIXED = np.float32([[0, 3, 5, -1, 0, 1]])


def test_the_largest_of_both_models_side_by_side():
    found = worst_picture("cat.jpg", {"prob": FLOAT}, {"prob": FIXED})
    assert found is not None and not found.agrees
    assert [(one.place, one.benchmark, one.sample) for one in found.said] == [
        ("1", 4, 3),
        ("2", 3, 5),
        ("4", 2, 0),
        ("5", 0, 1),
    ]
    assert [one.first for one in found.said] == [(True, False), (False, True), (False, False), (False, False)]
    assert worst_picture("cat.jpg", {"prob": FLOAT}, {"prob": FLOAT + 1}).agrees


def test_places_of_several_axes():
    values = np.zeros((1, 2, 1, 5), np.float32)
    values[0, 1, 0, 3] = 7
    found = worst_picture("x", {"map": values}, {"map": values})
    assert found.said[0].place == "1, 0, 3"


def test_what_cannot_be_shown():
    assert worst_picture("x", {"a": FLOAT}, {"b": FLOAT}) is None
    assert worst_picture("x", {"a": FLOAT}, {"a": FLOAT[:, :2]}) is None
    assert worst_picture("x", {"a": FLOAT}, {"a": FLOAT * np.nan}) is None
    assert worst_picture("x", {"a": np.zeros((1 << 20) + 1)}, {"a": np.zeros((1 << 20) + 1)}) is None


def test_it_stands_on_the_page_escaped():
    found = worst_picture("<b>cat</b>.jpg", {"<i>prob": FLOAT}, {"<i>prob": FIXED})
    text = render(replace(report(["a"]), view=View(worst=found)))
    assert "&lt;b&gt;cat&lt;/b&gt;.jpg" in text and "&lt;i&gt;prob" in text and "<b>cat" not in text
    assert "<strong>4.000000</strong>" in text and "<strong>5.000000</strong>" in text
    assert "The largest value of an output is at another place" in text
    assert "worst-title" in text and "worst-title" not in render(report(["a"]))
