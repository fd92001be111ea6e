"""A page of many small plots under headings, each in a frame with a name above and a remark below; one upright scale
for all of them, so that two plots can be compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from PIL import Image, ImageDraw

from sgsdump.reports.histogram import chart
from sgsdump.reports.histogram.chart import Panel, font, number, short
from sgsdump.reports.shown import shown

Item = TypeVar("Item")

COLUMNS = 8
CELL = (216, 150)
INSET = (10, 24, 206, 110)  # the plot in a cell: left, top, right, bottom
HEAD = 106
SECTION = 34
MARGIN = 12
# The upright scale ends at all of a layer's values and begins at half a value of the largest layer, within these.
_LEAST, _MOST_LEAST = 1e-7, 1e-2


@dataclass(frozen=True)
class Legend:
    """A colour and what it stands for: a filled square, an outline or a frame."""

    text: str
    colour: chart.Colour
    width: int | None = None


@dataclass(frozen=True)
class Section(Generic[Item]):
    heading: str
    items: Sequence[Item]


@dataclass(frozen=True)
class Scale:
    """Shares of a layer's values, on a logarithmic axis from ``least`` to 1."""

    least: float

    @classmethod
    def of(cls, counts: Sequence[int]) -> Scale:
        """For layers of so many values."""
        return cls(min(max(0.5 / max(counts, default=1), _LEAST), _MOST_LEAST) if any(counts) else _MOST_LEAST)

    @property
    def lines(self) -> list[float]:
        """Shares that have a grey line."""
        return [10.0**-power for power in range(2, 8, 2) if 10.0**-power > 2 * self.least]

    def __str__(self) -> str:
        lines = ", ".join(f"{100 * share:g} %" for share in self.lines)
        return "Height: share of a layer's values in each column, logarithmic, the same scale in every plot" + (
            f" (grey lines: {lines})" if lines else ""
        )

    def panel(self, left: int, top: int, low: float, high: float, count: int) -> Panel:
        """The plot of a cell whose corner is there."""
        box = (left + INSET[0], top + INSET[1], left + INSET[2], top + INSET[3])
        return Panel(*box, low, high, max(count, 1), log=True, least=max(count, 1) * self.least)


def draw_sheet(
    title: str,
    legends: Sequence[Legend],
    scale: Scale,
    sections: Sequence[Section[Item]],
    cell: Callable[[ImageDraw.ImageDraw, Item, int, int], None],
) -> Image.Image:
    """The page; ``cell`` draws an item into the cell whose upper left corner it is given."""
    sections = [section for section in sections if section.items]
    count = sum(len(section.items) for section in sections)
    columns = min(COLUMNS, max(4, math.ceil(math.sqrt(count))))
    rows = sum(math.ceil(len(section.items) / columns) for section in sections)
    height = HEAD + len(sections) * SECTION + rows * CELL[1] + MARGIN
    image, draw = chart.canvas(columns * CELL[0] + 2 * MARGIN, height)
    _draw_head(draw, title, legends, scale)
    top = HEAD
    for section in sections:
        heading = f"{section.heading} ({len(section.items)})"
        draw.text((MARGIN + 4, top + 22), heading, chart.BLACK, font(16, True), anchor="ls")
        top += SECTION
        for place, item in enumerate(section.items):
            row, column = divmod(place, columns)
            cell(draw, item, MARGIN + column * CELL[0], top + row * CELL[1])
        top += math.ceil(len(section.items) / columns) * CELL[1]
    return image


def draw_frame(
    draw: ImageDraw.ImageDraw, left: int, top: int, name: str, remark: str, colour: chart.Colour | None
) -> None:
    """The cell's frame, coloured where it needs a look, its name and its remark."""
    frame = (left + 3, top + 2, left + CELL[0] - 4, top + CELL[1] - 5)
    draw.rectangle(frame, outline=colour or chart.GRID, width=3 if colour else 1)
    name = short(shown(name), font(12, True), CELL[0] - 22)
    draw.text((left + 10, top + 19), name, chart.BLACK, font(12, True), anchor="ls")
    text = short(shown(remark), font(11), CELL[0] - 18)
    draw.text((left + 10, top + CELL[1] - 11), text, chart.BLACK if colour else chart.GREY, font(11), anchor="ls")


def draw_lines(draw: ImageDraw.ImageDraw, panel: Panel, scale: Scale) -> None:
    """What lies behind the columns, and the values at both ends of the axis."""
    for share in scale.lines:
        row = panel.row(share * panel.peak)
        draw.line((panel.left, row, panel.right, row), fill=chart.GRID)
    draw.line((panel.left, panel.bottom, panel.right, panel.bottom), fill=chart.GREY)
    for column, value, anchor in ((panel.left, panel.low, "ls"), (panel.right, panel.high, "rs")):
        draw.text((column, panel.bottom + 16), number(value, 3), chart.GREY, font(9), anchor=anchor)


def _draw_head(draw: ImageDraw.ImageDraw, title: str, legends: Sequence[Legend], scale: Scale) -> None:
    draw.text((MARGIN + 4, 34), title, chart.BLACK, font(22, True), anchor="ls")
    left = MARGIN + 4
    for legend in legends:
        box = (left, 55, left + 12, 67)
        if legend.width is None:
            draw.rectangle(box, fill=legend.colour)
        else:
            draw.rectangle(box, outline=legend.colour, width=legend.width)
        draw.text((left + 18, 66), legend.text, chart.BLACK, font(13), anchor="ls")
        left += 36 + int(font(13).getlength(legend.text))
    draw.text((MARGIN + 4, 92), str(scale), chart.GREY, font(13), anchor="ls")
