"""The lines of the SDK's dump_debug.py, in the sample's order:

::

    1.relu1<TAB>MSE:<TAB>0.000391<TAB>COS:<TAB>0.999701<TAB>RMSE:<TAB>0.009532
"""

from __future__ import annotations

from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.row import Row
from sgsdump.dumps.dump import Dump


def lines(comparison: Comparison, sample: Dump) -> list[str]:
    """One line per row, numbered as the rows' tensors first stand in the sample; names are its own."""
    place: dict[str, int] = {}
    for number, record in enumerate(sample.records):
        place.setdefault(record.name, number)
    rows = sorted(comparison.rows, key=lambda row: place[row.sample_name])
    return [line(number, row) for number, row in enumerate(rows)]


def line(number: int, row: Row) -> str:
    return f"{number}.{row.sample_name}\tMSE:\t{row.mse:f}\tCOS:\t{row.cos:f}\tRMSE:\t{row.rmse:f}"
