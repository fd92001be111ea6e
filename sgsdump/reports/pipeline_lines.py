"""What the pipeline prints at the end of a run: what was drawn at random, what was not dumped, where the files are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sgsdump.dumps.formats.sdaa.dump_info import InputEntry, OutputEntry
from sgsdump.files.escaping import shown
from sgsdump.pipeline.bisection import Bisection, Tried, tried_line


def random_lines(inputs: Sequence[InputEntry]) -> list[str]:
    """How the random inputs were drawn, so that they are not taken for the user's own."""
    return [
        f"input {shown(entry.name)} is random: seed {entry.seed}, from {entry.low} to {entry.high}"
        for entry in inputs
        if not entry.use_external
    ]


def summary_lines(outputs: Sequence[OutputEntry], folder: Path) -> list[str]:
    """How many tensors were dumped, what was not and why, what is not finite, and where the files are."""
    dumped = [entry for entry in outputs if entry.error is None]
    lines = [
        f"{'failed' if entry.failed else 'not dumped'}: {shown(entry.name)}{_operator(entry)}: {entry.error}"
        for entry in outputs
        if entry.error is not None
    ]
    for entry in dumped:
        if entry.facts and (entry.facts.has_nan or entry.facts.has_inf):
            what = " and ".join(["NaN"] * entry.facts.has_nan + ["Inf"] * entry.facts.has_inf)
            lines.append(f"not finite: {shown(entry.name)}: holds {what}")
    failed = sum(entry.failed for entry in outputs)
    lost = len(outputs) - len(dumped) - failed
    counts = [
        f"{len(dumped)} dumped",
        *([f"{lost} not dumped"] if lost else []),
        *([f"{failed} failed"] if failed else []),
    ]
    return [*lines, f"{folder}: {len(outputs)} tensor{'s' * (len(outputs) != 1)}, {', '.join(counts)}"]


def bisection_lines(bisection: Bisection, threshold: float) -> list[str]:
    """The first tensor that differs and what it is made from; or that none was found."""
    cost = f"{len(bisection.tried)} of {bisection.in_all} tensors tried"
    if bisection.first is None:
        lines = [
            f"given by neither executor: {shown(each.name)}: {shown(each.missing.reason)}"
            for each in bisection.failed
            if each.missing
        ]
        what = "no other tensor differs" if lines else "no tensor differs"
        return [*lines, f"{what} by more than {threshold:g}, max|difference| / max|value| ({cost})"]
    first = bisection.first
    node = f"node {first.node}, " if first.node else ""
    inputs = ", ".join(_tried(each) for each in first.inputs) or "the model's inputs only"
    what = f"max|difference| / max|value| is {first.difference:.3g}, over {threshold:g}"
    if first.missing:
        what = f"executor {first.missing.executors[0]} does not give it: {shown(first.missing.reason)}"
    return [
        f"first difference: {shown(first.name)} ({node}{first.op_type}): {what} ({cost})",
        f"made from: {inputs}",
    ]


def _tried(each: Tried) -> str:
    return tried_line(each.name, each.difference, each.missing.executors if each.missing else ()).removeprefix("tried ")


def _operator(entry: OutputEntry) -> str:
    return f" ({entry.op_type})" if entry.op_type else ""
