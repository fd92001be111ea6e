"""Chart of the plans of ``tune``: error against bytes and multiplications at INT16, and the COS of each output."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from sgsdump.fixedpoint.tuning.pareto import Pareto
from sgsdump.reports.charts.figure_png import DPI, png_of
from sgsdump.reports.report import lower_envelope
from sgsdump.reports.text import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = (14.0, 5.2)  # inches
LONGEST = 40
# Zero is drawn here on the logarithmic axis.
LEAST = 1e-12


def pareto_png(result: Pareto) -> bytes:
    """Return the chart as PNG.

    Left: error (logarithmic) of every tried plan, the lower envelope as a line, the plans of the table, and their
    predicted errors. Middle: the same against multiplications at INT16, if known. Right: 1 - COS of each output.
    """
    return png_of(lambda: figure_of(result))


def figure_of(result: Pareto) -> Figure:
    from matplotlib.figure import Figure

    costs = [by_bytes, *([by_macs] if all(row.macs16 is not None for row in result.rows) else [])]
    figure = Figure(figsize=(SIZE[0] * (1 + len(costs)) / 3, SIZE[1]), dpi=DPI, layout="constrained")
    panels = figure.subplots(1, 1 + len(costs))
    for axes in panels:
        axes.set_yscale("log")
    for axes, cost in zip(panels, costs):
        _draw_errors(axes, result, cost)
    _draw_outputs(panels[-1], result)
    for axes, label in zip(panels, [*(AXES[cost] for cost in costs), AXES[by_bytes]]):
        axes.set_xlabel(label)
        axes.grid(True, which="major", color="0.92")
        axes.set_axisbelow(True)
    panels[0].set_ylabel(f"output error, {result.objective}"[:90])
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower left", ncols=4, fontsize=9)
    panels[-1].legend(fontsize=9)
    return figure


def draw_by_bytes(axes: Axes, result: Pareto) -> None:
    """Draw the left panel alone."""
    axes.set_yscale("log")
    _draw_errors(axes, result, by_bytes)
    axes.set_xlabel(AXES[by_bytes])
    axes.set_ylabel(f"output error, {result.objective}"[:90])
    axes.grid(True, which="major", color="0.92")
    axes.set_axisbelow(True)


def by_bytes(rate: float, macs16: float | None) -> float:
    return rate


def by_macs(rate: float, macs16: float | None) -> float:
    return macs16 or 0.0


Cost = Callable[[float, "float | None"], float]
AXES = {by_bytes: "bytes of the weights (1 = all at INT16)", by_macs: "part of the multiplications at INT16"}


def envelope_of(result: Pareto, cost: Cost = by_bytes) -> list[tuple[float, float]]:
    """Return (cost, error) of the plans with a smaller error than all other plans of the same or a smaller size."""
    return lower_envelope([(cost(rate, macs16), error) for rate, error, macs16 in result.cloud])


def _draw_errors(axes: Axes, result: Pareto, cost: Cost) -> None:
    sizes = [cost(row.rate, row.macs16) for row in result.rows]
    axes.plot(
        *_points((cost(rate, macs16), error) for rate, error, macs16 in result.cloud),
        "o",
        markersize=3,
        color="0.75",
        label=f"{result.effort.plans_tried} plans tried (approximation)",
    )
    best = envelope_of(result, cost)
    reach = [(max(sizes), best[-1][1])] if best else []
    axes.plot(
        *_points([*best, *reach]), color="tab:blue", drawstyle="steps-post", label="smallest error up to each size"
    )
    errors = [row.error for row in result.rows]
    axes.plot(*_points(zip(sizes, errors)), "o", color="tab:blue", label="plans (chip's integer arithmetic)")
    predicted = ((size, row.predicted) for size, row in zip(sizes, result.rows) if row.predicted > 0)
    axes.plot(*_points(predicted), "x", color="tab:red", markersize=7, label="predicted for the table")
    taken = cost(result.taken.rate, result.taken.macs16)
    _mark_taken(axes, taken, max(result.taken.error, LEAST), sum(sizes) / len(sizes))
    # Free places for labels: right of the smallest plan; below the largest, or above it if better plans lie below.
    over = bool(best) and best[-1][1] < 0.9 * errors[-1]
    for index, offset, side in ((0, (8, 6), "left"), (-1, (0, 9 if over else -17), "center")):
        axes.annotate(result.rows[index].label, (sizes[index], max(errors[index], LEAST)), offset,
                      textcoords="offset points", fontsize=9, ha=side)  # fmt: skip
    axes.margins(x=0.08, y=0.12)


def _draw_outputs(axes: Axes, result: Pareto) -> None:
    rows = sorted(result.rows, key=lambda row: row.rate)
    for name in result.outputs:
        label = shown(name) if len(name) <= LONGEST else f"…{shown(name[-LONGEST:])}"
        axes.plot(*_points((row.rate, 1 - row.outputs.cos[name]) for row in rows), "o-", markersize=4, label=label)
    axes.axvline(result.taken.rate, color="black", linestyle=":", linewidth=1, label="recommended plan")
    axes.set_ylabel("1 - COS of the output")


def _mark_taken(axes: Axes, taken: float, error: float, middle: float) -> None:
    """Draw a ring around the recommended plan, and its size on the side that has room."""
    axes.plot([taken], [error], "o", color="none", markeredgecolor="black", markeredgewidth=1.5, markersize=14)
    beside = -1 if taken > middle else 1
    axes.annotate(f"recommended: {taken:.3f}", (taken, error), (beside * 22, 26), textcoords="offset points",
                  fontsize=9, fontweight="bold", ha="right" if beside < 0 else "left",
                  arrowprops={"arrowstyle": "-", "color": "black", "linewidth": 0.8, "shrinkB": 8})  # fmt: skip


def _points(pairs: Iterable[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Return x and y of the pairs, with y of at least LEAST."""
    pairs = list(pairs)
    return [x for x, _ in pairs], [max(y, LEAST) for _, y in pairs]
