"""``Comparison.save``: write a comparison to a file, in the format of the file extension."""

from __future__ import annotations

from pathlib import Path

from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.thresholds import DOCUMENTED
from sgsdump.dumps.dump import Dump
from sgsdump.errors import ConfigError
from sgsdump.files.atomic_write import replace_text
from sgsdump.reports.html.frame import Page

TITLE = "Comparison"
ENDINGS = (".html", ".json", ".csv", ".md", ".xml")


def page(comparison: Comparison, sample: Dump | None, benchmark: Dump | None, height: int) -> Page:
    """Return the page of a comparison, with tensors if both dumps are given."""
    from sgsdump.reports.html.document import render
    from sgsdump.reports.report import Context, report_of
    from sgsdump.reports.tensors.views import BUDGET

    context = Context(sample=sample, benchmark=benchmark, page_budget=BUDGET)
    return Page(render(report_of(comparison, context=context)), height)


def save(comparison: Comparison, path: Path, ending: str = "") -> Path:
    """Write the comparison in the format of ``ending``, by default the extension of the path.

    Raise ConfigError if the extension is not in ENDINGS, and OutputError if the file cannot be written.
    """
    from sgsdump.reports.comparison import REPORTS
    from sgsdump.reports.html.document import render
    from sgsdump.reports.layers import WRITERS
    from sgsdump.reports.layers.table import EVERY, table_of
    from sgsdump.reports.report import report_of

    ending = ending or path.suffix.lower()
    if ending == ".html":
        text = render(report_of(comparison))
    elif ending in (".json", ".csv"):
        text = REPORTS[ending[1:]](comparison, DOCUMENTED)
    elif ending in (".md", ".xml"):
        text = WRITERS["markdown" if ending == ".md" else "junit"](table_of(comparison, DOCUMENTED, TITLE), EVERY)
    else:
        raise ConfigError(f"{path}: unknown file extension. Use {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")
    replace_text(path, text)
    return path
