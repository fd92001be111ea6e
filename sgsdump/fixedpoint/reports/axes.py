"""Charts of contributions and of plans, drawn into axes of matplotlib (``plot()``)."""

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
    """Error against bytes: every plan tried, the plans of the table, and the one to take."""
    from matplotlib import rc_context

    from sgsdump.fixedpoint.reports.pareto_chart import draw_by_bytes

    with rc_context({"text.parse_math": False}):
        axes = axes or new_axes()
        draw_by_bytes(axes, result)
        axes.legend(fontsize=8)
    return axes


def plot_contributions(advice: Sequence[Advice], axes: Axes | None) -> Axes:
    """A bar for each of the MOST_BARS convolutions that bring most of the outputs' error; where nothing was measured,
    of those whose inputs have the widest ranges."""
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
        axes.set_xlabel("output error that it causes alone at 8 bits" if measured else "range of its input")
        axes.set_title("to raise to INT16: red; maybe: orange", loc="left", fontsize=10)
    return axes
