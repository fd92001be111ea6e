"""The tuned plans as a table to read: one line a plan, from all-INT8 to all-INT16."""

from __future__ import annotations

import math

from sgsdump.tuning.pareto import Pareto, Row


def render(result: Pareto) -> str:
    """Lines of a table; the marked plan is the smallest that is good enough (``tuning.ENOUGH``, or the target)."""
    outputs, judged = result.outputs, _judged(result)
    metric = any(row.metric is not None for row in result.rows)
    head = ["", "plan", "rate", "INT16 convs", "bytes", "MACs at 16", "predicted", "error", "of the way"]
    head += [f"error {name}" for name in judged]
    head += [f"COS {name}" for name in outputs] + [f"RMSE {name}" for name in outputs] + ["metric"] * metric
    lines = [head, *(_cells(row, result) for row in result.rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    text = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
    return "\n".join(text) + "\n"


def _judged(result: Pareto) -> list[str]:
    """The outputs whose own error is shown: that of a single one is the error."""
    errors = result.taken.outputs.errors
    return list(errors) if len(errors) > 1 else []


def _cells(row: Row, result: Pareto) -> list[str]:
    cells = [
        "*" if row is result.taken else "",
        row.label,
        f"{row.rate:.4f}",
        str(len(row.raised)),
        str(row.bytes),
        "?" if row.macs16 is None else f"{row.macs16:.1%}",
        f"{row.predicted:.3g}",
        f"{row.error:.3g}",
        "-" if math.isnan(row.way) else f"{row.way:.1%}",
        *(f"{row.outputs.errors[name]:.3g}" for name in _judged(result)),
        *(f"{row.outputs.cos[name]:.6f}" for name in result.outputs),
        *(f"{row.outputs.rmse[name]:.4f}" for name in result.outputs),
    ]
    return cells if row.metric is None else [*cells, f"{row.metric:.4g}"]
