"""Layers as a table for a terminal: as wide as the window, with bars for the error.

If the table does not fit, the least informative columns are left out first, and names lose their middle. The library
rich is not used: it takes 40 ms and 13 MB (its highlighter is pygments), and would replace only a third of this module
(padding and colours). The choice of columns, shortening, escapes and bars would remain here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sgsdump.reports.layers.table import Entry, bar_shares, figure_names, title_of
from sgsdump.reports.text import cells, middle_cut, padded
from sgsdump.reports.window import EIGHTHS, Window

GAP = 2
GOOD_NAME = 28  # cells reserved for names before another column is added
TOO_LONG = 2  # names longer than this multiple of the median do not widen the column
SHORT_BAR, LONG_BAR = 6, 40
# Columns before the figures, and the order in which optional columns are added. Verdict, number, layer and the first
# figure are always present.
_BEFORE_FIGURES = ("verdict", "#", "layer", "type", "bar")
_PRECEDENCE = ("figure cos", "bar", "type", "figure mse")


def render(entries: Sequence[Entry], window: Window) -> str:
    """Return a header and a line per entry, no wider than the window; whole names in a pipe; "" without entries."""
    if not entries:
        return ""
    columns = _columns(entries, window)
    needed = {key: max(map(cells, texts)) for key, texts in columns.items()}
    if window.width is not None:
        needed["layer"] = _usual([cells(name) for name in columns["layer"][1:]])
    widths = _widths(needed, window.width)
    shares = bar_shares([entry.error for entry in entries])
    columns["bar"] = ["", *(_bar(share, widths.get("bar", 0), window) for share in shares)]
    kinds = ["faint", *(entry.verdict for entry in entries)]
    lines = ({key: columns[key][index] for key in widths} for index in range(len(kinds)))
    return "".join(f"{_line(line, widths, kind, window)}\n" for line, kind in zip(lines, kinds))


def _columns(entries: Sequence[Entry], window: Window) -> dict[str, list[str]]:
    """Return the title and the texts of each column; bars are added when their width is known."""
    columns = {
        "verdict": ["", *(entry.verdict for entry in entries)],
        "#": ["#", *(entry.number for entry in entries)],
        "layer": ["layer", *(window.text(entry.name) for entry in entries)],
        "type": ["type", *(window.text(entry.op_type) for entry in entries)],
        "bar": [""],
    }
    for name in figure_names(entries):
        columns[f"figure {name}"] = [window.text(title_of(name)), *(window.text(entry.text(name)) for entry in entries)]
    return columns if any(columns["type"][1:]) else {key: texts for key, texts in columns.items() if key != "type"}


def _usual(lengths: Sequence[int]) -> int:
    """Return the length of the longest name, ignoring names far longer than most."""
    limit = max(GOOD_NAME, TOO_LONG * sorted(lengths)[(len(lengths) - 1) // 2])
    return max(length for length in lengths if length <= limit)


def _widths(needed: Mapping[str, int], width: int | None) -> dict[str, int]:
    """Return the widths of the columns that fit, in order; names and then bars take the remaining width."""
    if width is None:
        width = sum(needed.values()) + GAP * len(needed) + LONG_BAR
    figures = [key for key in needed if key not in _BEFORE_FIGURES]
    widths = {key: needed[key] for key in ("verdict", "#", *figures[:1])}
    names, room = max(needed["layer"], len("layer")), width - sum(widths.values()) - GAP * len(widths)
    for key in (*_PRECEDENCE, *figures):
        cost = SHORT_BAR if key == "bar" else needed.get(key, 0)
        if cost and key not in widths and room - cost - GAP >= min(names, GOOD_NAME):
            widths[key] = cost
            room -= cost + GAP
    widths["layer"] = max(min(names, room), 1)
    if "bar" in widths:
        widths["bar"] = min(SHORT_BAR + room - widths["layer"], LONG_BAR)
    return {key: widths[key] for key in (*_BEFORE_FIGURES, *figures) if key in widths}


def _line(texts: Mapping[str, str], widths: Mapping[str, int], kind: str, window: Window) -> str:
    parts = []
    for key, width in widths.items():
        text = middle_cut(texts[key], width, window.mark)
        part = padded(text, width, right=key == "#" or key not in _BEFORE_FIGURES)
        parts.append(window.coloured(part, kind) if kind == "faint" or key in ("verdict", "bar") else part)
    return (" " * GAP).join(parts).rstrip()


def _bar(share: float, width: int, window: Window) -> str:
    """Return a bar of ``share`` of the width, to an eighth of a cell."""
    if not window.draws:
        return "#" * math.ceil(share * width)
    eighths = math.ceil(share * width * 8)
    return (EIGHTHS[8] * (eighths // 8) + EIGHTHS[eighths % 8]).rstrip()
