"""The tuned plans as CSV, numbers in full precision; ``tensor_arrays`` holds names separated by blanks and commas."""

from __future__ import annotations

import csv
import io

from sgsdump.tuning.pareto import Pareto, plan_lines


def render(result: Pareto) -> str:
    text = io.StringIO()
    columns, lines = plan_lines(result)
    csv.writer(text, lineterminator="\n").writerows([columns, *lines])
    return text.getvalue()
