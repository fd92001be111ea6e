"""Summary lines of a pipeline run and of a bisection."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sgsdump.dumps.formats.sdaa.dump_info import InputEntry, OutputEntry
from sgsdump.errors import listed
from sgsdump.files.escaping import shown
from sgsdump.pipeline.bisection import Bisection, Tried, tried_line
from sgsdump.pipeline.whole_run import WholeRun
from sgsdump.reports.text import counted

_LISTED = 5


def random_lines(inputs: Sequence[InputEntry]) -> list[str]:
    """Return how the random inputs were drawn, so that they are not mistaken for user data."""
    return [
        f"input {shown(entry.name)} is random: seed {entry.seed}, from {entry.low} to {entry.high}"
        for entry in inputs
        if not entry.use_external
    ]


def summary_lines(outputs: Sequence[OutputEntry], folder: Path) -> list[str]:
    """Return the numbers of dumped tensors, the reasons for missing ones, tensors with NaN or Inf, and the folder."""
    lines, dumped, failed = [], 0, 0
    for entry in outputs:
        if entry.error is None:
            dumped += 1
            continue
        failed += entry.failed
        operator = f" ({entry.op_type})" if entry.op_type else ""
        lines.append(f"{'failed' if entry.failed else 'not dumped'}: {shown(entry.name)}{operator}: {entry.error}")
    for entry in outputs:
        if entry.error is None and entry.facts and (entry.facts.has_nan or entry.facts.has_inf):
            kinds = ["NaN"] * entry.facts.has_nan + ["Inf"] * entry.facts.has_inf
            lines.append(f"not finite: {shown(entry.name)}: holds {' and '.join(kinds)}")
    skipped = len(outputs) - dumped - failed
    numbers = [(dumped, "dumped"), (skipped, "not dumped"), (failed, "failed")]
    summary = ", ".join(f"{number} {state}" for number, state in numbers if number or state == "dumped")
    return [*lines, f"{folder}: {counted(len(outputs), 'tensor')}, {summary}"]


def whole_run_lines(whole: WholeRun) -> list[str]:
    """Return lines on outputs that differ when the whole model runs at once; none if they agree."""
    if whole.failed:
        return [f"the whole model in one run was not compared: {whole.failed}"]
    if whole.agrees:
        return []
    outputs = listed([f"{shown(name)} by {by:.3g}" for name, by in whole.differing.items()], _LISTED)
    lines = [f"outputs of the whole model in one run differ from this dump (max|difference| / max|value|): {outputs}"]
    if whole.fused:
        first, *more = whole.fused
        others = f"; then {listed([shown(error.name) for error in more], _LISTED)}" if more else ""
        lines.append(
            f"wrong only when fused: {shown(first.name)} ({first.op_type}), own error {first.error:.3g}{others}"
        )
    return lines


def bisection_lines(bisection: Bisection, threshold: float) -> list[str]:
    """Return the first differing tensor and its inputs, or that none was found and how many were not checked."""
    first = bisection.first
    if first is None:
        return [*_given_by_neither(bisection), _none_differs(bisection, threshold)]
    node = f"node {first.node}, " if first.node else ""
    inputs = ", ".join(map(_input_text, first.inputs)) or "the model's inputs only"
    figure = "max|difference| / max|value|"
    difference = f"{figure} is {first.difference:.3g}, over {threshold:g}"
    if first.side:
        difference = f"{first.side} computes it incorrectly from correct inputs: {difference}"
    if first.missing:
        difference = (
            f"executor {first.missing.executors[0]} does not compute this tensor: {shown(first.missing.reason)}"
        )
    lines = [
        f"first difference: {shown(first.name)} ({node}{first.op_type}): {difference} ({_cost(bisection)})",
        f"computed from: {inputs}",
    ]
    if bisection.fused:
        lines.append(
            "wrong only when fused: correct if every tensor of the segment is an output (--mode isolated dumps the "
            "error)"
        )
    if bisection.others:
        lines.append(
            f"also computed incorrectly from correct inputs: {listed(list(map(shown, bisection.others)), _LISTED)}"
        )
    return lines


def _given_by_neither(bisection: Bisection) -> list[str]:
    return [
        f"computed by neither executor: {shown(tried.name)}: {shown(tried.missing.reason)}"
        for tried in bisection.failed
        if tried.missing
    ]


def _none_differs(bisection: Bisection, threshold: float) -> str:
    limit = f"by more than {threshold:g} (max|difference| / max|value| of a channel)"
    unseen = bisection.in_all - bisection.looked_at
    if bisection.looked_at > len(bisection.tried):
        none = f"no operator differs beyond rounding {limit}: {counted(bisection.looked_at, 'tensor')} checked"
        return f"{none}, {unseen} not computed by both" if unseen > 0 else f"{none} (all)"
    none = f"none of the {len(bisection.tried)} tensors tried differs {limit}"
    return f"{none}; {unseen} not checked" if unseen > 0 else none


def _cost(bisection: Bisection) -> str:
    if bisection.looked_at > len(bisection.tried):
        return f"{bisection.looked_at} of {bisection.in_all} tensors checked"
    return f"{len(bisection.tried)} of {bisection.in_all} tensors tried"


def _input_text(tried: Tried) -> str:
    executors = tried.missing.executors if tried.missing else ()
    return tried_line(tried.name, tried.difference, executors).removeprefix("tried ")
