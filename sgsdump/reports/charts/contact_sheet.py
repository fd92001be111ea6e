"""Overview of a whole network: small histograms in a grid, those that need a look first and framed in colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

from PIL import ImageDraw

from sgsdump.comparison.distribution import LEVELS, Distribution
from sgsdump.reports.charts import canvas
from sgsdump.reports.charts.bins import also_of, joined
from sgsdump.reports.charts.canvas import number, percent, span
from sgsdump.reports.charts.sheet import (
    MOST_BINS,
    Legend,
    Scale,
    Sheet,
    copies_note,
    draw_frame,
    draw_lines,
    save_sheets,
    with_copies,
)

NONE: Mapping[int, int] = MappingProxyType({})

FRAMES = {
    "broken": ("NaN, Inf or empty", canvas.RED),
    "clipped": ("clipped: values outside the range", canvas.ORANGE),
    "wasteful": ("99 % in few levels of a wide range", canvas.PURPLE),
}
LEGENDS = (
    Legend("values", canvas.BLUE),
    Legend("calibrated min and max", canvas.RED),
    *(Legend(text, colour, 3) for text, colour in FRAMES.values()),
)


def save_contact_sheets(layers: Sequence[Distribution], folder: Path, copies: Mapping[int, int] = NONE) -> list[Path]:
    """Write ``overview.png``, and ``overview_2.png`` … past 150 layers, into an existing folder. Raises OSError.

    copies  index among ``layers`` -> index of the layer it is a copy of: not drawn, but named there.
    """
    also = also_of(copies)
    cells = [
        (layer, with_copies(f"{layer.index}. {layer.name}", [layers[copy].index for copy in also.get(index, ())]))
        for index, layer in enumerate(layers)
        if index not in copies
    ]
    scale = Scale.of([layer.stats.finite for layer in layers])
    title = f"{len(layers)} layers{copies_note(len(copies))}"
    headings = ("Look at these first", "The others")
    sheet = Sheet(title, LEGENDS, scale, headings, partial(_draw_cell, scale))
    first = [cell for cell in cells if cell[0].troubled]
    return save_sheets(folder / "overview.png", sheet, first, [cell for cell in cells if not cell[0].troubled])


def _draw_cell(scale: Scale, draw: ImageDraw.ImageDraw, cell: tuple[Distribution, str], left: int, top: int) -> None:
    layer, name = cell
    draw_frame(draw, left, top, name, remark(layer), _colour(layer))
    low, high = canvas.view(*layer.stats.span, *(layer.limits or ()))
    panel = scale.panel(left, top, low, high, layer.stats.finite)
    draw_lines(draw, panel, scale)
    if layer.limits:
        canvas.draw_limits(draw, panel, layer.limits, dash=4, width=1)
    canvas.draw_counts(draw, panel, joined(layer.counts, MOST_BINS), *layer.stats.span)


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


def _colour(layer: Distribution) -> canvas.Colour | None:
    return next((colour for kind, (_, colour) in FRAMES.items() if getattr(layer, kind)), None)
