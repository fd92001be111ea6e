"""``plot()`` of results: drawing on the user's matplotlib axes, or on new axes for a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sgsdump.errors import ConfigError, hint
from sgsdump.reports.text import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sgsdump.comparison.comparison import Comparison
    from sgsdump.comparison.distribution import Distribution

SIZE = (9.0, 4.0)  # inches


def plot_comparison(comparison: Comparison, axes: Axes | None, metric: str) -> Axes:
    """Draw the panel of a metric of ``depth.py``. Raise ConfigError if the metric is unknown."""
    from matplotlib import rc_context

    from sgsdump.reports.charts.depth import PANELS, draw_panel, name_layers
    from sgsdump.reports.report import report_of

    panels = {panel.key: panel for panel in PANELS}
    if metric not in panels:
        raise ConfigError(f"unknown metric {metric!r}. Use one of {', '.join(panels)}{hint(metric, panels)}")
    report = report_of(comparison)
    with rc_context({"text.parse_math": False}):  # a name with two $ is not a formula
        axes = axes or new_axes()
        draw_panel(axes, panels[metric], report.layers, report.limits.get(metric), numbered=False)
        name_layers(axes, report.layers)
        axes.legend(fontsize=8)
    return axes


def plot_distribution(layer: Distribution, axes: Axes | None) -> Axes:
    """Draw a histogram with the calibration range as dashed lines and the narrowest 99 % of the values shaded."""
    from matplotlib import rc_context

    with rc_context({"text.parse_math": False}):
        axes = axes or new_axes()
        if layer.stats.finite:
            low, high = layer.stats.span
            around = 0.0 if high > low else 0.01 * (abs(low) or 1.0)  # margin for a single value
            edges = np.linspace(low - around, high + around, layer.counts.size + 1)
            axes.stairs(layer.counts, edges, fill=True, color="tab:blue", label="values")
            axes.axvspan(*layer.central, color="0.9", zorder=0, label="99 % of the values")
        for limit, label in zip(layer.limits or (), ("calibration range", None)):
            axes.axvline(limit, color="tab:red", linestyle="--", label=label)
        axes.set_yscale("log", nonpositive="clip")
        axes.set_title(f"{layer.index}. {shown(layer.name)}", loc="left", fontsize=11)
        axes.set_xlabel("value")
        axes.set_ylabel("count")
        axes.legend(fontsize=8)
    return axes


def new_axes() -> Axes:
    """Return new axes in a size for notebooks."""
    from matplotlib import pyplot

    _, axes = pyplot.subplots(figsize=SIZE, layout="constrained")
    return axes
