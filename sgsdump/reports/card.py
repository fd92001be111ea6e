"""HTML cards for notebooks, in the style of the HTML report: sentences, tables and images.

A notebook stores its outputs. The HTML therefore has a bounded size, no scripts and no external resources, and all text
is escaped.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files

from PIL import Image, ImageDraw

from sgsdump.reports.text import middle_cut, shown

LONGEST, LONGEST_NAME, LONGEST_SENTENCE = 160, 64, 800
SHARP = 2  # image pixels per CSS pixel, for high-resolution screens
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
.sgsdump td:last-child:not(.n) { min-width: 22rem; }
.sgsdump .n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.sgsdump .fail { color: var(--fail); }
.sgsdump .warn { color: var(--warn); }
.sgsdump .pass { color: var(--pass); }
.sgsdump .pixelated { image-rendering: pixelated; }
.sgsdump img { display: block; margin: .3rem 0; max-width: 100%; }
"""


def blank(width: int, height: int) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """Return an image with a transparent background, which also fits dark themes, and its pen."""
    image = Image.new("RGBA", (width * SHARP, height * SHARP))
    return image, ImageDraw.Draw(image)


def image_tag(image: Image.Image, label: str) -> str:
    """Return an ``img`` element with the image as a data URI; ``label`` is its alternative text."""
    file = io.BytesIO()
    image.quantize(16).save(file, "PNG", optimize=True)
    data = base64.b64encode(file.getvalue()).decode()
    size = f'width="{image.width // SHARP}" height="{image.height // SHARP}"'
    return f'<img {size} alt="{label}" src="data:image/png;base64,{data}">'


def card(*parts: str) -> str:
    """Return the whole card; the parts are HTML."""
    return f'<div class="sgsdump"><style>{_style()}</style>{"".join(parts)}</div>'


def text(words: object, longest: int = LONGEST) -> str:
    """Return the text escaped, with invisible characters shown and the middle of a long text cut out."""
    return html.escape(middle_cut(shown(str(words)), longest))


def short_name(words: str) -> str:
    """Return a layer's name for a cell; the tooltip shows a long name whole."""
    return f'<bdi title="{text(words, LONGEST_SENTENCE)}">{text(words, LONGEST_NAME)}</bdi>'


def paragraph(words: str, small: bool = False) -> str:
    """Return a paragraph of text, in small print if ``small``."""
    words = text(words, LONGEST_SENTENCE)
    return f"<p><small>{words}</small></p>" if small else f"<p>{words}</p>"


def fact_list(pairs: Iterable[tuple[str, object]]) -> str:
    """Return a list of terms and values."""
    lines = (f"<dt>{text(term)}</dt><dd>{text(value)}</dd>" for term, value in pairs)
    return f"<dl>{''.join(lines)}</dl>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: range = range(0)) -> str:
    """Return a table; the cells are HTML, and the columns ``numbers`` are aligned right."""
    kinds = [' class="n"' if column in numbers else "" for column in range(len(head))]
    titles = "".join(f"<th{kind}>{text(title)}</th>" for kind, title in zip(kinds, head))
    lines = ("".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, row)) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"


@cache
def _style() -> str:
    """Return the report's palette, limited to the card and extended to the dark themes of notebooks."""
    palette = (files("sgsdump.reports.html") / "palette.css").read_text(encoding="utf-8")
    dark = '[data-jp-theme-light="false"] .sgsdump, .vscode-dark .sgsdump, .sgsdump[data-theme="dark"]'
    palette = palette.replace(':root[data-theme="dark"]', dark)
    return palette.replace(":root", ".sgsdump") + _STYLE
