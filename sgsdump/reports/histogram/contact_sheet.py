"""Overview of a whole network: small histograms in a grid, those that need a look first and framed in colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

from PIL import ImageDraw

from sgsdump.comparison.distribution import LEVELS, Distribution
from sgsdump.reports.copies import also_of
from sgsdump.reports.histogram import chart
from sgsdump.reports.histogram.chart import number, percent, span
from sgsdump.reports.histogram.sheet import Legend, Scale, Section, draw_frame, draw_lines, draw_sheet
from sgsdump.reports.value_bins import joined

PER_PAGE = 150
MOST_BINS = 64
NONE: Mapping[int, int] = MappingProxyType({})

FRAMES = {
    "broken": ("NaN, Inf or empty", chart.RED),
    "clipped": ("clipped: values outside the range", chart.ORANGE),
    "wasteful": ("99 % in few levels of a wide range", chart.PURPLE),
}
LEGENDS = (
    Legend("values", chart.BLUE),
    Legend("calibrated min and max", chart.RED),
    *(Legend(text, colour, 3) for text, colour in FRAMES.values()),
)


def save_contact_sheets(layers: Sequence[Distribution], folder: Path, copies: Mapping[int, int] = NONE) -> list[Path]:
    """Write ``overview.png``, and ``overview_2.png`` … past 150 layers, into an existing folder. Raises OSError.

    copies  place among ``layers`` -> that of the one it is a copy of: not drawn, but named there.
    """
    order = [place for place, layer in enumerate(layers) if layer.troubled and place not in copies]
    order += [place for place, layer in enumerate(layers) if not layer.troubled and place not in copies]
    pages = [order[start : start + PER_PAGE] for start in range(0, len(order), PER_PAGE)]
    scale = Scale.of([layer.stats.finite for layer in layers])
    also = also_of(copies)
    paths = []
    for page_number, page in enumerate(pages, 1):
        path = folder / ("overview.png" if page_number == 1 else f"overview_{page_number}.png")
        title = (
            f"{len(layers)} layers"
            + copied(len(copies))
            + (f", page {page_number} of {len(pages)}" if len(pages) > 1 else "")
        )
        cells = [(layers[place], [layers[copy].index for copy in also.get(place, ())]) for place in page]
        first = [cell for cell in cells if cell[0].troubled]
        others = [cell for cell in cells if not cell[0].troubled]
        sections = [Section("Look at these first", first), Section("The others" if first else "Layers", others)]
        sheet = draw_sheet(title, LEGENDS, scale, sections, partial(_draw_cell, scale))
        sheet.save(path, "PNG", compress_level=1)
        paths.append(path)
    return paths


def _draw_cell(
    scale: Scale, draw: ImageDraw.ImageDraw, cell: tuple[Distribution, list[int]], left: int, top: int
) -> None:
    layer, copies = cell
    name = f"{layer.index}. {layer.name}"
    draw_frame(draw, left, top, with_copies(name, copies), remark(layer), _colour(layer))
    low, high = chart.view(*layer.stats.span, *(layer.limits or ()))
    panel = scale.panel(left, top, low, high, layer.stats.finite)
    draw_lines(draw, panel, scale)
    if layer.limits:
        chart.draw_limits(draw, panel, layer.limits, dash=4, width=1)
    chart.draw_counts(draw, panel, joined(layer.counts, MOST_BINS), *layer.stats.span)


def copied(copies: int) -> str:
    """What the heading says of copies."""
    many = f"{copies} that only move values are" if copies > 1 else "1 that only moves values is"
    return f" ({many} drawn once: name = numbers)" if copies else ""


def with_copies(name: str, copies: Sequence[int]) -> str:
    """``3. gap = 4, 7``: the numbers of the layers that hold the same values."""
    return f"{name} = {', '.join(map(str, copies))}" if copies else name


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
