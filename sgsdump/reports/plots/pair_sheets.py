"""Histograms of the sample over the benchmark, many to a page: what needs a look first, worst at the front."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from PIL import ImageDraw

from sgsdump.comparison.binned import Binned
from sgsdump.reports.copies import Copies, also_of
from sgsdump.reports.histogram import chart
from sgsdump.reports.histogram.chart import font, number
from sgsdump.reports.histogram.contact_sheet import MOST_BINS, PER_PAGE, copied, with_copies
from sgsdump.reports.histogram.sheet import Legend, Scale, Section, draw_frame, draw_lines, draw_sheet
from sgsdump.reports.html.report import Layer
from sgsdump.reports.value_bins import FEWEST, of_details

LEGENDS = (
    Legend("benchmark", chart.PALE),
    Legend("sample", chart.ORANGE, 1),
    Legend("calibrated min and max", chart.RED),
    Legend("past a threshold, NaN or Inf", chart.RED, 3),
    Legend("the error rises here", chart.PURPLE, 3),
)


def save_pair_sheets(layers: Sequence[Layer], folder: Path, title: str, troubles: Sequence[str] = ()) -> list[Path]:
    """Write ``histograms.png``, and ``histograms_2.png`` … past 150 layers, into an existing folder; nothing without
    details. Raises OSError.

    troubles  of each layer what to say in place of its figures, "" for nothing.
    """
    numbered = [(place, layer) for place, layer in enumerate(layers) if layer.details is not None]
    remarks = [trouble or remark(layer) for layer, trouble in zip(layers, troubles or [""] * len(layers))]
    copies = _copies(numbered)
    also = also_of(copies)
    kept = [(place, layer) for place, layer in numbered if place not in copies]
    order = sorted((item for item in kept if _first(item[1])), key=lambda item: -_rank(item[1]))
    order += [item for item in kept if not _first(item[1])]
    pages = [order[start : start + PER_PAGE] for start in range(0, len(order), PER_PAGE)]
    scale = Scale.of([max(_counts(layer)) for _, layer in kept])
    paths = []
    for page_number, page in enumerate(pages, 1):
        path = folder / ("histograms.png" if page_number == 1 else f"histograms_{page_number}.png")
        heading = title + copied(len(copies)) + (f", page {page_number} of {len(pages)}" if len(pages) > 1 else "")
        first = [item for item in page if _first(item[1])]
        others = [item for item in page if not _first(item[1])]
        sections = [
            Section("Look at these first, the largest error at the front", first),
            Section("The others, in the order of the network" if first else "Layers", others),
        ]
        sheet = draw_sheet(heading, LEGENDS, scale, sections, partial(_draw_cell, scale, also, remarks))
        sheet.save(path, "PNG", compress_level=1)
        paths.append(path)
    return paths


def _draw_cell(
    scale: Scale,
    also: Mapping[int, list[int]],
    remarks: Sequence[str],
    draw: ImageDraw.ImageDraw,
    item: tuple[int, Layer],
    left: int,
    top: int,
) -> None:
    place, layer = item
    details = layer.details
    assert details is not None
    colour = chart.RED if layer.verdict == "fail" else chart.PURPLE if layer.rises else None
    draw_frame(draw, left, top, with_copies(f"{place}. {layer.name}", also.get(place, [])), remarks[place], colour)
    bins = of_details(details, MOST_BINS)
    limits = None if details.low is None or details.high is None else (details.low, details.high)
    panel = scale.panel(left, top, *chart.view(*_reach(bins), *(limits or ())), max(_counts(layer)))
    draw_lines(draw, panel, scale)
    if limits:
        chart.draw_limits(draw, panel, limits, dash=4, width=1)
    if bins.rows.shape[1]:
        sample, benchmark, _ = bins.rows
        chart.draw_counts(draw, panel, benchmark, *bins.edges, chart.PALE)
        chart.draw_outline(draw, panel, sample, *bins.edges, chart.ORANGE)
    missing = [side for side, count in zip(("sample", "benchmark"), _counts(layer)) if not count]
    if missing:
        text = f"no finite value in {'either' if len(missing) == 2 else f'the {missing[0]}'}"
        middle = ((panel.left + panel.right) // 2, (panel.top + panel.bottom) // 2)
        draw.rectangle(draw.textbbox(middle, text, font(12), anchor="mm"), fill=chart.WHITE)
        draw.text(middle, text, chart.BLACK, font(12), anchor="mm")


def _reach(bins: Binned) -> tuple[float, float]:
    """The values to show: a single bin stands as a spike between others that are empty."""
    if not bins.rows.shape[1]:
        return math.nan, math.nan
    low, high = bins.edges
    around = (high - low) * FEWEST if bins.rows.shape[1] == 1 else 0.0
    return low - around, high + around


def remark(layer: Layer) -> str:
    """The figures."""
    figures = f"RMSE {number(layer.rmse, 3)}, COS {layer.cos:.5f}".replace("-", "−")
    return f"{figures}, rises" if layer.rises else figures


def _first(layer: Layer) -> bool:
    return layer.rises or layer.verdict == "fail"


def _rank(layer: Layer) -> float:
    return layer.rmse if math.isfinite(layer.rmse) else math.inf


def _counts(layer: Layer) -> tuple[int, int]:
    """How many finite values either side has."""
    assert layer.details is not None
    return int(layer.details.sample.sum()), int(layer.details.benchmark.sum())


def _copies(numbered: Sequence[tuple[int, Layer]]) -> dict[int, int]:
    copies = Copies()
    for place, layer in numbered:
        details = layer.details
        assert details is not None
        counts = details.sample.tobytes(), details.benchmark.tobytes(), details.errors.tobytes()
        figures = details.edges, details.error_edges, details.low, details.high, layer.verdict, layer.rises
        copies.add(place, layer.op_type, (*counts, *figures) if any(_counts(layer)) else place)
    return copies.of
