"""What ``sgsdump compare`` prints: a table as wide as the window on a terminal, the vendor's lines into a pipe."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sgsdump.commands.compare.files import listing_of
from sgsdump.commands.terminal import window
from sgsdump.files.escaping import for_terminal

if TYPE_CHECKING:
    from sgsdump.comparison.comparison import Comparison
    from sgsdump.comparison.golden import GoldenComparison
    from sgsdump.comparison.row import Row
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.reports.layers.table import LayerTable


def print_comparison(
    args: argparse.Namespace,
    comparison: Comparison,
    thresholds: Thresholds,
    table: LayerTable,
    lines: Sequence[str],
) -> None:
    """The layers that are listed, the verdict, ``lines`` and the readers' notes."""
    from sgsdump.dumps.dump import note_lines
    from sgsdump.reports.comparison import REPORTS
    from sgsdump.reports.comparison.verdict import verdict_lines

    places = listing_of(args).places(table.compared)
    rows = tuple(comparison.rows[place] for place in places)
    notes = [
        *note_lines(args.sample, comparison.sample_notes),
        *note_lines(args.benchmark, comparison.benchmark_notes),
    ]
    few = _few(len(rows), len(comparison.rows))
    if window() is not None:
        _print_table(table, places)
        _print_fitted([*few, *_remarks(rows), ""])
        _print_fitted([*verdict_lines(comparison, thresholds), *lines, *notes])
        return
    text = REPORTS["sdk_table"](replace(comparison, rows=rows), thresholds)
    text += "".join(f"{line}\n" for line in few)
    print(for_terminal(f"{text}\n" if text else ""), end="")
    print(for_terminal(REPORTS["verdict"](comparison, thresholds)), end="")
    print(for_terminal("".join(f"{line}\n" for line in (*lines, *notes))), end="")


def print_golden(
    args: argparse.Namespace, comparison: GoldenComparison, table: LayerTable, lines: Sequence[str]
) -> None:
    """The tensors that are listed with what is not on all sides, and ``lines``."""
    from sgsdump.reports.golden import log
    from sgsdump.reports.terminal.window import remark_lines

    places = listing_of(args).places(table.compared)
    if window() is not None:
        _print_table(table, places)
        entries = [table.compared[place] for place in places]
        _print_fitted(
            [
                *_few(len(places), len(table.compared)),
                *remark_lines((e.name, e.remark) for e in entries if e.remark),
                "",
            ]
        )
        _print_fitted(table.verdict)
        _print_fitted(remark_lines((entry.name, entry.remark) for entry in table.left_out))
    else:
        print(for_terminal(log.render(comparison)), end="")
    _print_fitted(lines)


def _few(listed: int, compared: int) -> list[str]:
    return [f"{listed} of {compared} compared layers are listed."] if listed < compared else []


def _remarks(rows: Iterable[Row]) -> Iterator[str]:
    """Of the rows listed, without those that the verdict tells of by itself."""
    from sgsdump.reports.comparison.base import why
    from sgsdump.reports.terminal.window import remark_lines

    remarks = ((row.name, why(row)) for row in rows if row.finite and not row.misnamed)
    yield from remark_lines((name, remark) for name, remark in remarks if remark)


def _print_table(table: LayerTable, places: Sequence[int]) -> None:
    from sgsdump.reports.terminal.layer_table import render

    terminal = window()
    if terminal is not None:
        print(render([table.compared[place] for place in places], terminal), end="")


def _print_fitted(lines: Iterable[str]) -> None:
    """Within the window on a terminal; else as they are."""
    terminal = window()
    for line in lines:
        for part in terminal.fitted(line) if terminal else (for_terminal(line),):
            print(part)
