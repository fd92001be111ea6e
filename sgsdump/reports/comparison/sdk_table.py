"""The table of the SDK's manual, one line per layer, in aligned columns that widen for what does not fit:

::

    3.conv1_xx_xx_xx.xx.output0             OP_TYPE:CONV_2D     MSE:0.000046    COS:0.999898    RMSE:0.014310

Names are the tensors' own with ``_`` for ``/`` and control characters as escapes. A layer that has statistics only
shows the largest relative error of these.
"""

from __future__ import annotations

from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.row import Row
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.reports.comparison.base import further, plain_layer_name, remark
from sgsdump.reports.shown import shown

_WIDTHS = (40, 20, 16, 16)  # of the manual's columns, the space behind them included


def _numbers(row: Row) -> tuple[str, str, str]:
    if row.statistics:
        return "MSE:-", "COS:-", f"STATISTICS:{row.error:f}"
    return f"MSE:{row.mse:f}", f"COS:{row.cos:f}", f"RMSE:{row.rmse:f}"


def render(comparison: Comparison, thresholds: Thresholds) -> str:
    """The table; after RMSE come further metrics and, where there is one, the remark on the layer."""
    names = list(dict.fromkeys(name for row in comparison.rows for name, _ in further(row)))
    lines = []
    for row in comparison.rows:
        values = dict(further(row))
        columns = (f"{name}:{values[name]}" if name in values else "" for name in names)
        name, op_type, remarks = map(shown, (plain_layer_name(row), row.op_type, remark(row)))
        lines.append((name, f"OP_TYPE:{op_type}", *_numbers(row), *columns, remarks))
    widths = [max([least, *(len(line[i]) + 1 for line in lines)]) for i, least in enumerate(_WIDTHS)]
    last = len(lines[0]) - 1 if lines else 0
    widths += [max(len(line[i]) for line in lines) + 2 for i in range(len(_WIDTHS), last)]
    return "".join("".join(f"{c:{w}}" for c, w in zip(line, [*widths, 0])).rstrip() + "\n" for line in lines)
