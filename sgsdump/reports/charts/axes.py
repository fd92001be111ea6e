"""What ``plot()`` of a result draws: into a user's axes of matplotlib, or into new ones that a notebook shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.errors import ConfigError, hint
from sgsdump.reports.text import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sgsdump.comparison.comparison import Comparison
    from sgsdump.comparison.distribution import Distribution
    from sgsdump.fixedpoint.tuning.advice import Advice
    from sgsdump.fixedpoint.tuning.pareto import Pareto

SIZE = (9.0, 4.0)  # inches
MOST_BARS, LONGEST_NAME = 30, 40
_OF_VERDICT = {"yes": "tab:red", "maybe": "tab:orange", "no": "tab:blue"}


def plot_comparison(comparison: Comparison, axes: Axes | None, metric: str) -> Axes:
    """The panel of a metric of ``depth.py``. Raises ConfigError for one that it has not."""
    from matplotlib import rc_context

    from sgsdump.reports.charts.depth import PANELS, draw_panel, name_layers
    from sgsdump.reports.report import report_of

    panels = {panel.key: panel for panel in PANELS}
    if metric not in panels:
        raise ConfigError(f"no plot of {metric!r}; there are {', '.join(panels)}{hint(metric, panels)}")
    report = report_of(comparison)
    with rc_context({"text.parse_math": False}):  # a name with two $ is not a formula
        axes = axes or _new_axes()
        draw_panel(axes, panels[metric], report.layers, report.limits.get(metric), numbered=False)
        name_layers(axes, report.layers)
        axes.legend(fontsize=8)
    return axes


def plot_distribution(layer: Distribution, axes: Axes | None) -> Axes:
    """How often each value occurs, the calibrated range as dashed lines, the narrowest 99 % shaded."""
    from matplotlib import rc_context

    with rc_context({"text.parse_math": False}):
        axes = axes or _new_axes()
        if layer.stats.finite:
            low, high = layer.stats.span
            around = 0.0 if high > low else 0.01 * (abs(low) or 1.0)  # of a single value
            edges = np.linspace(low - around, high + around, layer.counts.size + 1)
            axes.stairs(layer.counts, edges, fill=True, color="tab:blue", label="values")
            axes.axvspan(*layer.central, color="0.9", zorder=0, label="99 % of the values")
        for limit, label in zip(layer.limits or (), ("calibrated minimum and maximum", None)):
            axes.axvline(limit, color="tab:red", linestyle="--", label=label)
        axes.set_yscale("log", nonpositive="clip")
        axes.set_title(f"{layer.index}. {shown(layer.name)}", loc="left", fontsize=11)
        axes.set_xlabel("value")
        axes.set_ylabel("count")
        axes.legend(fontsize=8)
    return axes


def plot_plans(result: Pareto, axes: Axes | None) -> Axes:
    """Error against bytes: every plan tried, the plans of the table, and the one to take."""
    from matplotlib import rc_context

    from sgsdump.fixedpoint.reports.pareto_chart import draw_by_bytes

    with rc_context({"text.parse_math": False}):
        axes = axes or _new_axes()
        draw_by_bytes(axes, result)
        axes.legend(fontsize=8)
    return axes


def plot_advice(advice: Sequence[Advice], axes: Axes | None) -> Axes:
    """A bar for each of the MOST_BARS convolutions that bring most of the outputs' error; where nothing was measured,
    of those whose inputs have the widest ranges."""
    from matplotlib import rc_context

    measured = any(entry.measured for entry in advice)
    sizes = [
        (entry, entry.measured.brings if entry.measured else 0.0 if measured else entry.signs.width) for entry in advice
    ]
    largest = sorted(sizes, key=lambda pair: -pair[1])[:MOST_BARS]
    with rc_context({"text.parse_math": False}):
        axes = axes or _new_axes()
        for place, (entry, size) in enumerate(reversed(largest)):
            axes.barh(place, size, color=_OF_VERDICT[entry.verdict])
        names = [shown(entry.convolution.name)[-LONGEST_NAME:] for entry, _ in reversed(largest)]
        axes.set_yticks(range(len(names)), names, fontsize=8)
        axes.set_xlabel("what its 8 bits alone bring to the outputs' error" if measured else "range of its input")
        axes.set_title("to raise to INT16: red; maybe: orange", loc="left", fontsize=10)
    return axes


def _new_axes() -> Axes:
    from matplotlib import pyplot

    _, axes = pyplot.subplots(figsize=SIZE, layout="constrained")
    return axes
