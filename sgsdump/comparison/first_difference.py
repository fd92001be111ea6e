"""The first operator whose output differs: with what its inputs differ by, and what it adds itself.

Rows stand in the order in which the benchmark's operators ran. An operator within a module is before the module, so the
innermost one that differs is named. Two runs of one program on two devices differ everywhere by rounding; what is past
the thresholds is told beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sgsdump.comparison.row import Row


@dataclass(frozen=True)
class Difference:
    """``output`` is the row that differs first; ``inputs`` are those of the operator's compared inputs.

    own  the output's error less the largest of its inputs' (RMSE; infinite for NaN or Inf that one side has alone).
    """

    output: Row
    inputs: tuple[Row, ...]

    @property
    def own(self) -> float:
        return self.output.rise

    def __str__(self) -> str:
        """``output RMSE 0.01, inputs equal (a/input_0), own error 0.01``"""
        apart = [row for row in self.inputs if differs(row)]
        told = f"{_side(self.output)} {_error(self.output)}"
        if not self.inputs:
            return told
        if not apart:
            return f"{told}, inputs equal, own error {self.own:.3g}"
        told += f", inputs {', '.join(f'{row.name} {_error(row)}' for row in apart)}"
        return f"{told}, own error {max(self.own, 0.0):.3g}"


def differs(row: Row) -> bool:
    """Whether both sides are not equal; NaN and Inf in the same places are."""
    return bool(row.error and (row.finite or row.odd_apart))


def first_difference(rows: Iterable[Row]) -> Difference | None:
    """The first operator whose output differs; where none does, the first input; None where all is equal."""
    rows = tuple(rows)
    apart = [row for row in rows if differs(row) and not row.misnamed]
    first = next((row for row in apart if row.io == "out"), next(iter(apart), None))
    if first is None:
        return None
    feeding = {row.name: row for row in rows if row.io == "in"}
    return Difference(first, tuple(feeding[name] for name in first.sources if name in feeding))


def _side(row: Row) -> str:
    return "output" if row.io == "out" else "input"


def _error(row: Row) -> str:
    if row.statistics:
        return f"apart by {row.error:.3g}"
    return f"RMSE {row.rmse:.3g}" if row.finite else f"NaN or Inf in {row.odd_apart} places of one side"
