"""Comparison in the SDK's text formats: its manual's table, and the lines of auto_dump_debug.sh and dump_debug.py."""

from __future__ import annotations

import math

from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.row import Row
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.dumps.dump import Dump
from sgsdump.files.names import normalised
from sgsdump.reports.remarks import remark
from sgsdump.reports.text import shown, unfused

JUMP = 1.0
MARK = "     **** OVER threshold!!!! ****"
_WIDTHS = (40, 20, 16, 16)  # widths of the manual's columns, including the space after them


def table(comparison: Comparison, thresholds: Thresholds) -> str:
    """Return the table of the SDK's manual, one line per layer, in columns as wide as needed.

    ::

        3.conv1_xx_xx_xx.xx.output0             OP_TYPE:CONV_2D     MSE:0.000046    COS:0.999898    RMSE:0.014310

    Names are the tensor names with ``_`` for ``/`` and escaped control characters. A layer with statistics only shows
    their largest relative error. Further metrics and the remark on the layer follow RMSE.
    """
    further = [_further(row) for row in comparison.rows]
    names = list(dict.fromkeys(name for values in further for name in values))
    lines = []
    for row, values in zip(comparison.rows, further):
        columns = (f"{name}:{values[name]}" if name in values else "" for name in names)
        name = shown(_layer_name(row, unfused(row.stage or row.name).replace("/", "_")))
        lines.append((name, f"OP_TYPE:{shown(row.op_type)}", *_figures(row), *columns, shown(remark(row))))
    widths = [max([least, *(len(line[i]) + 1 for line in lines)]) for i, least in enumerate(_WIDTHS)]
    last = len(lines[0]) - 1 if lines else 0
    widths += [max(len(line[i]) for line in lines) + 2 for i in range(len(_WIDTHS), last)]
    return "".join("".join(f"{c:{w}}" for c, w in zip(line, [*widths, 0])).rstrip() + "\n" for line in lines)


def log_lines(comparison: Comparison, thresholds: Thresholds) -> str:
    """Return the lines of the SDK's auto_dump_debug.sh, as in its doAnalyzeRmse_run.log; the script has no thresholds.

    ::

        1.relu1.xx.output0<TAB>OP: RELU  Type: float  MSE: 0.000391  COS: 0.999701  RMSE:<TAB>0.009532

    As in the script, a layer is marked if its RMSE exceeds the RMSE of the previous line by more than 1.0. Lines
    without a finite RMSE are skipped for this test; the script takes their RMSE as 0. If only the values showed that
    the layouts differ, a note stands where the script writes it: ``Type: float <<…>> MSE:``.
    """
    lines, before = [], math.inf
    for row in comparison.rows:
        mark = MARK if row.rmse - before > JUMP else ""
        note = f" <<{row.note}>> " if row.retried else "  "
        lines.append(
            f"{_layer_name(row, normalised(row.stage or row.name))}\tOP: {row.op_type}  Type: {row.type_name}{note}"
            f"MSE: {row.mse:f}  COS: {row.cos:f}  RMSE:\t{row.rmse:f}{mark}\n"
        )
        before = row.rmse if math.isfinite(row.rmse) else before
    return "".join(lines)


def dump_debug_lines(comparison: Comparison, sample: Dump) -> list[str]:
    """Return the lines of the SDK's dump_debug.py, with the sample's names and numbered in the sample's order.

    ::

        1.relu1<TAB>MSE:<TAB>0.000391<TAB>COS:<TAB>0.999701<TAB>RMSE:<TAB>0.009532
    """
    order: dict[str, int] = {}
    for number, record in enumerate(sample.records):
        order.setdefault(record.name, number)
    rows = sorted(comparison.rows, key=lambda row: order[row.sample_name])
    return [
        f"{number}.{row.sample_name}\tMSE:\t{row.mse:f}\tCOS:\t{row.cos:f}\tRMSE:\t{row.rmse:f}"
        for number, row in enumerate(rows)
    ]


def _layer_name(row: Row, name: str) -> str:
    """Return the SDK script's name of a row, ``3.conv1_xx.xx.output0``: the benchmark's index, name and slot."""
    return f"{row.op_index}.{name}.xx.{row.io}put{row.slot}"


def _figures(row: Row) -> tuple[str, str, str]:
    if row.statistics:
        return "MSE:-", "COS:-", f"STATISTICS:{row.error:f}"
    return f"MSE:{row.mse:f}", f"COS:{row.cos:f}", f"RMSE:{row.rmse:f}"


def _further(row: Row) -> dict[str, str]:
    """Return the further metrics, a vendor's as the vendor prints them; with a prefix if a name exists already."""
    extra = {name: f"{value:.6g}" for name, value in row.extra.items()}
    return extra | {f"vendor {name}" if name in extra else name: text for name, text in row.vendor.items()}
