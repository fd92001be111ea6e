"""Text by the cells it takes on a terminal, cut and counted; and rows of texts as aligned columns and as CSV."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgsdump.reports.text import (
    aligned,
    cells,
    counted,
    csv_text,
    middle_cut,
    padded,
    shortened,
    shown,
    unfused,
    wrapped,
)

TEXTS = st.text(st.one_of(st.sampled_from("ab/ 名é\u0301😀"), st.characters()), max_size=60).map(shown)


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("conv1", 5),
        ("名前", 4),
        ("ｱ", 1),
        ("Ａ", 2),
        ("e\u0301", 1),
        ("\u1112\u1161\u11ab", 2),
        ("한", 2),
        ("😀", 2),
        ("…█é", 3),
    ],
)
def test_cells(text, width):
    assert cells(text) == width


@pytest.mark.parametrize(
    ("text", "width", "cut"),
    [
        ("backbone/conv1", 14, "backbone/conv1"),
        ("backbone/conv1", 10, "bac…/conv1"),
        ("名前名前名前", 7, "名…名前"),  # six cells, for a half character is none
        ("abc", 1, "…"),
        ("abc", 0, "…"),
        ("abcdef\u0301", 4, "a…ef\u0301"),
    ],
)
def test_the_middle_is_cut(text, width, cut):
    assert middle_cut(text, width) == cut


@given(TEXTS, st.integers(1, 30))
def test_what_is_cut_fits_and_keeps_both_ends(text, width):
    cut = middle_cut(text, width)
    assert cells(cut) <= max(width, 1)
    if cut != text:
        head, _, end = cut.partition("…") if "…" not in text else (cut[:1], "", "")
        assert text.startswith(head) and text.endswith(end)


@given(TEXTS, st.integers(4, 30))
def test_wrapped_lines_fit_and_lose_no_word_that_fits(text, width):
    lines = list(wrapped(f"  {text}", width))
    assert all(cells(line) <= width for line in lines)
    words = " ".join(lines).split()
    assert [word for word in text.split() if cells(word) <= width - 4] == [
        word for word in words if word in text.split() and cells(word) <= width - 4
    ]


def test_padding_is_by_cells():
    assert padded("名", 4) == "名  " and padded("名", 4, right=True) == "  名" and padded("abc", 2) == "abc"


@given(TEXTS, st.integers(4, 40))
def test_a_shortened_name_keeps_twice_as_much_of_its_end(name, longest):
    short = shortened(name, longest)
    name = unfused(name)  # of joined names the first
    assert len(short) == min(len(name), longest)
    if len(name) > longest:
        assert short[longest // 3] == "…"
        assert name.startswith(short[: longest // 3]) and name.endswith(short[longest // 3 + 1 :])


def test_counted():
    assert [counted(number, "layer") for number in (0, 1, 2)] == ["0 layers", "1 layer", "2 layers"]


def test_aligned_columns():
    rows = [("name", "count", ""), ("a", "5", "remark"), ("long name", "12", "")]
    assert aligned(rows, right=[1]) == ["name       count", "a              5  remark", "long name     12"]
    assert aligned(rows[1:], gap=" ") == ["a         5  remark", "long name 12"]


def test_csv_runs_nothing_in_a_spreadsheet():
    text = csv_text(["name", "value"], [{"name": "=cmd()", "value": -1.5}, {"name": 'a,"b"'}])
    assert text == 'name,value\n\'=cmd(),-1.5\n"a,""b""",\n'


@pytest.mark.parametrize("name", ["a\rb", "\r", "a\nb", "a\r\nb", "plain"])
def test_csv_keeps_line_ends_in_names(name):
    """A reader that takes a bare carriage return for the end of a line must find it in quotes."""
    text = csv_text(["name", "value"], [{"name": f"x{name}", "value": 1}])
    assert list(csv.reader(io.StringIO(text, newline=""))) == [["name", "value"], [f"x{name}", "1"]]
    assert text.count("\r") == name.count("\r") and text.endswith("\n") and ('"' in text) == (name != "plain")
