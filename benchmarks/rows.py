"""The rows of the table of figures: what was measured, the floor it is held against, their ratio, and the aim."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

# A file that ``table.py`` names here gets the rows too, a JSON object in each line.
COLLECT = "SGSDUMP_BENCHMARK_ROWS"


@dataclass(frozen=True)
class Row:
    """``figure`` and ``floor`` in the same unit; ``aim``: the ratio of the two that was set as the goal."""

    name: str
    figure: float
    floor: float
    aim: float | None = None
    unit: str = "s"

    @property
    def ratio(self) -> float:
        return self.figure / self.floor if self.floor else float("inf")


def show(rows: Iterable[Row]) -> None:
    """Print the rows as a table, and hand them to ``table.py`` where it asked for them."""
    rows = list(rows)
    width = max(len(row.name) for row in rows)
    print(f"{'':{width}}{'figure':>12}{'floor':>12}  {'':5}{'ratio':>8}{'aim':>8}")
    for row in rows:
        aim = "" if row.aim is None else f"{row.aim:g}"
        print(f"{row.name:{width}}{row.figure:12.4g}{row.floor:12.4g}  {row.unit:5}{row.ratio:8.2f}{aim:>8}")
    if collect := os.environ.get(COLLECT):
        with Path(collect).open("a") as file:
            file.writelines(json.dumps(asdict(row)) + "\n" for row in rows)


def is_short_with_torch(text: str) -> bool | None:
    """Whether the command line asks for the short setting of a benchmark that needs torch; None, and a word to the
    user, where that is not installed. ``text``: what ``--help`` says."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    short: bool = parser.parse_args().short
    if importlib.util.find_spec("torch") is None:
        print("torch is not installed (pip install torch): nothing to measure")
        return None
    return short
