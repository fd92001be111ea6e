"""Chart of the error over depth: RMSE, 1 - COS, MSE and SQNR of each layer, with limits and rises."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.reports.charts.figure_png import DPI, png_of
from sgsdump.reports.text import shortened, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sgsdump.reports.report import Layer, Report

HEIGHT, NARROWEST, WIDEST = 10.0, 9.0, 24.0  # inches
PER_LAYER = 0.17  # inches
MOST_NAMES = 100
LONGEST = 36
MOST_RISES = 8
# Powers of ten below the largest value of a panel; smaller values are drawn at its bottom.
DECADES = 9
COLOURS = {"pass": "#2563c9", "warn": "#b07a00", "fail": "#d62728"}
WORDS = {"pass": "within the limits", "warn": "within the limits, with a remark", "fail": "exceeds a limit, NaN or Inf"}


@dataclass(frozen=True)
class Panel:
    """Panel of one metric: its label, the key of its limit, its conversion, and its axis."""

    label: str
    key: str
    of: Callable[[float], float]
    log: bool = True


PANELS = (
    Panel("RMSE", "rmse", lambda value: value),
    Panel("1 - COS", "cos", lambda value: max(1 - value, 0.0) if math.isfinite(value) else value),
    Panel("MSE", "mse", lambda value: value),
    Panel("SQNR in dB", "sqnr", lambda value: value, log=False),
)


def save(report: Report, folder: Path) -> list[Path]:
    """Write ``error.png``."""
    path = folder / "error.png"
    path.write_bytes(render(report))
    return [path]


def render(report: Report) -> bytes:
    """Return the chart as PNG."""
    from matplotlib import rc_context

    with rc_context({"text.parse_math": False}):  # a name with two $ is not a formula
        return png_of(lambda: figure_of(report))


def figure_of(report: Report) -> Figure:
    from matplotlib.figure import Figure

    layers = report.layers
    width = min(max(2.0 + PER_LAYER * len(layers), NARROWEST), WIDEST)
    figure = Figure(figsize=(width, HEIGHT), dpi=DPI, layout="constrained")
    texts = (report.title, *report.verdict[:2])
    lines = [line for text in texts for line in textwrap.wrap(shown(text), int(width * 11))]
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=11)
    for axes, panel in zip(figure.subplots(len(PANELS), 1, sharex=True), PANELS):
        draw_panel(axes, panel, layers, report.limits.get(panel.key), numbered=panel is PANELS[0])
    name_layers(axes, layers)
    handles = {label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels())}
    columns = max(2, int(width / 2.7))
    figure.legend(handles.values(), handles.keys(), loc="outside lower left", ncols=columns, fontsize=9, frameon=False)
    return figure


def draw_panel(axes: Axes, panel: Panel, layers: Sequence[Layer], limit: float | None, numbered: bool = False) -> None:
    """Draw one metric of all layers, its limit, and the rises of the error; ``numbered`` adds the layers' numbers."""
    values = values_of(panel, layers)
    threshold = None if limit is None else panel.of(limit)
    low, high = span_of(panel, values if threshold is None else [*values, threshold])
    if panel.log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(lambda value, _: "")
    axes.set_ylim(low, high)
    axes.set_xlim(-0.7, len(layers) - 0.3)
    axes.set_ylabel(panel.label)
    axes.grid(True, color="0.92")
    axes.set_axisbelow(True)
    _draw_points(axes, panel, layers, values, (low, high))
    rises = [i for i, layer in enumerate(layers) if layer.rises]
    if rises:
        above = axes.get_xaxis_transform()
        axes.plot(rises, [1.07] * len(rises), "v", color="black", markersize=8, label="the error rises here",
                  clip_on=False, transform=above)  # fmt: skip
    for i in rises:
        axes.axvline(i, color="black", linestyle=":", linewidth=0.8, zorder=0)
    if numbered:
        for i in sorted(rises, key=lambda i: -(layers[i].figures.rise or 0.0))[:MOST_RISES]:
            axes.annotate(str(layers[i].index), (i, high), (0, 18), textcoords="offset points", ha="center", fontsize=9,
                          annotation_clip=False)  # fmt: skip
    if threshold is not None:
        axes.axhline(threshold, color=COLOURS["fail"], linestyle="--", linewidth=1, label="limit")


def _draw_points(
    axes: Axes, panel: Panel, layers: Sequence[Layer], values: Sequence[float], span: tuple[float, float]
) -> None:
    """Draw a line through the layers, and a point per layer in the colour of its verdict.

    Points beyond the axis (0 on a logarithmic axis, infinite SQNR) are at its border. NaN and infinite errors are
    crosses at the top.
    """
    low, high = span
    heights = [min(max(value, low), high) if not math.isnan(value) else high for value in values]
    strange = [not math.isfinite(value) and (panel.log or math.isnan(value)) for value in values]
    line = [math.nan if odd else height for height, odd in zip(heights, strange)]
    axes.plot(range(len(layers)), line, color="0.75", linewidth=1, zorder=1)
    kinds = [
        ([i for i, layer in enumerate(layers) if layer.verdict == verdict and not strange[i]], "o", colour, 4, verdict)
        for verdict, colour in COLOURS.items()
    ]
    kinds.append(([i for i, odd in enumerate(strange) if odd], "X", COLOURS["fail"], 9, "strange"))
    for indices, marker, colour, size, kind in kinds:
        if indices:
            points = [high if kind == "strange" else heights[i] for i in indices]
            axes.plot(indices, points, marker, color=colour, markersize=size, label=WORDS.get(kind, "NaN or infinite"),
                      clip_on=False, zorder=3)  # fmt: skip


def values_of(panel: Panel, layers: Sequence[Layer]) -> list[float]:
    """Return the value of each layer in the panel; equal sides have no error, even if the formula gives NaN."""
    values = []
    for layer in layers:
        value = panel.of(getattr(layer.figures, panel.key))
        equal = layer.verdict != "fail" and not math.isfinite(value)
        values.append((0.0 if panel.log else math.inf) if equal else value)
    return values


def span_of(panel: Panel, values: Sequence[float]) -> tuple[float, float]:
    """Return the range of the vertical axis."""
    drawable = [value for value in values if math.isfinite(value) and (value > 0 or not panel.log)]
    if not drawable:
        return (1e-6, 1.0) if panel.log else (0.0, 1.0)
    low, high = min(drawable), max(drawable)
    if panel.log:
        low = max(low, high * 10.0**-DECADES)
        return max(low / 2, 1e-300), high * 2
    margin = (high - low) * 0.08 or abs(high) * 0.1 or 1.0
    return low - margin, high + margin


def name_layers(axes: Axes, layers: Sequence[Layer]) -> None:
    """Label the layers with number and name; no labels for more than MOST_NAMES layers."""
    if len(layers) > MOST_NAMES:
        axes.set_xlabel("layer, in execution order; numbers as in all reports")
        return
    names = [f"{layer.index}. {shortened(shown(layer.name), LONGEST)}" for layer in layers]
    axes.set_xticks(range(len(layers)), names, rotation=90, fontsize=8)
    for label, layer in zip(axes.get_xticklabels(), layers):
        if layer.rises or layer.verdict == "fail":
            label.set_color(COLOURS["fail"] if layer.verdict == "fail" else "black")
            label.set_fontweight("bold" if layer.rises else "normal")
