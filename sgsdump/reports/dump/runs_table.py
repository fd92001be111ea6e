"""The runs of a tree as text, a line each: step, rank, graph, and the folder below the tree."""

from __future__ import annotations

from collections.abc import Sequence

from sgsdump.dumps.runs import Run
from sgsdump.files.escaping import shown

_HEAD = ("step", "rank", "graph", "folder")


def render(runs: Sequence[Run]) -> str:
    rows = [_HEAD, *(_row(run) for run in runs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)
    return "".join(f"{line}\n" for line in lines)


def _row(run: Run) -> tuple[str, ...]:
    numbers = ("-" if number is None else str(number) for number in (run.step, run.rank))
    return (*numbers, shown(run.graph) or "-", shown(run.place))
