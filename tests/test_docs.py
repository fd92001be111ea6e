"""What documents and docstrings point to is there: sections of docs/formats, files, links, modules."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests/golden").glob("*.md")])
SOURCES = sorted(path for room in ("sgsdump", "tests", "tools", "benchmarks") for path in (ROOT / room).rglob("*.py"))
CITATION = re.compile(r"docs/formats/(\w+)\.md(?:#([\w-]+))?")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def name_of(path):
    return str(path.relative_to(ROOT))


def sections(page):
    """The anchors of a page's headings, made as the usual viewers make them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    titles = re.findall(r"(?m)^#+ (.*)$", text)
    documented = re.findall(r"(?m)^::: (\S+)$", text)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles} | set(documented)


def citations():
    return {
        (path, page, section)
        for path in SOURCES
        if path != Path(__file__)
        for page, section in CITATION.findall(path.read_text(encoding="utf-8"))
    }


def test_every_cited_section_exists():
    found = citations()
    assert len(found) >= 10
    for path, page, section in found:
        cited = ROOT / "docs" / "formats" / f"{page}.md"
        assert cited.is_file(), f"{name_of(path)} cites {cited.name}"
        assert not section or section in sections(cited), f"{name_of(path)} cites {page}.md#{section}"


def test_no_docstring_cites_a_section_by_number():
    numbered = [path for path in SOURCES if "§" in path.read_text(encoding="utf-8")]
    assert numbered == [Path(__file__)]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if link.startswith(("http://", "https://")):
            continue
        file, _, section = link.partition("#")
        target = (page.parent / file) if file else page
        assert target.exists(), link
        assert not section or section in sections(target), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_a_page_names_exist(page):
    """``sgsdump/dumps/io.py`` and the like, in backquotes."""
    named = re.findall(
        r"`((?:sgsdump|tests|tools|docs|cfg|benchmarks)/[\w./-]*\.\w+)`", page.read_text(encoding="utf-8")
    )
    assert not [name for name in named if not (ROOT / name).exists()]


def test_every_golden_folder_says_where_it_came_from():
    golden = ROOT / "tests" / "golden"
    table = (golden / "README.md").read_text(encoding="utf-8")
    for folder in (golden / "sigmastar").iterdir():
        for part in folder.iterdir() if folder.name == "probes" else [folder]:
            assert f"`{part.name}`" in table or f"`{part.name}/`" in table, part
    size = sum(path.stat().st_size for path in golden.rglob("*") if path.is_file())
    assert size <= 12_000_000
