"""Layers as GitHub-flavoured Markdown, for a comment on a pull request or a job summary.

Names are code spans, where nothing is markup and no account is mentioned (GFM 6.3). A pipe in a table cell is escaped
even in a code span (GFM 4.10). GitHub limits a comment to 65,536 characters, so a report of more than ``MOST`` layers
lists only the worst layers and says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from sgsdump.errors import listed
from sgsdump.reports.layers.table import EVERY, Entry, LayerTable, Listing, figure_names, title_of
from sgsdump.reports.remarks import by_reason, left_out_title
from sgsdump.reports.text import middle_cut, shown

MOST = 100
LONGEST = 120  # length of a name
NAMED = 20  # names per reason
BAR = "\\|"  # a pipe in a cell
_PUNCTUATION = re.compile(r"([\\`*_{}\[\]<>()#+!~&$])")
# Text that GitHub turns into links, mentions and emoji, even if escaped.
_LINKS = re.compile(r"@\w|#\d|://|www\.|:\w+:|\b[0-9a-fA-F]{7,}\b")
_MARKS = {"fail": "❌ fail", "warn": "⚠️ warn", "pass": "✅ pass"}


def render(table: LayerTable, listing: Listing = EVERY) -> str:
    """Return the verdict, a table of the listed layers, and the names of layers that were not compared."""
    entries = replace(listing, top=MOST if listing.top is None else listing.top).listed(table.compared)
    lines = [f"## {text(table.title)}", "", *(f"{text(sentence)}  " for sentence in table.verdict), ""]
    lines += _table(entries)
    if len(entries) < len(table.compared):
        lines += [f"{len(entries)} of {len(table.compared)} compared layers are listed.", ""]
    lines += [*(f"{text(sentence)}  " for sentence in table.details), ""] if table.details else []
    lines += _left_out(table.left_out)
    return "\n".join(lines).rstrip("\n") + "\n"


def text(words: str) -> str:
    """Return escaped text; as code if GitHub would still turn it into a link."""
    words = shown(words)
    return code(words) if _LINKS.search(words) else _PUNCTUATION.sub(r"\\\1", words)


def code(words: str) -> str:
    """Return a code span whose fence is longer than any run of backticks in the text."""
    words = shown(words)
    fence = "`" * (max(map(len, re.findall("`+", words)), default=0) + 1)
    # GitHub removes a blank at each end, except in a span of blanks
    pad = " " if words.strip(" ") and {words[:1], words[-1:]} & {"`", " "} else ""
    return f"{fence}{pad}{words}{pad}{fence}" if words else ""


def _table(entries: Sequence[Entry]) -> Iterator[str]:
    """Yield the lines of the table, without empty columns."""
    if not entries:
        return
    columns = [
        ("verdict", "---", [_MARKS[entry.verdict] for entry in entries]),
        ("#", "--:", [entry.number for entry in entries]),
        ("layer", "---", [code(middle_cut(entry.name, LONGEST)) for entry in entries]),
        ("type", "---", [code(entry.op_type) for entry in entries]),
    ]
    columns += [
        (text(title_of(name)), "--:", [text(entry.text(name)) for entry in entries]) for name in figure_names(entries)
    ]
    columns.append(("remark", "---", [text(entry.remark) for entry in entries]))
    filled = [column for column in columns if any(column[2])]
    yield _row(title for title, _, _ in filled)
    yield _row(alignment for _, alignment, _ in filled)
    yield from (_row(texts[index] for _, _, texts in filled) for index in range(len(entries)))
    yield ""


def _left_out(entries: Sequence[Entry]) -> Iterator[str]:
    if not entries:
        return
    expected = sum(entry.expected for entry in entries)
    yield f"<details><summary>{left_out_title(len(entries) - expected, expected)}</summary>"
    yield ""
    for reason, names in by_reason((entry.name, entry.remark) for entry in entries).items():
        yield f"- {text(reason)}: {listed(names, NAMED, lambda name: code(middle_cut(name, LONGEST)))}"
    yield ""
    yield "</details>"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |"
