"""The lines of the SDK's auto_dump_debug.sh, as in its doAnalyzeRmse_run.log:

::

    1.relu1.xx.output0<TAB>OP: RELU  Type: float  MSE: 0.000391  COS: 0.999701  RMSE:<TAB>0.009532

A layer whose RMSE exceeds that of the line before by more than 1.0 is marked, as the script does; lines without a
finite RMSE are passed over, which the script takes for 0. Where only the values showed that the layouts differ, a note
stands in the script's place for it, ``Type: float <<…>> MSE:``.
"""

from __future__ import annotations

import math

from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.reports.comparison.base import layer_name

JUMP = 1.0
RETRIED = "as it lies"  # in the note of ``layout_match.measure`` on a pair whose layout the values decided
MARK = "     **** OVER threshold!!!! ****"


def render(comparison: Comparison, thresholds: Thresholds) -> str:
    """One line per row; thresholds are not used, the script knows none."""
    lines, before = [], math.inf
    for row in comparison.rows:
        mark = MARK if row.rmse - before > JUMP else ""
        note = f" <<{row.note}>> " if RETRIED in row.note else "  "
        lines.append(
            f"{layer_name(row)}\tOP: {row.op_type}  Type: {row.type_name}{note}"
            f"MSE: {row.mse:f}  COS: {row.cos:f}  RMSE:\t{row.rmse:f}{mark}\n"
        )
        before = row.rmse if math.isfinite(row.rmse) else before
    return "".join(lines)
