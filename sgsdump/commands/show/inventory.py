"""``sgsdump show DUMP``: a line for each tensor, or for each run of a tree."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sgsdump.dumps.dump import Dump
    from sgsdump.dumps.runs import Run


def show_runs(runs: Sequence[Run], notes: Sequence[str], args: argparse.Namespace) -> int:
    """What there is to choose from in a tree of several runs."""
    from sgsdump.dumps.trees import how_to_choose_of
    from sgsdump.files.escaping import for_terminal
    from sgsdump.reports.dump import runs_table

    print(for_terminal(runs_table.render(runs)), end="")
    print(for_terminal(f"{len(runs)} runs; {how_to_choose_of(args.dump, runs, args.step, args.rank)}"))
    for note in notes:
        print(for_terminal(f"note: {note}"))
    return 0


def show_tensors(dump: Dump, args: argparse.Namespace) -> int:
    from sgsdump.commands.terminal import TERMINAL
    from sgsdump.dumps.dump import selected
    from sgsdump.dumps.inventory import inventory
    from sgsdump.files.atomic_write import replace_text
    from sgsdump.files.escaping import for_terminal
    from sgsdump.progress import each
    from sgsdump.reports.dump import inventory_csv, inventory_json, inventory_table

    chosen = {id(record) for record in selected(dump.records, args.select)}
    places = [(number, record) for number, record in enumerate(dump.records) if id(record) in chosen]
    items = list(inventory(each(TERMINAL, places, "show", "tensor", len(places))))
    if args.csv:
        replace_text(args.csv, inventory_csv.render(items))
    if args.json:
        replace_text(args.json, inventory_json.render(items, dump.notes))
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print(for_terminal(inventory_table.render(items, width)), end="")
    among = f" of {len(dump.records)}" if args.select else ""
    print(f"{len(items)}{among} tensor{'' if len(items) == 1 else 's'}, {dump.format}")
    for note in dump.notes:
        print(for_terminal(f"note: {note}"))
    return 1 if any(item.damaged for item in items) else 0
