"""The layers as a table for a terminal: as wide as the window, with bars for the error.

What does not fit is left out column by column, the least telling one first; names lose their middle. Why no library:
rich would pad and colour the cells, a third of what is here, for 40 ms and 13 MB (its highlighter is pygments); which
columns stay, the shortening in the middle, the escapes and the bars would be ours still.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median_low

from sgsdump.reports.bars import share
from sgsdump.reports.cells import cells, middle_cut, padded
from sgsdump.reports.layers.table import Entry, as_text, title_of
from sgsdump.reports.terminal.window import EIGHTHS, Window

GAP = 2
GOOD_NAME = 28  # cells that the names have before a further column comes in
TOO_LONG = 2  # a name this many times longer than half of them widens no column
SHORT_BAR, LONG_BAR = 6, 40
# The columns, figures apart, and in which order they are given room; what is before them and the first figure have it
# always.
_BEFORE_FIGURES = ("verdict", "#", "layer", "type", "bar")
_PRECEDENCE = ("figure cos", "bar", "type", "figure mse")


def render(entries: Sequence[Entry], window: Window) -> str:
    """A line for each entry below a line of titles, none wider than the window; "" without entries."""
    if not entries:
        return ""
    columns = _columns(entries, window)
    needed = {key: max(map(cells, texts)) for key, texts in columns.items()}
    widths = _widths(needed | {"layer": _usual([cells(name) for name in columns["layer"][1:]])}, window.width)
    top = max((entry.error for entry in entries if math.isfinite(entry.error)), default=0.0)
    columns["bar"] = ["", *(_bar(share(entry.error, top), widths.get("bar", 0), window) for entry in entries)]
    kinds = ["faint", *(entry.verdict for entry in entries)]
    lines = ({key: columns[key][place] for key in widths} for place in range(len(kinds)))
    return "".join(f"{_line(line, widths, kind, window)}\n" for line, kind in zip(lines, kinds))


def _columns(entries: Sequence[Entry], window: Window) -> dict[str, list[str]]:
    """The title and the texts of each column; that of the bars is empty as long as its width is not known."""
    columns = {
        "verdict": ["", *(entry.verdict for entry in entries)],
        "#": ["#", *("" if entry.op_index is None else str(entry.op_index) for entry in entries)],
        "layer": ["layer", *(window.text(entry.name) for entry in entries)],
        "type": ["type", *(window.text(entry.op_type) for entry in entries)],
        "bar": [""],
    }
    for name in dict.fromkeys(name for entry in entries for name in entry.figures):
        texts = (as_text(entry.figures[name]) if name in entry.figures else "" for entry in entries)
        columns[f"figure {name}"] = [window.text(title_of(name)), *map(window.text, texts)]
    return columns if any(columns["type"][1:]) else {key: texts for key, texts in columns.items() if key != "type"}


def _usual(lengths: Sequence[int]) -> int:
    """The longest of the names, without those that are far longer than most."""
    limit = max(GOOD_NAME, TOO_LONG * median_low(lengths))
    return max(length for length in lengths if length <= limit)


def _widths(needed: Mapping[str, int], width: int) -> dict[str, int]:
    """The columns that fit into the width, in their order, and what each is given; the names and then the bars take
    what is left."""
    figures = [key for key in needed if key not in _BEFORE_FIGURES]
    given = {key: needed[key] for key in ("verdict", "#", *figures[:1])}
    names, room = max(needed["layer"], len("layer")), width - sum(given.values()) - GAP * len(given)
    for key in (*_PRECEDENCE, *figures):
        cost = SHORT_BAR if key == "bar" else needed.get(key, 0)
        if cost and key not in given and room - cost - GAP >= min(names, GOOD_NAME):
            given[key] = cost
            room -= cost + GAP
    given["layer"] = max(min(names, room), 1)
    if "bar" in given:
        given["bar"] = min(SHORT_BAR + room - given["layer"], LONG_BAR)
    return {key: given[key] for key in (*_BEFORE_FIGURES, *figures) if key in given}


def _line(texts: Mapping[str, str], widths: Mapping[str, int], kind: str, window: Window) -> str:
    parts = []
    for key, width in widths.items():
        text = middle_cut(texts[key], width, window.mark)
        part = padded(text, width, right=key == "#" or key not in _BEFORE_FIGURES)
        parts.append(window.coloured(part, kind) if kind == "faint" or key in ("verdict", "bar") else part)
    return (" " * GAP).join(parts).rstrip()


def _bar(part: float, width: int, window: Window) -> str:
    """``part`` of the width, to an eighth of a cell."""
    if not window.draws:
        return "#" * math.ceil(part * width)
    eighths = math.ceil(part * width * 8)
    return (EIGHTHS[8] * (eighths // 8) + EIGHTHS[eighths % 8]).rstrip()
