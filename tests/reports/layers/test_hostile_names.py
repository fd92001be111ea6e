"""Names are text in every form: no element, no markup, no command to a terminal, whatever they hold."""

import csv
import io
import json
import re
import unicodedata
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from sgsdump.comparison.thresholds import DOCUMENTED
from sgsdump.reports.comparison import REPORTS
from sgsdump.reports.layers import junit, markdown
from sgsdump.reports.layers.table import Entry, LayerTable, table_of
from sgsdump.reports.layers.terminal import render as terminal_table
from sgsdump.reports.text import shown
from sgsdump.reports.window import Window

from ..hostile import NAMES, comparison

DANGEROUS = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # controls, marks that turn the direction, surrogates, line ends


@pytest.fixture(scope="module")
def compared():
    return comparison(compatible="msprobe")


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.found, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data


def dangerous(text):
    return {char for char in text if unicodedata.category(char) in DANGEROUS} - {"\n"}


def rendered(text):
    markdown_it = pytest.importorskip("markdown_it", reason="markdown-it-py (the extra test) is not installed")
    return Tags(markdown_it.MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(text))


def test_junit(compared):
    text = junit.render(table_of(compared, title="</testsuite>\x00"))
    suite = ElementTree.fromstring(text.encode())[0]
    assert suite.get("name") == "</testsuite>\\x00" and not dangerous(text)
    names = [case.get("name").partition(".")[2] for case in suite.iter("testcase")]
    assert names[: len(NAMES)] == [shown(name) for name in NAMES]
    assert {element.tag for element in suite.iter()} == {
        *("testsuite", "testcase", "failure", "error", "skipped", "system-out"),
    }


def test_markdown(compared):
    text = markdown.render(table_of(compared, title="# a|b <script> @user"))
    page = rendered(text)
    assert not dangerous(text)
    allowed = {"h2", "p", "br", "code", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "ul", "li"}
    assert {tag for tag, _ in page.found} == allowed
    assert all(set(attributes) <= {"style"} for _, attributes in page.found)
    cells = len([tag for tag, _ in page.found if tag in ("td", "th")])
    assert cells % len([tag for tag, _ in page.found if tag == "th"]) == 0
    assert all(shown(name) in page.text for name in NAMES[:-1])


@pytest.mark.parametrize("words", ["@user", "see #12", "www.example.org", "https://a.b", ":tada:", "0123456789abcdef"])
def test_what_github_makes_links_of_is_code(words):
    assert [tag for tag, _ in rendered(markdown.text(words)).found] == ["p", "code"]


def test_the_terminal(compared):
    entries = table_of(compared).compared
    for window in (Window(40), Window(100), Window(300), Window(60, encoding="ascii"), Window(60, encoding="latin-1")):
        text = terminal_table(entries, window)
        assert not dangerous(text) and text.count("\n") == len(entries) + 1
        assert text.encode(window.encoding)
        lines = [part for name in NAMES for part in window.fitted(f"  {name}: reason")]
        assert not dangerous("".join(lines)) and "\n" not in "".join(lines)
    coloured = terminal_table(entries, Window(100, colour=True))
    assert not dangerous(re.sub(r"\x1b\[(2|31|32|33|0)m", "", coloured))


def test_the_pipe(compared):
    for report in ("sdk_table", "verdict"):
        assert not dangerous(REPORTS[report](compared, DOCUMENTED))
    assert len(REPORTS["sdk_table"](compared, DOCUMENTED).splitlines()) == len(NAMES)


def test_the_notebook(compared):
    page = Tags(compared._repr_html_())
    assert {tag for tag, _ in page.found} <= {
        *("div", "style", "p", "small", "img", "table", "thead", "tbody", "tr", "th", "td", "span", "bdi"),
    }
    handlers = [name for _, attributes in page.found for name in attributes if name.startswith("on") or name == "style"]
    assert not handlers and not dangerous(page.text)


def test_json_and_csv_hold_the_names_themselves(compared):
    document = json.loads(REPORTS["json"](compared, DOCUMENTED))
    assert [row["name"] for row in document["rows"]] == list(NAMES)
    text = REPORTS["csv"](compared, DOCUMENTED)
    rows = list(csv.DictReader(io.StringIO(text.replace("\x00", ""), newline="")))
    names = [row["name"].removeprefix("'") if row["name"][:2] == "'=" else row["name"] for row in rows]
    assert names[: len(NAMES)] == [name.replace("\x00", "") for name in NAMES]


def test_no_layer_at_all():
    empty = LayerTable("nothing", (), ())
    assert terminal_table((), Window(80)) == ""
    assert ElementTree.fromstring(junit.render(empty).encode()).get("tests") == "0"
    assert markdown.render(empty) == "## nothing\n"


def test_a_code_span_keeps_blanks_and_backticks():
    for name in ("`", "``a`", " a ", "a`", "   ", "\\"):
        assert rendered(markdown.code(name)).text.strip("\n") == name
    assert markdown.code("") == ""


def test_a_remark_that_layers_share_stands_once():
    entries = tuple(Entry(f"layer{i}", "not comparable", status="failed", remark="sizes differ") for i in range(50))
    text = markdown.render(LayerTable("t", (), entries))
    assert text.count("sizes differ") == 1 and "`layer19` and 30 more" in text
