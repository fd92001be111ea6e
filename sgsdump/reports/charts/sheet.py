"""Sheets of many small plots under headings, each in a frame with a name and a remark.

All plots have the same vertical scale, so that any two can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from PIL import Image, ImageDraw

from sgsdump.reports.charts import canvas
from sgsdump.reports.charts.canvas import Panel, font, number, short
from sgsdump.reports.text import shown

Item = TypeVar("Item")

PER_PAGE = 150
MOST_BINS = 64  # number of bins of a small plot
COLUMNS = 8
CELL = (216, 150)
WIDEST = COLUMNS * CELL[0]  # largest page width that a title can cause
INSET = (10, 24, 206, 110)  # the plot in a cell: left, top, right, bottom
HEAD = 106
SECTION = 34
MARGIN = 12
_APART = 8  # pixels between two numbers below a plot
# Bounds of the start of the vertical scale, which is half a value of the largest layer; the scale ends at 1.
_LEAST, _MOST_LEAST = 1e-7, 1e-2


@dataclass(frozen=True)
class Legend:
    """Entry of a legend: a text and a colour, drawn as a filled square, an outline or a frame."""

    text: str
    colour: canvas.Colour
    width: int | None = None


@dataclass(frozen=True)
class Scale:
    """Logarithmic axis of shares of a layer's values, from ``least`` to 1."""

    least: float

    @classmethod
    def of(cls, counts: Sequence[int]) -> Scale:
        """Return the scale for layers with these numbers of values."""
        return cls(min(max(0.5 / max(counts, default=1), _LEAST), _MOST_LEAST) if any(counts) else _MOST_LEAST)

    @property
    def lines(self) -> list[float]:
        """Shares with a grey line."""
        return [10.0**-power for power in range(2, 8, 2) if 10.0**-power > 2 * self.least]

    def __str__(self) -> str:
        lines = ", ".join(f"{100 * share:g} %" for share in self.lines)
        return "Height: share of a layer's values in each column, logarithmic, the same scale in every plot" + (
            f" (grey lines: {lines})" if lines else ""
        )

    def panel(self, left: int, top: int, low: float, high: float, count: int) -> Panel:
        """Return the plot area of the cell with this upper left corner."""
        box = (left + INSET[0], top + INSET[1], left + INSET[2], top + INSET[3])
        return Panel(*box, low, high, max(count, 1), log=True, least=max(count, 1) * self.least)


@dataclass(frozen=True)
class Sheet(Generic[Item]):
    """Common parts of all pages.

    headings  headings over the suspicious items, and over the other items of a page with both.
    draw      draws an item into the cell with the given upper left corner.
    """

    title: str
    legends: Sequence[Legend]
    scale: Scale
    headings: tuple[str, str]
    draw: Callable[[ImageDraw.ImageDraw, Item, int, int], None]


def save_sheets(path: Path, sheet: Sheet[Item], first: Sequence[Item], others: Sequence[Item]) -> list[Path]:
    """Write ``path``; ``STEM_2.png`` … beside it for more than 150 items; nothing without items. Raise OSError.

    first  suspicious items, which are drawn before the others.
    """
    items = [*first, *others]
    starts = range(0, len(items), PER_PAGE)
    paths = []
    for page, start in enumerate(starts, 1):
        cut = min(max(len(first) - start, 0), PER_PAGE)
        on_page = items[start : start + PER_PAGE]
        title = sheet.title + (f", page {page} of {len(starts)}" if len(starts) > 1 else "")
        sections = [(sheet.headings[0], on_page[:cut]), (sheet.headings[1] if cut else "Layers", on_page[cut:])]
        paths.append(path if page == 1 else path.with_stem(f"{path.stem}_{page}"))
        _draw_page(title, sheet, sections).save(paths[-1], "PNG", compress_level=1)
    return paths


def draw_frame(
    draw: ImageDraw.ImageDraw, left: int, top: int, name: str, remark: str, colour: canvas.Colour | None
) -> None:
    """Draw the frame of a cell (coloured for a suspicious item), its name and its remark."""
    frame = (left + 3, top + 2, left + CELL[0] - 4, top + CELL[1] - 5)
    draw.rectangle(frame, outline=colour or canvas.GRID, width=3 if colour else 1)
    name = short(shown(name), font(12, True), CELL[0] - 22)
    draw.text((left + 10, top + 19), name, canvas.BLACK, font(12, True), anchor="ls")
    text = short(shown(remark), font(11), CELL[0] - 18)
    draw.text((left + 10, top + CELL[1] - 11), text, canvas.BLACK if colour else canvas.GREY, font(11), anchor="ls")


def draw_lines(draw: ImageDraw.ImageDraw, panel: Panel, scale: Scale, ends: tuple[float, float] | None = None) -> None:
    """Draw the grey lines behind the columns, and the labels of two values (by default the ends of the axis)."""
    for row in panel.rows(np.array(scale.lines) * panel.peak).tolist():
        draw.line((panel.left, row, panel.right, row), fill=canvas.GRID)
    draw.line((panel.left, panel.bottom, panel.right, panel.bottom), fill=canvas.GREY)
    ends = ends or (panel.low, panel.high)
    texts = [number(value, 3) for value in ends]
    widths = [font(9).getlength(text) for text in texts]
    first, last = (panel.column(value) - width / 2 for value, width in zip(ends, widths))
    first = min(max(first, panel.left), panel.right - sum(widths) - _APART)
    last = min(max(last, first + widths[0] + _APART), panel.right - widths[1])
    for column, text in zip((first, last), texts):
        draw.text((column, panel.bottom + 16), text, canvas.GREY, font(9), anchor="ls")


def copies_note(copies: int) -> str:
    """Return the title's remark on layers that have the values of another layer (``with_copies``)."""
    return f" ({copies} drawn with another layer: name = number)" if copies else ""


def with_copies(name: str, copies: Sequence[int]) -> str:
    """Return ``3. gap = 4, 7``: the name with the numbers of layers with the same values."""
    return f"{name} = {', '.join(map(str, copies))}" if copies else name


def _draw_page(title: str, sheet: Sheet[Item], sections: Sequence[tuple[str, Sequence[Item]]]) -> Image.Image:
    sections = [(heading, items) for heading, items in sections if items]
    count = sum(len(items) for _, items in sections)
    columns = min(COLUMNS, max(4, math.ceil(math.sqrt(count))))
    rows = sum(math.ceil(len(items) / columns) for _, items in sections)
    height = HEAD + len(sections) * SECTION + rows * CELL[1] + MARGIN
    texts = font(22, True).getlength(title), font(13).getlength(str(sheet.scale))
    head = 3 * MARGIN + int(max(sum(map(_legend_width, sheet.legends)), *texts))
    width = max(columns * CELL[0] + 2 * MARGIN, min(head, WIDEST))
    image, draw = canvas.blank(width, height)
    _draw_head(draw, short(title, font(22, True), width - 3 * MARGIN), sheet)
    top = HEAD
    for heading, items in sections:
        heading = f"{heading} ({len(items)})"
        draw.text((MARGIN + 4, top + 22), heading, canvas.BLACK, font(16, True), anchor="ls")
        top += SECTION
        for index, item in enumerate(items):
            row, column = divmod(index, columns)
            sheet.draw(draw, item, MARGIN + column * CELL[0], top + row * CELL[1])
        top += math.ceil(len(items) / columns) * CELL[1]
    return image


def _draw_head(draw: ImageDraw.ImageDraw, title: str, sheet: Sheet[Item]) -> None:
    draw.text((MARGIN + 4, 34), title, canvas.BLACK, font(22, True), anchor="ls")
    left = MARGIN + 4
    for legend in sheet.legends:
        box = (left, 55, left + 12, 67)
        if legend.width is None:
            draw.rectangle(box, fill=legend.colour)
        else:
            draw.rectangle(box, outline=legend.colour, width=legend.width)
        draw.text((left + 18, 66), legend.text, canvas.BLACK, font(13), anchor="ls")
        left += _legend_width(legend)
    draw.text((MARGIN + 4, 92), str(sheet.scale), canvas.GREY, font(13), anchor="ls")


def _legend_width(legend: Legend) -> int:
    return 36 + int(font(13).getlength(legend.text))
