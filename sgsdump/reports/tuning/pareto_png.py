"""The tuned plans as a picture: bytes against the outputs' error, predicted and verified, and against each COS."""

from __future__ import annotations

import io

from sgsdump.tuning.pareto import Pareto

SIZE = (11.0, 4.6)  # inches
DPI = 100


def render(result: Pareto) -> bytes:
    """A PNG. Left: error (logarithmic) of every plan tried, of the tuned plans, and what was predicted of those.
    Right: 1 - COS of each output."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    rows = [row for row in result.rows if row.label != "smallest"]
    rates = [row.rate for row in rows]
    cloud = [(rate, error) for rate, error in result.cloud if error > 0]
    left.scatter(*zip(*cloud), s=9, color="0.75", label=f"{result.plans_tried} plans tried") if cloud else None
    left.plot(rates, [row.error for row in rows], "o-", color="tab:blue", label="tuned, verified")
    predicted = [max(row.predicted, 0.0) for row in rows]
    left.plot(rates, predicted, "x", color="tab:red", markersize=8, label="predicted")
    left.plot([result.taken.rate], [result.taken.error], "o", color="none", markeredgecolor="black", markersize=13)
    left.annotate("to take", (result.taken.rate, result.taken.error), (12, 12), textcoords="offset points", fontsize=9)
    for row, shift in ((result.rows[0], 8), (result.rows[-1], -34)):
        left.annotate(row.label, (row.rate, row.error), (shift, 8), textcoords="offset points", fontsize=9)
    left.set_ylabel("error of the outputs, Σ(fixed-float)² / Σfloat²")
    for name in result.outputs:
        right.plot(rates, [max(1 - row.cos[name], 1e-9) for row in rows], "o-", label=name)
    right.set_ylabel("1 - COS of the output")
    for axes in (left, right):
        axes.set_yscale("log")
        axes.set_xlabel("bytes of the weights, 1 = all at 16 bits")
        axes.grid(True, which="both", color="0.92")
        axes.legend(fontsize=9)
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()
