"""The tuned plans as a picture: bytes against error and each output's COS. Apart: needs matplotlib."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sgsdump.reports.charts.figure_png import DPI, png_of
from sgsdump.reports.report import lower_envelope
from sgsdump.reports.text import shown
from sgsdump.tuning.pareto import Pareto, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = (11.0, 4.8)  # inches
LONGEST = 40
# An error or 1 - COS of 0 is drawn here, so that it has a place on a logarithmic axis.
LEAST = 1e-12


def pareto_png(result: Pareto) -> bytes:
    """A PNG. Left: error (logarithmic) of every plan tried, the least of each size and below as a line, the plans of
    the table, and what was predicted of those. Right: 1 - COS of each output."""
    return png_of(lambda: figure_of(result))


def figure_of(result: Pareto) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, dpi=DPI, layout="constrained")
    left, right = figure.subplots(1, 2)
    for axes in (left, right):
        axes.set_yscale("log")
    _draw_errors(left, result)
    _draw_outputs(right, result)
    for axes in (left, right):
        axes.set_xlabel("bytes of the weights, 1 = all at 16 bits")
        axes.grid(True, which="major", color="0.92")
        axes.set_axisbelow(True)
    left.legend(fontsize=9, loc="lower left")  # small plans have large errors
    right.legend(fontsize=9)
    return figure


def envelope_of(result: Pareto) -> list[tuple[float, float]]:
    """(rate, error) of the plans with less error than all others of their size or a smaller one."""
    return lower_envelope(result.cloud)


def _draw_errors(axes: Axes, result: Pareto) -> None:
    rates = [row.rate for row in result.rows]
    axes.plot(
        *_points(result.cloud),
        "o",
        markersize=3,
        color="0.75",
        label=f"{result.effort.plans_tried} plans tried (approximation)",
    )
    best = envelope_of(result)
    reach = [(max(rates), best[-1][1])] if best else []
    axes.plot(
        *_points([*best, *reach]), color="tab:blue", drawstyle="steps-post", label="the least of them up to each size"
    )
    axes.plot(
        *_points((row.rate, row.error) for row in result.rows),
        "o",
        color="tab:blue",
        label="plans of the table (integers)",
    )
    predicted = ((row.rate, row.predicted) for row in result.rows if row.predicted > 0)
    axes.plot(*_points(predicted), "x", color="tab:red", markersize=7, label="predicted of them")
    _mark_taken(axes, result.taken, max(result.taken.error, LEAST), sum(rates) / len(rates))
    for row, offset in ((result.rows[0], (8, 6)), (result.rows[-1], (-8, -16))):
        axes.annotate(row.label, (row.rate, max(row.error, LEAST)), offset, textcoords="offset points", fontsize=9,
                      ha="left" if offset[0] > 0 else "right")  # fmt: skip
    axes.margins(y=0.08)
    axes.set_ylabel(f"error of the outputs, {result.objective}"[:90])


def _draw_outputs(axes: Axes, result: Pareto) -> None:
    rows = sorted(result.rows, key=lambda row: row.rate)
    for name in result.outputs:
        label = shown(name) if len(name) <= LONGEST else f"…{shown(name[-LONGEST:])}"
        axes.plot(*_points((row.rate, 1 - row.outputs.cos[name]) for row in rows), "o-", markersize=4, label=label)
    axes.axvline(result.taken.rate, color="black", linestyle=":", linewidth=1, label="the plan to take")
    axes.set_ylabel("1 - COS of the output")


def _mark_taken(axes: Axes, taken: Row, error: float, middle: float) -> None:
    """A ring around the plan to take, and its size beside it, on the side where there is room."""
    axes.plot([taken.rate], [error], "o", color="none", markeredgecolor="black", markeredgewidth=1.5, markersize=14)
    beside = -1 if taken.rate > middle else 1
    axes.annotate(f"to take: {taken.rate:.3f}", (taken.rate, error), (beside * 22, -30), textcoords="offset points",
                  fontsize=9, fontweight="bold", ha="right" if beside < 0 else "left",
                  arrowprops={"arrowstyle": "-", "color": "black", "linewidth": 0.8, "shrinkB": 8})  # fmt: skip


def _points(pairs: Iterable[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """x and y of (x, y), an y of 0 lifted to where it can be drawn."""
    pairs = list(pairs)
    return [x for x, _ in pairs], [max(y, LEAST) for _, y in pairs]
