"""The parts of what a notebook shows: a card with a style of its own, tables, facts, and plain SVG."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files

from sgsdump.reports.cells import middle_cut
from sgsdump.reports.shown import shown

LONGEST, LONGEST_NAME, LONGEST_SENTENCE = 160, 64, 800
_STYLE = """
.sgsdump { font: 13px/1.45 system-ui, sans-serif; color: var(--text); background: var(--card); padding: .7rem .9rem;
  border: 1px solid var(--line); border-radius: 8px; overflow-x: auto; text-align: left; }
.sgsdump p { margin: 0 0 .4rem; overflow-wrap: anywhere; }
.sgsdump small, .sgsdump dt { color: var(--dim); }
.sgsdump dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .1rem .9rem; margin: 0; }
.sgsdump dd { margin: 0; overflow-wrap: anywhere; }
.sgsdump table { border-collapse: collapse; margin: .3rem 0; border: 0; }
.sgsdump th, .sgsdump td { text-align: left; padding: .15rem .6rem .15rem 0; border: 0; background: none; }
.sgsdump th { color: var(--dim); font-weight: 500; border-bottom: 1px solid var(--line); }
.sgsdump td:last-child { min-width: 8rem; }
.sgsdump .n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.sgsdump .fail { color: var(--fail); fill: var(--fail); }
.sgsdump .warn { color: var(--warn); fill: var(--warn); }
.sgsdump .pass { color: var(--pass); fill: var(--pass); }
.sgsdump .values { fill: var(--benchmark); opacity: .6; }
.sgsdump .limit { stroke: var(--fail); stroke-dasharray: 5 4; }
.sgsdump svg { display: block; margin: .3rem 0; max-width: 100%; }
"""


def card(*parts: str) -> str:
    """The whole output, of parts that are HTML already."""
    return f'<div class="sgsdump"><style>{_style()}</style>{"".join(parts)}</div>'


def text(words: object, longest: int = LONGEST) -> str:
    """Any text, escaped, invisible characters shown, the middle of a long one left out."""
    return html.escape(middle_cut(shown(str(words)), longest))


def name(words: str) -> str:
    """A layer's name in a cell; a long one as a whole when pointed at."""
    return f'<bdi title="{text(words, LONGEST_SENTENCE)}">{text(words, LONGEST_NAME)}</bdi>'


def paragraph(words: str, small: bool = False) -> str:
    words = html.escape(middle_cut(shown(words), LONGEST_SENTENCE))
    return f"<p><small>{words}</small></p>" if small else f"<p>{words}</p>"


def facts(pairs: Iterable[tuple[str, object]]) -> str:
    """A list of what and value."""
    lines = (f"<dt>{text(what)}</dt><dd>{text(value)}</dd>" for what, value in pairs)
    return f"<dl>{''.join(lines)}</dl>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: range = range(0)) -> str:
    """A table; the columns of ``numbers`` stand right. The cells are HTML already."""
    kinds = [' class="n"' if place in numbers else "" for place in range(len(head))]
    titles = "".join(f"<th{kind}>{text(title)}</th>" for kind, title in zip(kinds, head))
    lines = ("".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, row)) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"


@cache
def _style() -> str:
    """The report's palette, for this card alone, and for the dark themes of notebooks."""
    palette = (files("sgsdump.reports.html") / "palette.css").read_text(encoding="utf-8")
    dark = '[data-jp-theme-light="false"] .sgsdump, .vscode-dark .sgsdump, .sgsdump[data-theme="dark"]'
    palette = palette.replace(':root[data-theme="dark"]', dark)
    return palette.replace(":root", ".sgsdump") + _STYLE
