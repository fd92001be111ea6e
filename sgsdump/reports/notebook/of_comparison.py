"""A comparison: its verdict, the error over depth, the worst layers, and what was not compared."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from sgsdump.comparison.comparison import Comparison
from sgsdump.registry import listed
from sgsdump.reports.bars import share
from sgsdump.reports.layers.of_comparison import table_of
from sgsdump.reports.layers.table import Entry, Listing, as_text, by_reason, title_of
from sgsdump.reports.notebook.base import card, name, paragraph, table, text
from sgsdump.reports.shown import left_out_title

SHOWN = 20
NAMED, REASONS = 5, 5
DOTS, WIDTH, HEIGHT = 240, 600, 80
_RANKS = {"pass": 0, "warn": 1, "fail": 2}


def render(comparison: Comparison) -> str:
    layers = table_of(comparison)
    entries = layers.compared
    worst = [entries[place] for place in Listing("worst", SHOWN).places(entries)]
    more = len(entries) - len(worst)
    return card(
        *map(paragraph, layers.verdict),
        _depth(entries),
        _worst(worst) if worst else "",
        paragraph(f"the {SHOWN} worst of {len(entries)} layers; to_pandas() has all", small=True) if more else "",
        *_left_out(layers.left_out),
    )


def _worst(entries: Sequence[Entry]) -> str:
    figures = list(dict.fromkeys(figure for entry in entries for figure in entry.figures))
    head = ["#", "verdict", "layer", "type", *map(title_of, figures), "remark"]
    rows = [
        [
            text("" if entry.op_index is None else entry.op_index),
            f'<span class="{entry.verdict}">{entry.verdict}</span>',
            name(entry.name),
            text(entry.op_type),
            *(text(as_text(entry.figures[figure])) if figure in entry.figures else "" for figure in figures),
            text(entry.remark),
        ]
        for entry in entries
    ]
    return table(head, rows, range(4, 4 + len(figures)))


def _depth(entries: Sequence[Entry]) -> str:
    """A bar for each layer, at most ``DOTS``: of neighbours the worst is drawn. Logarithmic, as in the report."""
    if not entries:
        return ""
    top = max((entry.error for entry in entries if math.isfinite(entry.error)), default=0.0)
    step = -(-len(entries) // DOTS)
    groups = [entries[start : start + step] for start in range(0, len(entries), step)]
    width = WIDTH / len(groups)
    bars = []
    for place, group in enumerate(groups):
        height = max(share(entry.error, top) for entry in group) * HEIGHT
        verdict = max((entry.verdict for entry in group), key=_RANKS.__getitem__)
        bars.append(
            f'<rect class="{verdict}" x="{place * width:.1f}" y="{HEIGHT - height:.1f}" width="{width * 0.8:.1f}" '
            f'height="{height:.1f}"/>'
        )
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    label = "error of each layer in the network's order, on a logarithmic scale"
    return f'<svg {box} role="img" aria-label="{label}">{"".join(bars)}</svg>{paragraph(label, small=True)}'


def _left_out(entries: Sequence[Entry]) -> Iterator[str]:
    """Some of the names under each reason."""
    reasons = by_reason((entry.name, entry.remark) for entry in entries)
    if entries:
        expected = sum(entry.status == "without counterpart" for entry in entries)
        yield paragraph(left_out_title(len(entries) - expected, expected))
    for reason, names in list(reasons.items())[:REASONS]:
        yield f"<p><small>{text(reason)}: {listed(names, NAMED, name)}</small></p>"
    if len(reasons) > REASONS:
        yield paragraph(f"and {len(reasons) - REASONS} further reasons", small=True)
