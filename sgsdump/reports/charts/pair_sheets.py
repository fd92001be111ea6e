"""Sheets of histograms of sample and benchmark: suspicious layers first, largest error first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from PIL import ImageDraw

from sgsdump.comparison.binned import Binned
from sgsdump.comparison.details import Details
from sgsdump.reports.charts import canvas
from sgsdump.reports.charts.bins import FEWEST, Copies, also_of, of_details
from sgsdump.reports.charts.canvas import font, number
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
from sgsdump.reports.report import Layer, Report

LEGENDS = (
    Legend("benchmark", canvas.PALE),
    Legend("sample", canvas.ORANGE, 1),
    Legend("calibration range", canvas.RED),
    Legend("exceeds a limit, NaN or Inf", canvas.RED, 3),
    Legend("the error rises here", canvas.PURPLE, 3),
)
HEADINGS = ("Suspicious layers, largest error first", "Other layers, in execution order")


@dataclass(frozen=True)
class Cell:
    """Layer with details, and its index in the report; ``name`` includes the numbers of its copies."""

    place: int
    layer: Layer
    details: Details
    name: str = ""

    @property
    def first(self) -> bool:
        """True for a suspicious layer."""
        return self.layer.rises or self.layer.verdict == "fail"

    @property
    def error(self) -> float:
        return self.layer.figures.rmse if math.isfinite(self.layer.figures.rmse) else math.inf

    @property
    def counts(self) -> tuple[int, int]:
        """Number of finite values of either side."""
        return int(self.details.sample.sum()), int(self.details.benchmark.sum())


def save(report: Report, folder: Path) -> list[Path]:
    """Write ``histograms.png``; ``histograms_2.png`` … for more than 150 layers; nothing without details."""
    cells = [Cell(i, layer, layer.details) for i, layer in enumerate(report.layers) if layer.details is not None]
    copies = _copies(cells)
    also = also_of(copies)
    cells = [
        replace(
            cell, name=with_copies(f"{cell.layer.index}. {cell.layer.name}", _numbers(report, also.get(cell.place, [])))
        )
        for cell in cells
        if cell.place not in copies
    ]
    first = sorted((cell for cell in cells if cell.first), key=lambda cell: -cell.error)
    scale = Scale.of([max(cell.counts) for cell in cells])
    title = f"{report.title}{copies_note(len(copies))}"
    sheet = Sheet(title, LEGENDS, scale, HEADINGS, partial(_draw_cell, scale))
    return save_sheets(folder / "histograms.png", sheet, first, [cell for cell in cells if not cell.first])


def _draw_cell(scale: Scale, draw: ImageDraw.ImageDraw, cell: Cell, left: int, top: int) -> None:
    layer, details = cell.layer, cell.details
    colour = canvas.RED if layer.verdict == "fail" else canvas.PURPLE if layer.rises else None
    draw_frame(draw, left, top, cell.name, layer.trouble or _remark(layer), colour)
    bins = of_details(details, MOST_BINS)
    limits = None if details.low is None or details.high is None else (details.low, details.high)
    panel = scale.panel(left, top, *canvas.view(*_reach(bins), *(limits or ())), max(cell.counts))
    draw_lines(draw, panel, scale, limits or (bins.edges if bins.rows.shape[1] else None))
    if limits:
        canvas.draw_limits(draw, panel, limits, dash=4, width=1)
    if bins.rows.shape[1]:
        sample, benchmark, _ = bins.rows
        canvas.draw_counts(draw, panel, benchmark, *bins.edges, canvas.PALE)
        canvas.draw_outline(draw, panel, sample, *bins.edges, canvas.ORANGE)
    missing = [side for side, count in zip(("sample", "benchmark"), cell.counts) if not count]
    if missing:
        text = f"no finite value in {'either' if len(missing) == 2 else f'the {missing[0]}'}"
        middle = ((panel.left + panel.right) // 2, (panel.top + panel.bottom) // 2)
        draw.rectangle(draw.textbbox(middle, text, font(12), anchor="mm"), fill=canvas.WHITE)
        draw.text(middle, text, canvas.BLACK, font(12), anchor="mm")


def _reach(bins: Binned) -> tuple[float, float]:
    """Return the range of values to show; a single bin is a spike between empty bins."""
    if not bins.rows.shape[1]:
        return math.nan, math.nan
    low, high = bins.edges
    around = (high - low) * FEWEST if bins.rows.shape[1] == 1 else 0.0
    return low - around, high + around


def _remark(layer: Layer) -> str:
    figures = f"RMSE {number(layer.figures.rmse, 3)}, COS {layer.figures.cos:.5f}".replace("-", "−")
    return f"{figures}, rises" if layer.rises else figures


def _copies(cells: Sequence[Cell]) -> dict[int, int]:
    copies = Copies()
    for cell in cells:
        layer, details = cell.layer, cell.details
        counts = details.sample.tobytes(), details.benchmark.tobytes(), details.errors.tobytes()
        facts = details.edges, details.error_edges, details.low, details.high, layer.verdict, layer.rises
        copies.add(cell.place, layer.op_type, (*counts, *facts) if any(cell.counts) else cell.place)
    return copies.of


def _numbers(report: Report, places: Sequence[int]) -> list[int]:
    return [report.layers[place].index for place in places]
