"""The lines of the SDK's auto_dump_debug.sh, as in its doAnalyzeRmse_run.log:

::

    1.relu1.xx.output0<TAB>OP: RELU  Type: float  MSE: 0.000391  COS: 0.999701  RMSE:<TAB>0.009532

A layer whose RMSE exceeds the line before by more than 1.0 is marked, as the script does.
"""

from __future__ import annotations

from sgsdump.comparison import Comparison
from sgsdump.report import layer_name
from sgsdump.thresholds import Thresholds

JUMP = 1.0
MARK = "     **** OVER threshold!!!! ****"


def render(comparison: Comparison, thresholds: Thresholds) -> str:
    """One line per row; thresholds are not used, the script knows none."""
    lines, before = [], None
    for row in comparison.rows:
        mark = MARK if before is not None and row.rmse - before > JUMP else ""
        lines.append(
            f"{layer_name(row)}\tOP: {row.op_type}  Type: {row.type_name}  "
            f"MSE: {row.mse:f}  COS: {row.cos:f}  RMSE:\t{row.rmse:f}{mark}\n"
        )
        before = row.rmse
    return "".join(lines)
