"""Rounding floor of two float runs, and the layers that leave it.

Two float runs of one model agree up to rounding: each type has a bound, and the error of a layer is about that of the
layers that feed it. A layer leaves the floor if its error exceeds ten times both, and ``SURE``. For two fixed models
the floor is one integer step. The floor is known if some layers stay on it: one layer if the data flow is known,
``SETTLED`` layers in file order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sgsdump.comparison.naming.network import only_moves
from sgsdump.comparison.row import SURE, Row, differs, is_rounding, rounding_bound

FACTOR = 10  # multiple of the floor above which a layer leaves it
SETTLED = 3  # layers that must stay on the floor before one leaves it, if only the file's order is known


@dataclass(frozen=True)
class Departure:
    """Layer that leaves the floor; ``before`` is the largest relative error of the layers that feed it."""

    row: Row
    before: float


def departures(rows: Sequence[Row], by_flow: bool) -> list[Departure]:
    """Return the layers that leave the floor and inherit from no other such layer, in file order.

    Parameters
    ----------
    rows
        Compared rows with the same tensor on both sides, in file order.
    by_flow
        Whether ``Row.sources`` lists the layers that feed a row. Otherwise only the first such row is returned, and all
        rows before it count as its sources.
    """
    outputs = [row for row in rows if row.io == "out" and row.op_type != "Data"]
    if any(row.step for row in outputs):
        return []  # with a quantised side, every layer differs
    if not any(_holds(row) for row in outputs):
        return []  # no layer shows how far the two runs agree
    # an input that no compared operator produced, such as a weight, inherits nothing and is reported by itself
    errors = {row.name: row.error for row in rows if row.io == "out" or row.sources}
    leaving: dict[str, Departure] = {}
    level, settled = 0.0, 0
    for row in outputs:
        before = max((errors[name] for name in row.sources if name in errors), default=0.0) if by_flow else level
        if _is_beyond(row, FACTOR * max(before, rounding_bound(row), SURE / FACTOR)):
            leaving.setdefault(row.name, Departure(row, before))
            if not by_flow:
                return list(leaving.values()) if settled >= SETTLED else []
        level = max(level, row.error)
        settled += _holds(row)
    upstream = {row.name: row.sources for row in rows}
    return [departure for departure in leaving.values() if not is_fed_by(departure.row, leaving, upstream)]


def is_fed_by(row: Row, names: Mapping[str, object] | set[str], sources: Mapping[str, Sequence[str]]) -> bool:
    """Return whether one of these names is anywhere upstream of the row."""
    seen, waiting = {row.name}, list(row.sources)
    while waiting:
        name = waiting.pop()
        if name in names and name != row.name:
            return True
        if name not in seen:
            seen.add(name)
            waiting.extend(sources.get(name, ()))
    return False


def _holds(row: Row) -> bool:
    """Return whether a computed layer agrees as in two runtimes; operators that only move values show nothing."""
    return not only_moves(row.op_type) and row.indices is None and not _is_beyond(row, SURE)


def _is_beyond(row: Row, least: float) -> bool:
    """Return whether a row differs by more than rounding and ``least``; for two fixed models, by over one step."""
    if row.integers is not None and not row.integers.is_hidden:
        integers = row.integers
        return bool(integers.unlike) or (integers.differing > 0 and (integers.largest is None or integers.largest > 1))
    return differs(row) and not is_rounding(row) and row.error > least
