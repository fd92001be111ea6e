"""The error over depth as a picture: RMSE, 1 - COS, MSE and SQNR of every layer, the thresholds, and where it rises."""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sgsdump.reports.html.report import Layer
from sgsdump.reports.shown import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 100
HEIGHT, NARROWEST, WIDEST = 10.0, 9.0, 24.0  # inches
PER_LAYER = 0.17  # inches
MOST_NAMES = 100
LONGEST = 36
MOST_RISES = 8
# What lies further below the largest value of a panel is drawn at its bottom.
DECADES = 9
COLOURS = {"pass": "#2563c9", "warn": "#b07a00", "fail": "#d62728"}
WORDS = {"pass": "within the thresholds", "warn": "within, with a remark", "fail": "past a threshold, NaN or Inf"}


@dataclass(frozen=True)
class Panel:
    """One metric over depth: its name, the key of its threshold, and the axis."""

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


def render(layers: Sequence[Layer], limits: Mapping[str, float], title: str, verdict: Sequence[str]) -> bytes:
    """A PNG of the layers in their order. ``limits`` are thresholds by metric."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    file = io.BytesIO()
    with warnings.catch_warnings(), rc_context({"text.parse_math": False}):
        # one value for all is no axis to matplotlib, and some names have letters its font has not
        warnings.simplefilter("ignore", UserWarning)
        figure = figure_of(layers, limits, title, verdict)
        FigureCanvasAgg(figure).print_png(file)  # savefig draws twice
    return file.getvalue()


def figure_of(layers: Sequence[Layer], limits: Mapping[str, float], title: str, verdict: Sequence[str]) -> Figure:
    from matplotlib.figure import Figure

    width = min(max(2.0 + PER_LAYER * len(layers), NARROWEST), WIDEST)
    figure = Figure(figsize=(width, HEIGHT), dpi=DPI, layout="constrained")
    lines = [line for text in (title, *verdict[:2]) for line in textwrap.wrap(shown(text), int(width * 11))]
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=11)
    for axes, panel in zip(figure.subplots(len(PANELS), 1, sharex=True), PANELS):
        _draw(axes, panel, layers, limits.get(panel.key))
    _name_layers(axes, layers)
    handles = {label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels())}
    columns = max(2, int(width / 2.7))
    figure.legend(handles.values(), handles.keys(), loc="outside lower left", ncols=columns, fontsize=9, frameon=False)
    return figure


def _draw(axes: Axes, panel: Panel, layers: Sequence[Layer], limit: float | None) -> None:
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
    # what is beyond the axis (0 on a logarithmic one, an infinite SQNR) stands at its border
    drawn = [min(max(value, low), high) if not math.isnan(value) else high for value in values]
    odd = [not math.isfinite(value) and (panel.log or math.isnan(value)) for value in values]
    line = [math.nan if strange else value for value, strange in zip(drawn, odd)]
    axes.plot(range(len(layers)), line, color="0.75", linewidth=1, zorder=1)
    for verdict, colour in COLOURS.items():
        places = [i for i, layer in enumerate(layers) if layer.verdict == verdict and not odd[i]]
        _points(axes, places, drawn, "o", colour, 4, WORDS[verdict])
    places = [i for i in range(len(layers)) if odd[i]]
    _points(axes, places, [high] * len(layers), "X", COLOURS["fail"], 9, "NaN or infinite")
    rises = [i for i, layer in enumerate(layers) if layer.rises]
    if rises:
        above = axes.get_xaxis_transform()
        axes.plot(rises, [1.07] * len(rises), "v", color="black", markersize=8, label="the error rises here",
                  clip_on=False, transform=above)  # fmt: skip
    for place in rises:
        axes.axvline(place, color="black", linestyle=":", linewidth=0.8, zorder=0)
    if panel is PANELS[0]:
        for place in sorted(rises, key=lambda place: -_rise(layers[place]))[:MOST_RISES]:
            axes.annotate(str(place), (place, high), (0, 18), textcoords="offset points", ha="center", fontsize=9,
                          annotation_clip=False)  # fmt: skip
    if threshold is not None:
        axes.axhline(threshold, color=COLOURS["fail"], linestyle="--", linewidth=1, label="threshold")


def values_of(panel: Panel, layers: Sequence[Layer]) -> list[float]:
    """What the panel draws of each layer: no error for two sides that are equal, whatever the formula makes of them."""
    values = []
    for layer in layers:
        value = panel.of(getattr(layer, panel.key))
        equal = layer.verdict != "fail" and not math.isfinite(value)
        values.append((0.0 if panel.log else math.inf) if equal else value)
    return values


def span_of(panel: Panel, values: Sequence[float]) -> tuple[float, float]:
    """Where the upright axis begins and ends."""
    known = [value for value in values if math.isfinite(value) and (value > 0 or not panel.log)]
    if not known:
        return (1e-6, 1.0) if panel.log else (0.0, 1.0)
    low, high = min(known), max(known)
    if panel.log:
        low = max(low, high * 10.0**-DECADES)
        return max(low / 2, 1e-300), high * 2
    margin = (high - low) * 0.08 or abs(high) * 0.1 or 1.0
    return low - margin, high + margin


def _points(
    axes: Axes, places: Sequence[int], values: Sequence[float], marker: str, colour: str, size: float, label: str
) -> None:
    if places:
        axes.plot(places, [values[place] for place in places], marker, color=colour, markersize=size, label=label,
                  clip_on=False, zorder=3)  # fmt: skip


def _name_layers(axes: Axes, layers: Sequence[Layer]) -> None:
    """Number and name of each layer; of many, numbers alone."""
    if len(layers) > MOST_NAMES:
        axes.set_xlabel("layer, in the order of the network; the histograms bear the same numbers")
        return
    names = [f"{place}. {_short(layer.name)}" for place, layer in enumerate(layers)]
    axes.set_xticks(range(len(layers)), names, rotation=90, fontsize=8)
    for label, layer in zip(axes.get_xticklabels(), layers):
        if layer.rises or layer.verdict == "fail":
            label.set_color(COLOURS["fail"] if layer.verdict == "fail" else "black")
            label.set_fontweight("bold" if layer.rises else "normal")


def _short(name: str) -> str:
    name = shown(name)
    return name if len(name) <= LONGEST else f"{name[: LONGEST // 3]}…{name[1 - LONGEST * 2 // 3 :]}"


def _rise(layer: Layer) -> float:
    return layer.rise or 0.0
