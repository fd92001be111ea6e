"""The comparison as CSV: one line per layer of either dump, numbers in full precision, ``nan`` and ``inf`` as such.

``status`` is ``compared``, ``failed``, ``only in benchmark`` or ``only in sample``; the last three have no metrics.
"""

from __future__ import annotations

import csv
import io

from sgsdump.comparing.thresholds import Thresholds
from sgsdump.comparison import Comparison
from sgsdump.dump import Record
from sgsdump.report import remark

_PLACE = ["op_index", "name", "io", "slot", "op_type"]
_NUMBERS = ["count", "mse", "cos", "rmse", "rise"]
_NOT_FINITE = ["sample_nan", "sample_inf", "benchmark_nan", "benchmark_inf"]
_PAIR = ["sample_name", "paired"]
COLUMNS = ["status", *_PLACE, "type", *_NUMBERS, "within", *_NOT_FINITE, *_PAIR, "remark"]


def render(comparison: Comparison, thresholds: Thresholds) -> str:
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    table.writeheader()
    for row in comparison.rows:
        own = {name: getattr(row, name) for name in [*_PLACE, *_NUMBERS, *_NOT_FINITE, *_PAIR]}
        within = "yes" if row.passes(thresholds) else "no"
        table.writerow(own | {"status": "compared", "type": row.type_name, "within": within, "remark": remark(row)})
    for failed in comparison.failed:
        sample = {"sample_name": failed.pair.sample.name, "paired": failed.pair.how}
        table.writerow(_facts(failed.pair.benchmark, "failed", failed.reason) | sample)
    for unpaired in comparison.only_in_benchmark:
        table.writerow(_facts(unpaired.record, "only in benchmark", unpaired.reason))
    for unpaired in comparison.only_in_sample:
        table.writerow(_facts(unpaired.record, "only in sample", unpaired.reason))
    return text.getvalue()


def _facts(record: Record, status: str, reason: str) -> dict[str, object]:
    facts = {name: getattr(record, name) for name in _PLACE}
    return facts | {"status": status, "remark": reason}
