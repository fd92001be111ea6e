"""The tuned plans as CSV, numbers in full precision; ``tensor_arrays`` holds names separated by blanks and commas."""

from __future__ import annotations

import csv
import io

from sgsdump.tuning.pareto import Pareto

_NUMBERS = ("label", "asked", "rate", "bytes", "macs16", "predicted", "error", "way", "metric")


def render(result: Pareto) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    each = [(what, name) for what in ("cos", "rmse") for name in result.outputs]
    table.writerow([*_NUMBERS, *(f"{what}:{name}" for what, name in each), "int16_convs", "tensor_arrays", "taken"])
    for row in result.rows:
        numbers = [getattr(row, name) for name in _NUMBERS]
        both = [getattr(row, what)[name] for what, name in each]
        taken = "yes" if row is result.taken else ""
        table.writerow([*numbers, *both, len(row.raised), ", ".join(row.tensors), taken])
    return text.getvalue()
