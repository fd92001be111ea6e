"""Overview of a whole network: small histograms in a grid, those that need a look first and framed in colour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw

from sgsdump.comparison.distribution import LEVELS, Distribution
from sgsdump.reports.histogram import chart
from sgsdump.reports.histogram.chart import Panel, font, number, percent, short, span

PER_PAGE = 150
COLUMNS = 8
CELL = (216, 150)
INSET = (10, 24, 206, 118)  # the plot in a cell: left, top, right, bottom
HEAD = 84
SECTION = 34
MARGIN = 12

FRAMES = {
    "broken": ("NaN, Inf or empty", chart.RED),
    "clipped": ("clipped: values outside the range", chart.ORANGE),
    "wasteful": ("99 % in few levels of a wide range", chart.PURPLE),
}


def save_contact_sheets(layers: Sequence[Distribution], folder: Path) -> list[Path]:
    """Write ``overview.png``, and ``overview_2.png`` … past 150 layers, into an existing folder. Raises OSError."""
    order = [layer for layer in layers if layer.troubled] + [layer for layer in layers if not layer.troubled]
    pages = [order[start : start + PER_PAGE] for start in range(0, len(order), PER_PAGE)]
    paths = []
    for page_number, page in enumerate(pages, 1):
        path = folder / ("overview.png" if page_number == 1 else f"overview_{page_number}.png")
        title = f"{len(layers)} layers" + (f", page {page_number} of {len(pages)}" if len(pages) > 1 else "")
        draw_contact_sheet(page, title).save(path, "PNG", compress_level=1)
        paths.append(path)
    return paths


def draw_contact_sheet(layers: Sequence[Distribution], title: str) -> Image.Image:
    """One page: troubled layers under their own heading, then the others, both in the order of the network."""
    sections = [
        ("Look at these first", [layer for layer in layers if layer.troubled]),
        ("The others", [layer for layer in layers if not layer.troubled]),
    ]
    sections = [(heading, members) for heading, members in sections if members]
    columns = min(COLUMNS, max(4, math.ceil(math.sqrt(len(layers)))))
    rows = sum(math.ceil(len(members) / columns) for _, members in sections)
    height = HEAD + len(sections) * SECTION + rows * CELL[1] + MARGIN
    image, draw = chart.canvas(columns * CELL[0] + 2 * MARGIN, height)
    _draw_head(draw, title)
    top = HEAD
    for heading, members in sections:
        draw.text((MARGIN + 4, top + 22), f"{heading} ({len(members)})", chart.BLACK, font(16, True), anchor="ls")
        top += SECTION
        for place, layer in enumerate(members):
            row, column = divmod(place, columns)
            _draw_cell(draw, layer, MARGIN + column * CELL[0], top + row * CELL[1])
        top += math.ceil(len(members) / columns) * CELL[1]
    return image


def _draw_head(draw: ImageDraw.ImageDraw, title: str) -> None:
    draw.text((MARGIN + 4, 34), title, chart.BLACK, font(22, True), anchor="ls")
    legend = [("values", chart.BLUE), ("calibrated min and max", chart.RED)]
    left = MARGIN + 4
    for text, colour in legend:
        draw.rectangle((left, 55, left + 12, 67), fill=colour)
        draw.text((left + 18, 66), text, chart.BLACK, font(13), anchor="ls")
        left += 36 + int(font(13).getlength(text))
    for text, colour in FRAMES.values():
        draw.rectangle((left, 55, left + 12, 67), outline=colour, width=3)
        draw.text((left + 18, 66), text, chart.BLACK, font(13), anchor="ls")
        left += 36 + int(font(13).getlength(text))


def _draw_cell(draw: ImageDraw.ImageDraw, layer: Distribution, left: int, top: int) -> None:
    colour = _colour(layer)
    frame = (left + 3, top + 2, left + CELL[0] - 4, top + CELL[1] - 5)
    draw.rectangle(frame, outline=colour or chart.GRID, width=3 if colour else 1)
    name = short(f"{layer.index}. {layer.name}", font(12, True), CELL[0] - 44)
    draw.text((left + 10, top + 19), name, chart.BLACK, font(12, True), anchor="ls")
    low, high = chart.view(*layer.stats.span, *(layer.limits or ()))
    box = (left + INSET[0], top + INSET[1], left + INSET[2], top + INSET[3])
    panel = Panel(*box, low, high, int(layer.counts.max()), chart.peaky(layer.counts))
    chart.draw_counts(draw, panel, layer.counts, *layer.stats.span)
    draw.line((panel.left, panel.bottom, panel.right, panel.bottom), fill=chart.GREY)
    if layer.limits:
        chart.draw_limits(draw, panel, layer.limits, dash=4, width=1)
    if panel.log:
        draw.text((panel.right, top + 19), "log", chart.GREY, font(10), anchor="rs")
    text = short(remark(layer), font(11), CELL[0] - 18)
    draw.text((left + 10, top + CELL[1] - 14), text, chart.BLACK if colour else chart.GREY, font(11), anchor="ls")


def remark(layer: Distribution) -> str:
    """The one thing to know of a layer, in a few words."""
    stats = layer.stats
    if not stats.count:
        return "no values"
    if layer.broken:
        return f"{stats.nan:,} NaN, {stats.inf:,} Inf of {stats.count:,}"
    if layer.limits is None:
        return f"{span(*stats.span, 3)}, no range"
    if layer.outside and not (layer.wasteful and not layer.clipped):
        return f"{percent(layer.outside, stats.finite)} outside {span(*layer.limits, 3)}"
    if layer.wasteful:
        return f"{layer.levels} of {LEVELS} levels, {number(layer.width)} wide"
    if layer.levels is None:
        return f"{span(*stats.span, 3)}, range of width 0"
    return f"{span(*layer.limits, 3)}, {layer.levels} of {LEVELS}"


def _colour(layer: Distribution) -> chart.Colour | None:
    return next((colour for kind, (_, colour) in FRAMES.items() if getattr(layer, kind)), None)
