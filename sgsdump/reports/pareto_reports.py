"""The plans that ``tune`` found: a table, CSV, JSON. Apart: commands print, reports render."""

from __future__ import annotations

import math

from sgsdump.files.escaping import csv_lines
from sgsdump.files.json_yaml import json_text
from sgsdump.reports.tables import aligned
from sgsdump.tuning.pareto import Pareto, Row, as_document, plan_lines


def pareto_table(result: Pareto) -> str:
    """One line a plan, from all-INT8 to all-INT16; the marked one is the smallest that is good enough
    (``tuning.ENOUGH``, or the target)."""
    outputs = result.outputs
    metric = any(row.outputs.metric is not None for row in result.rows)
    head = ["", "plan", "rate", "INT16 convs", "bytes", "MACs at 16", "predicted", "searched", "error", "of the way"]
    head += [f"error {name}" for name in _judged(result)]
    head += [f"COS {name}" for name in outputs] + [f"RMSE {name}" for name in outputs] + ["metric"] * metric
    lines = aligned([head, *(_cells(row, result) for row in result.rows)], range(len(head)))
    return "\n".join(lines) + "\n"


def pareto_csv(result: Pareto) -> str:
    """Numbers in full precision; ``tensor_arrays`` holds names separated by blanks and commas."""
    columns, lines = plan_lines(result)
    return csv_lines([columns, *lines])


def pareto_json(result: Pareto) -> str:
    """``rows`` from INT8 to INT16, the ``cloud`` of all plans tried, how the search went."""
    return json_text(as_document(result))


def _judged(result: Pareto) -> list[str]:
    """The outputs whose own error is shown; a single output's is the error."""
    return list(result.taken.outputs.errors) if len(result.taken.outputs.errors) > 1 else []


def _cells(row: Row, result: Pareto) -> list[str]:
    cells = [
        "*" if row is result.taken else "",
        row.label,
        f"{row.rate:.4f}",
        str(len(row.raised)),
        str(row.bytes),
        "?" if row.macs16 is None else f"{row.macs16:.1%}",
        f"{row.predicted:.3g}",
        f"{row.searched:.3g}",
        f"{row.error:.3g}",
        "-" if math.isnan(row.way) else f"{row.way:.1%}",
        *(f"{row.outputs.errors[name]:.3g}" for name in _judged(result)),
        *(f"{row.outputs.cos[name]:.6f}" for name in result.outputs),
        *(f"{row.outputs.rmse[name]:.4f}" for name in result.outputs),
    ]
    return cells if row.outputs.metric is None else [*cells, f"{row.outputs.metric:.4g}"]
