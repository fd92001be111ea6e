"""Charts of contributions and plans in matplotlib axes (``plot()``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sgsdump.reports.charts.axes import new_axes
from sgsdump.reports.text import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sgsdump.fixedpoint.tuning.advice import Advice
    from sgsdump.fixedpoint.tuning.pareto import Pareto

MOST_BARS, LONGEST_NAME = 30, 40
_OF_VERDICT = {"yes": "tab:red", "maybe": "tab:orange", "no": "tab:blue"}


def plot_plans(result: Pareto, axes: Axes | None) -> Axes:
    """Draw error against bytes: every tried plan, the plans of the table, and the recommended plan."""
    from matplotlib import rc_context

    from sgsdump.fixedpoint.reports.pareto_chart import draw_by_bytes

    with rc_context({"text.parse_math": False}):
        axes = axes or new_axes()
        draw_by_bytes(axes, result)
        axes.legend(fontsize=8)
    return axes


def plot_contributions(advice: Sequence[Advice], axes: Axes | None) -> Axes:
    """Draw a bar for each of the MOST_BARS convolutions that cause most of the output error.

    If nothing was measured, the bars show the convolutions with the widest input ranges.
    """
    from matplotlib import rc_context

    measured = any(entry.measured for entry in advice)
    sizes = [
        (entry, entry.measured.brings if entry.measured else 0.0 if measured else entry.signs.width) for entry in advice
    ]
    largest = sorted(sizes, key=lambda pair: -pair[1])[:MOST_BARS]
    with rc_context({"text.parse_math": False}):
        axes = axes or new_axes()
        for place, (entry, size) in enumerate(reversed(largest)):
            axes.barh(place, size, color=_OF_VERDICT[entry.verdict])
        names = [shown(entry.convolution.name)[-LONGEST_NAME:] for entry, _ in reversed(largest)]
        axes.set_yticks(range(len(names)), names, fontsize=8)
        axes.set_xlabel("output error with only this convolution at INT8" if measured else "width of the input's range")
        axes.set_title("raise to INT16: red; maybe: orange", loc="left", fontsize=10)
    return axes
