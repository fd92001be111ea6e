"""The comparison of two or three runs as CSV: one line per file of any side, numbers in full precision.

``verdict`` is ``pass``, ``warn``, ``fail`` or ``not comparable``; files that do not stand on every side are the last
and say where they are missing.
"""

from __future__ import annotations

import csv
import io

from sgsdump.comparison.golden import GoldenComparison
from sgsdump.files.escaping import escaped

_NUMBERS = ["diff2", "all_close", "max_sw", "max_g", "mean_sw", "mean_g"]
_PASSES = ["max_passes", "mean_passes"]
COLUMNS = ["index", "file", "name", "verdict", "nan_inf", *_NUMBERS, "tag", *_PASSES, "remark"]


def render(comparison: GoldenComparison) -> str:
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    table.writeheader()
    three = comparison.titles[2] is not None
    for index, row in enumerate(comparison.rows):
        own: dict[str, object] = {"index": index, "remark": row.reason or row.note}
        own |= {name: getattr(row, name) for name in ("file", "name", "verdict")}
        if not row.reason:
            numbers = ["nan_inf", "diff2", *(_NUMBERS[2:] if three else ["all_close"])]
            own |= {name: getattr(row, name) for name in [*numbers, *(["tag", *_PASSES] if three else [])]}
        table.writerow(escaped(own))
    for file, remark in comparison.unmatched():
        table.writerow(escaped({"file": file, "verdict": "not comparable", "remark": remark}))
    return text.getvalue()
