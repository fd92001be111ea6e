"""The tuned plans as CSV, numbers in full precision; ``tensor_arrays`` holds names separated by blanks and commas."""

from __future__ import annotations

import csv
import io

from sgsdump.tuning.pareto import Pareto

_NUMBERS = ("label", "asked", "rate", "bytes", "macs16", "predicted", "error", "way", "metric")


def render(result: Pareto) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    each = [("error", "errors", name) for name in result.taken.errors]
    each += [(what, what, name) for what in ("cos", "rmse") for name in result.outputs]
    names = [f"{head}:{name}" for head, _, name in each]
    table.writerow([*_NUMBERS, *names, "int16_convs", "tensor_arrays", "taken"])
    for row in result.rows:
        numbers = [getattr(row, name) for name in _NUMBERS]
        values = [getattr(row, what)[name] for _, what, name in each]
        taken = "yes" if row is result.taken else ""
        table.writerow([*numbers, *values, len(row.raised), ", ".join(row.tensors), taken])
    return text.getvalue()
