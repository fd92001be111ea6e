"""Every form of a comparison has the same numbers, read back by a parser that is not ours, whatever the names hold."""

import csv
import io
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from sgsdump.comparison.thresholds import DOCUMENTED
from sgsdump.reports import report
from sgsdump.reports.comparison import REPORTS
from sgsdump.reports.html import document
from sgsdump.reports.layers import junit, markdown
from sgsdump.reports.layers.node_notes import notes_of
from sgsdump.reports.layers.table import table_of
from sgsdump.reports.layers.terminal import render as terminal_table
from sgsdump.reports.text import number, shown
from sgsdump.reports.window import Window

from ..hostile import NAMES, comparison

METRICS = ("rmse", "cos", "mse", "mae")


@pytest.fixture(scope="module")
def compared():
    return comparison(metrics=["mae"])


@pytest.fixture(scope="module")
def expected(compared):
    """The names as they are shown, and the figures: six decimals, small and large ones in full, nan and inf."""
    values = {shown(row.name): (row.rmse, row.cos, row.mse, row.extra["mae"]) for row in compared}
    rows = {name: list(map(number, figures)) for name, figures in values.items()}
    assert list(rows) == [shown(name) for name in NAMES]
    figures = [figure for row in rows.values() for figure in row]
    assert {"nan", "inf"} <= set(figures) and any("e-" in figure for figure in figures)
    return rows


class Cells(HTMLParser):
    """The texts of the cells of every table."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.cell = [], None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.cell = ""

    def handle_data(self, data):
        if self.cell is not None:
            self.cell += data

    def handle_endtag(self, tag):
        if tag in ("td", "th") and self.cell is not None:
            self.rows[-1].append(self.cell.strip())
            self.cell = None


def test_html(compared, expected):
    page = document.render(report.report_of(compared))
    rows = [row for row in Cells(page).rows if len(row) == 8][1:]
    found = [[rmse, cos, mse] for _, _, _, rmse, cos, mse, _, _ in rows]
    assert found == [figures[:3] for figures in expected.values()]


def test_notebook(compared, expected):
    rows = {row[2].strip(): row[4:8] for row in Cells(compared._repr_html_()).rows if len(row) == 9}
    assert rows.pop("layer") == ["RMSE", "COS", "MSE", "mae"]
    short = {name: figures for name, figures in expected.items() if len(name) <= 64}
    assert {name: rows[name.strip()] for name in short} == short
    assert sorted(rows.values()) == sorted(expected.values())


def test_json(compared, expected):
    rows = json.loads(REPORTS["json"](compared, DOCUMENTED))["rows"]
    found = {shown(row["name"]): [row["rmse"], row["cos"], row["mse"], row["extra"]["mae"]] for row in rows}
    assert {name: [number(float(value)) for value in values] for name, values in found.items()} == expected


def test_csv(compared, expected):
    text = REPORTS["csv"](compared, DOCUMENTED).replace("\x00", "")  # which Python before 3.11 does not read
    rows = [row for row in csv.DictReader(io.StringIO(text, newline="")) if row["status"] == "compared"]
    assert [[number(float(row[name])) for name in METRICS] for row in rows] == list(expected.values())
    assert rows[-2]["name"] == " blanks " and rows[-3]["name"] == "'=1+1"


def shown_figures(case):
    """Whether the layer was compared: one that the sample lacks is a failure without figures."""
    return "RMSE" in "".join(case.itertext())


def test_junit(compared, expected):
    suites = ElementTree.fromstring(junit.render(table_of(compared)).encode())
    texts = {
        case.get("name").partition(".")[2]: "".join(case.itertext())
        for case in suites.iter("testcase")
        if case.find("skipped") is None and case.find("error") is None and shown_figures(case)
    }
    figure = re.compile(r"(\w+) (-?(?:[\d.]+(?:e[+-]\d+)?|nan|inf))(?=[,\s]|$)")
    found = {name: [value for _, value in figure.findall(text.strip().splitlines()[0])] for name, text in texts.items()}
    assert found == expected


def test_markdown(compared, expected):
    markdown_it = pytest.importorskip("markdown_it", reason="markdown-it-py (the extra test) is not installed")
    page = markdown_it.MarkdownIt("commonmark").enable("table").render(markdown.render(table_of(compared)))
    head, *rows = Cells(page).rows
    assert head == ["verdict", "#", "layer", "type", "RMSE", "COS", "MSE", "mae", "remark"]
    assert [row[4:8] for row in rows] == list(expected.values())
    # A code span shows its blanks and a cell loses those at its ends; a long name loses its middle.
    assert [row[2] for row in rows][:-2] == list(expected)[:-2]


@pytest.mark.parametrize("width", [110, 600])
def test_terminal(compared, expected, width):
    head, *lines = terminal_table(table_of(compared).compared, Window(width)).splitlines()
    assert head.split()[-4:] == ["RMSE", "COS", "MSE", "mae"] if width == 600 else head.split()[-3:]
    shown_figures = len([title for title in head.split() if title in ("RMSE", "COS", "MSE", "mae")])
    assert [line.split()[-shown_figures:] for line in lines] == [row[:shown_figures] for row in expected.values()]


def test_annotated_model(compared, expected):
    notes = notes_of(table_of(compared))[: len(expected)]
    assert [[note.texts[name] for name in METRICS] for note in notes] == list(expected.values())


def test_pandas(compared, expected):
    pytest.importorskip("pandas", reason="pandas (the extra pandas) is not installed")
    frame = compared.to_pandas()
    assert [[number(value) for value in row] for row in np.asarray(frame[list(METRICS)])] == list(expected.values())


def test_the_pipes_lines_have_them_to_six_decimals(compared):
    lines = REPORTS["sdk_table"](compared, DOCUMENTED).splitlines()
    found = [re.findall(r"(?:MSE|COS|RMSE):(\S+)", line) for line in lines]
    assert found == [[f"{row.mse:f}", f"{row.cos:f}", f"{row.rmse:f}"] for row in compared]
