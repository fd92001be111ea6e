"""The result of ``tune --explain`` as a table, sentences, CSV and JSON: which convolutions to raise to INT16."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from sgsdump.comparison.finding import Finding
from sgsdump.comparison.metrics import cos, rmse
from sgsdump.comparison.row import Row
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.errors import listed
from sgsdump.files.escaping import csv_lines, shown
from sgsdump.files.json_yaml import json_text
from sgsdump.fixedpoint.quantisation.objective import error_of, output_error
from sgsdump.fixedpoint.reports.cause_sentences import conv_config, int16_is_not_enough
from sgsdump.fixedpoint.tuning.advice import MAYBE, Advice, Measured, advice_lines
from sgsdump.fixedpoint.tuning.causes import Exact
from sgsdump.fixedpoint.tuning.sensitivity_analysis import Measurement
from sgsdump.reports.text import aligned, counted

MOST_NAMES = 8
# input_config.ini separates by commas, ends a value with a semicolon and strips quotes and blanks.
_WRITABLE = re.compile(r"[^\s,;'\"]([^,;'\"\r\n]*[^\s,;'\"])?")
_LEGEND = """\
own, inherited: error of the convolution's output (sum |a-b| / sum |b|) from its own INT8, and from the INT8 of the
layers before it. causes: output error with only this convolution at INT8. removes: part of the output error that
disappears with only this convolution at INT16.
"""


def advice_table(advice: Sequence[Advice]) -> str:
    """Return one line per convolution, worst first, with the measured columns if anything was measured."""
    if not advice:
        return ""
    head, *rows = advice_cells(advice)
    lines = aligned([head, *rows], range(4, len(head) - 1))
    return "".join(f"{line}\n" for line in lines) + (_LEGEND if "own" in head else "")


def advice_cells(advice: Sequence[Advice]) -> list[list[str]]:
    """Return the head and the rows of the table."""
    measured = any(entry.measured for entry in advice)
    head = ["INT16", "convolution", "type", "input", "range"]
    head += ["own", "inherited", "causes", "removes", "why"] if measured else ["why"]
    return [head, *(_cells(entry, measured) for entry in advice)]


def advice_verdict(
    advice: Sequence[Advice],
    names: Sequence[str],
    limits: Thresholds,
    measurement: Measurement | None = None,
    exact: Exact | None = None,
    rows: Sequence[Row] = (),
) -> str:
    """Return the error of the outputs, the inputs to raise and the gain, or that no INT16 is needed.

    names  words of tensor_arrays to write.
    exact  outputs with the chip's integer arithmetic.
    rows   comparison of the fixed model's dump with the float model's; empty without dumps.
    """
    lines = list(_measured_lines(measurement, exact, limits)) if measurement and exact else []
    unknown = list(dict.fromkeys(a.convolution.shown_input for a in advice if not a.signs.limits))
    if unknown:
        lines.append(f"Not judged, because the ranges file has no range for them: {listed(unknown, MOST_NAMES)}.")
    if names:
        if exact and exact.raised:
            state = "the outputs are within the limits"
            if not exact.raised.good(limits):
                more = "; also raise the inputs marked maybe" if maybes(advice) else ""
                state = f"an output still has {limits}{more}"
            lines.append(f"With {listed(names, MOST_NAMES)} at INT16, {state}.")
        lines.append(
            f"Copy these lines into input_config.ini and calibrate again: {counted(len(names), 'input')} at INT16."
        )
        lines.append(conv_config(names))
        unwritable = (name for name in names if not _WRITABLE.fullmatch(name))
        lines += [f"tensor_arrays cannot hold {name!r}: rename the tensor in the model." for name in unwritable]
    else:
        maybe = maybes(advice)
        rules_alone = not measurement and not all(entry.convolution.reads_picture for entry in advice)
        if not maybe and rules_alone:
            lines += _rules_alone(rows)
        elif not maybe:
            all_judged = "No INT16 needed for any convolution."
            lines.append("No INT16 needed for the other convolutions." if unknown else all_judged)
        else:
            lines.append(_on_the_maybes(listed(maybe, MOST_NAMES), exact, limits))
    return "".join(f"{line}\n" for line in lines)


def advice_json(
    advice: Sequence[Advice],
    tensor_arrays: Sequence[str],
    measurement: Measurement | None,
    exact: Exact | None,
    findings: Sequence[Finding] = (),
) -> str:
    """Return every convolution with its verdict, reason and figures as JSON, in full precision.

    exact  outputs with the chip's integer arithmetic, among others with ``tensor_arrays`` raised.
    """
    plans = {"all_8": exact.all_8.sums, "all_16": exact.all_16.sums} if exact else {}
    plans |= {"tensor_arrays": exact.raised.sums} if exact and exact.raised else {}
    document = {
        "format": "sgsdump advice",
        "version": 1,
        "tensor_arrays": list(tensor_arrays),
        "pictures": measurement.pictures if measurement else 0,
        "outputs": {
            plan: {name: {"cos": cos(sums), "rmse": rmse(sums)} for name, sums in totals.items()}
            for plan, totals in plans.items()
        },
        "findings": [asdict(finding) for finding in findings],
        "convolutions": [_entry(entry) for entry in advice],
    }
    return json_text(document)


def advice_csv(advice: Sequence[Advice]) -> str:
    """Return the table of ``to_pandas`` as CSV; names in a cell are separated by commas."""
    lines = advice_lines(advice)
    return csv_lines([", ".join(cell) if isinstance(cell, tuple) else cell for cell in line] for line in lines)


def maybes(advice: Iterable[Advice]) -> list[str]:
    """Return the inputs with the verdict maybe, most helpful first."""
    return list(dict.fromkeys(entry.convolution.shown_input for entry in advice if entry.verdict == MAYBE))


def _cells(entry: Advice, measured: bool) -> list[str]:
    conv = entry.convolution
    width = f"{entry.signs.width:.4g}" if entry.signs.limits else "-"
    cells = [entry.verdict, shown(conv.name), conv.op_type, shown(conv.shown_input), width]
    return [*cells, *(_numbers(entry.measured) if measured else ()), shown(entry.reason)]


def _numbers(measured: Measured | None) -> list[str]:
    if measured is None:
        return ["-"] * 4
    errors = (measured.own, measured.inherited, measured.brings)
    return [*(f"{error:.4f}" for error in errors), f"{round(100 * measured.removes_share)} %"]


def _measured_lines(measurement: Measurement, exact: Exact, limits: Thresholds) -> Iterator[str]:
    """Yield a line for each judged tensor, and the mean of several."""
    pictures = counted(measurement.pictures, "image")
    yield (
        "Output error (RMSE) of the fixed model against the float model, computed in the chip's integer arithmetic "
        f"({pictures}, {measurement.runs} runs). 'beyond the limits' means {limits}:"
    )
    plans = [("all INT8", exact.all_8), ("these raised", exact.raised), ("all INT16", exact.all_16)]
    columns = [(title, plan.sums) for title, plan in plans if plan is not None]
    labels = {name: f"{name} (logits)" if name in measurement.logits else name for name in exact.all_8.outputs}
    width = max(map(len, [*labels.values(), "mean"]))
    yield f"  {'':{width}}" + "".join(f"  {title:>12}" for title, _ in columns)
    for name, label in labels.items():
        cells = "".join(f"  {error_of(totals[name]):12.4f}" for _, totals in columns)
        yield f"  {label:<{width}}{cells}"
    if len(labels) > 1:
        yield f"  {'mean':<{width}}" + "".join(f"  {output_error(totals):12.4f}" for _, totals in columns)
    if exact.raised is not None and exact.foreseen is not None:
        yield (
            "A float approximation ranked the convolutions. Output error in this approximation: "
            f"{output_error(exact.foreseen):.4f} with these convolutions at INT16, "
            f"{output_error(measurement.all_8):.4f} with all convolutions at INT8."
        )
    if not exact.all_16.good(limits):
        yield int16_is_not_enough(limits)


def _on_the_maybes(names: str, exact: Exact | None, limits: Thresholds) -> str:
    if exact is None:
        return (
            f"The rules of thumb are inconclusive. Measure on images (-i) to find out whether {names} "
            "must be raised to INT16."
        )
    if not exact.all_8.good(limits):
        return f"No single convolution causes most of the error. Best candidates for INT16: {names}."
    return f"No INT16 needed. Best candidates for a smaller error: {names}."


def _rules_alone(rows: Sequence[Row]) -> Iterator[str]:
    """Yield how many layers exceed the limits although no rule of thumb applies."""
    past = [row.name for row in rows if not (row.finite and DOCUMENTED.hold(row.cos, row.rmse, row.mse))]
    if past:
        yield (
            f"{len(past)} of {len(rows)} layers have {DOCUMENTED}, but no rule of thumb selects a "
            f"convolution to raise to INT16. Layers: {listed(past, MOST_NAMES)}."
        )
    else:
        yield "No rule of thumb asks for INT16. This does not show that INT8 is enough."
    yield "Measure on images (-i) to know."


def _entry(entry: Advice) -> dict[str, Any]:
    signs = entry.signs
    return {
        "verdict": entry.verdict,
        "reason": entry.reason,
        **asdict(entry.convolution),
        "range": list(signs.limits) if signs.limits else None,
        "levels": signs.levels,
        "rules": {"range": signs.wide, "narrow": signs.narrow, "rmse": signs.spoilt if signs.after else None},
        "row": _row(signs.row),
        "worst_row_after": _row(signs.after),
        "measured": asdict(entry.measured) if entry.measured else None,
    }


def _row(row: Row | None) -> dict[str, Any] | None:
    return None if row is None else {"name": row.name, "cos": row.cos, "rmse": row.rmse, "rise": row.rise}
