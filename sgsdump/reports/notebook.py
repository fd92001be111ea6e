"""HTML of comparisons, dumps and tensors for notebooks (``_repr_html_``); ``sgsdump/plugins.py`` registers it."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.distribution import LEVELS, Distribution
from sgsdump.dumps.tables import ShortTable
from sgsdump.errors import SgsdumpError, listed
from sgsdump.files.atomic_write import replace_text
from sgsdump.reports.card import SHARP, blank, card, fact_list, image_tag, paragraph, short_name, table, text
from sgsdump.reports.charts.bins import joined
from sgsdump.reports.charts.canvas import Panel, draw_counts, draw_limits, view
from sgsdump.reports.charts.depth import COLOURS
from sgsdump.reports.charts.layer_histogram import remark
from sgsdump.reports.layers.table import Entry, Listing, bar_shares, figure_names, table_of, title_of
from sgsdump.reports.remarks import by_reason, left_out_title
from sgsdump.reports.text import number
from sgsdump.tensors.dtypes import name_of
from sgsdump.tensors.statistics import Statistics, histogram, summarise
from sgsdump.tensors.tensor import Tensor

WORST = 20  # largest number of rows
NAMED, REASONS = 5, 5  # names per reason why layers were not compared, and reasons
MOST_VALUES = 1 << 22  # size of a tensor above which its values are not read
BINS = 128
HISTOGRAM, DEPTH = (480, 90), (600, 80)  # width and height of the images in pixels
BARS = 240
_RANKS = {"pass": 0, "warn": 1, "fail": 2}


def show_comparison(comparison: Comparison) -> str:
    """Return the verdict, a chart of the error over depth, the worst layers, and layers that were not compared."""
    layers = table_of(comparison)
    entries = layers.compared
    worst = Listing("worst", WORST).listed(entries)
    more = len(entries) > len(worst)
    return card(
        *map(paragraph, layers.verdict),
        depth_chart(entries) if entries else "",
        worst_layers(worst) if worst else "",
        paragraph(f"{WORST} worst of {len(entries)} layers; to_pandas() returns all", small=True) if more else "",
        *map(paragraph, layers.details),
        *_left_out(layers.left_out),
    )


def save_card(result: Any, path: Path) -> None:
    """Write the notebook output as a page. Raise OutputError."""
    title = html.escape(type(result).__name__)
    replace_text(path, f'<!doctype html><meta charset="utf-8"><title>{title}</title>{result._repr_html_()}\n')


def show_table(short: ShortTable) -> str:
    """Return the first lines of a dump's table."""
    lines = table(short.columns, ([text(cell) for cell in row] for row in short.rows)) if short.rows else ""
    return card(paragraph(short.title), lines, paragraph(f"… {short.more} more", small=True) if short.more else "")


def show_tensor(tensor: Tensor) -> str:
    """Return the facts of a tensor, with a histogram of its real values if the tensor is not too large."""
    facts, chart = _values(tensor)
    return card(paragraph(f"Tensor {tensor.name}"), fact_list([*_tensor_facts(tensor), *facts]), chart)


def show_distribution(layer: Distribution) -> str:
    """Return a layer's histogram, with its range as dashed lines, its facts, and its problems."""
    stats = layer.stats
    facts = [("operator", layer.op_type), ("shape", "unknown" if layer.shape is None else list(layer.shape))]
    facts.append(("values", f"{stats.count:,}, of which {stats.nan or 0:,} NaN and {stats.inf:,} Inf"))
    facts.append(("99 % of them in", _span(layer.central)))
    if layer.limits:
        facts.append(("range", f"{_span(layer.limits)}, {layer.outside:,} values outside"))
    if layer.levels is not None:
        facts.append(("levels used", f"{layer.levels} of {LEVELS}"))
    trouble = [name for name in ("broken", "clipped", "wasteful") if getattr(layer, name)]
    chart = _histogram(layer.counts, *stats.span, layer.limits) if stats.finite else ""
    verdict = [paragraph(f"This layer is {' and '.join(trouble)}.")] if trouble else []
    return card(paragraph(f"Distribution of {layer.name}"), *verdict, fact_list(facts), chart)


def show_distributions(layers: Sequence[Distribution]) -> str:
    """Return a table of at most ``WORST`` layers, suspicious layers first, then in execution order."""
    first = sorted(layers, key=lambda layer: not layer.troubled)
    rows = [
        [
            text(layer.index),
            short_name(layer.name),
            text(layer.op_type),
            text(_span(layer.stats.span) if layer.stats.finite else "none finite"),
            text(_span(layer.limits) if layer.limits else "unknown"),
            text(remark(layer)),
        ]
        for layer in first[:WORST]
    ]
    troubled = sum(layer.troubled for layer in layers)
    return card(
        paragraph(f"{len(layers)} layers, {troubled} suspicious"),
        table(["#", "layer", "type", "values", "calibration range", "remark"], rows) if rows else "",
        paragraph(f"{WORST} of {len(layers)} layers; to_pandas() returns all", small=True)
        if len(layers) > WORST
        else "",
    )


def worst_layers(entries: Sequence[Entry]) -> str:
    """Return a table with one row per layer."""
    figures = figure_names(entries)
    head = ["#", "verdict", "layer", "type", *map(title_of, figures), "remark"]
    rows = [
        [
            text(entry.number),
            f'<span class="{entry.verdict}">{entry.verdict}</span>',
            short_name(entry.name),
            text(entry.op_type),
            *(text(entry.text(figure)) for figure in figures),
            text(entry.remark),
        ]
        for entry in entries
    ]
    return table(head, rows, range(4, 4 + len(figures)))


def depth_chart(entries: Sequence[Entry]) -> str:
    """Return a bar chart of the errors on a logarithmic scale.

    With more layers than ``BARS``, each bar shows the worst of several neighbours.
    """
    shares = bar_shares([entry.error for entry in entries])
    step = -(-len(entries) // BARS)
    starts = range(0, len(entries), step)
    image, draw = blank(*DEPTH)
    width = image.width / len(starts)
    for bar, start in enumerate(starts):
        verdict = max((entry.verdict for entry in entries[start : start + step]), key=_RANKS.__getitem__)
        height = round(max(shares[start : start + step]) * image.height)
        if height:
            left, right = round(bar * width), max(round((bar + 0.8) * width) - 1, round(bar * width))
            draw.rectangle((left, image.height - height, right, image.height), fill=COLOURS[verdict])
    return image_tag(image, label := "error of each layer in the network's order, on a logarithmic scale") + paragraph(
        label, small=True
    )


def _left_out(entries: Sequence[Entry]) -> Iterator[str]:
    """Yield the reasons why layers were not compared, with some of the names."""
    reasons = by_reason((entry.name, entry.remark) for entry in entries)
    if entries:
        expected = sum(entry.expected for entry in entries)
        yield paragraph(left_out_title(len(entries) - expected, expected))
    for reason, names in list(reasons.items())[:REASONS]:
        yield f"<p><small>{text(reason)}: {listed(names, NAMED, short_name)}</small></p>"
    if len(reasons) > REASONS:
        yield paragraph(f"and {len(reasons) - REASONS} more reasons", small=True)


def _tensor_facts(tensor: Tensor) -> Iterator[tuple[str, object]]:
    info = tensor.info
    yield "shape", "unknown" if info.shape is None else list(info.shape)
    yield "dtype", name_of(info.dtype)
    yield from ((term, value) for term, value in (("layout", info.layout), ("operator", info.op_type)) if value)
    if info.quant is not None:
        scale = info.quant.scale
        yield "scale", f"{scale:.6g}" if np.ndim(scale) == 0 else f"{np.size(scale)} scales"
        yield "zero point", info.quant.zero_point


def _values(tensor: Tensor) -> tuple[list[tuple[str, object]], str]:
    """Return the statistics of a tensor, and its histogram or the reason why there is none."""
    if tensor.statistics is not None:
        return list(_numbers(tensor.statistics)), ""
    try:
        count = math.prod(tensor.shape) if tensor.shape is not None else tensor.raw().size
        if count > MOST_VALUES:
            return [("count", f"{count:,}")], paragraph("no histogram: too many values to read", small=True)
        values = tensor.real()
    except SgsdumpError as error:
        return [], paragraph(str(error), small=True)
    statistics = summarise(values)
    span = statistics.span
    chart = _histogram(histogram(values, *span, BINS), *span) if statistics.finite else ""
    return list(_numbers(statistics)), chart


def _numbers(statistics: Statistics) -> Iterator[tuple[str, object]]:
    """Yield the known statistics; NaN and Inf only if the tensor has them."""
    for name in ("count", "min", "max", "mean", "l2norm", "nan", "inf"):
        value = getattr(statistics, name)
        if value is not None and (value or name not in ("nan", "inf")):
            yield name, number(value) if isinstance(value, float) else f"{value:,}"


def _histogram(counts: np.ndarray, low: float, high: float, limits: tuple[float, float] | None = None) -> str:
    """Return a chart of counts on a logarithmic scale, with ``limits`` as dashed lines.

    The bins have equal width over [low, high]; the axis includes the limits.
    """
    first, last = (min(low, limits[0]), max(high, limits[1])) if limits else (low, high)
    if not math.isfinite(last - first) or not counts.any():
        return ""
    counts = joined(counts, BINS)
    image, draw = blank(*HISTOGRAM)
    axis = (first, last) if last > first else view(first)
    panel = Panel(0, 0, image.width, image.height, *axis, int(counts.max()), log=True)
    draw_counts(draw, panel, counts, low, high)
    if limits:
        draw_limits(draw, panel, limits, dash=5 * SHARP, width=SHARP)
    ends = f"{number(first)} … {number(last)}"
    return image_tag(image, f"histogram from {ends}") + paragraph(f"{ends}, counts on a logarithmic scale", small=True)


def _span(span: tuple[float, float]) -> str:
    return f"{number(span[0])} to {number(span[1])}"
