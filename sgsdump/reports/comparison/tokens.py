"""Comparison of two trees of many rounds (tokens) on one screen.

The lines list the rounds, then the layers of the first round that differs, then the operators of the first layer that
differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.dataflow import first_difference
from sgsdump.comparison.finding import Finding
from sgsdump.comparison.row import Row, differs, is_rounding
from sgsdump.comparison.verdict import State, named_elsewhere
from sgsdump.dumps.runs import Run
from sgsdump.reports.text import aligned, counted, number, shortened

MOST_ROUNDS, MOST_LAYERS, MOST_OPERATORS = 8, 8, 10
LONGEST = 60


@dataclass(frozen=True)
class ComparedRound:
    """Comparison of a round of both trees.

    where        operator whose argument or weight differs, also outside the modules; else the first operator that
                 differs by more than rounding; else the first that differs; "" if all are equal.
    other_input  first integer input that differs; "" if the programs had equal inputs.
    state        state of the verdict.
    is_outside   whether the cause is outside the modules, before this round.
    """

    run: Run
    compared: int
    differing: int = 0
    beyond: int = 0
    error: float = 0.0
    where: str = ""
    other_input: str = ""
    state: State = "equal"
    is_outside: bool = False

    @property
    def differs(self) -> bool:
        """True if a tensor differs, or an earlier operator outside the modules (``is_outside``)."""
        return bool(self.differing) or self.is_outside


def compared_round(run: Run, comparison: Comparison) -> ComparedRound:
    """Return the comparison of a round: how many tensors differ, how many by more than rounding, the largest error."""
    differing = [row for row in comparison if differs(row)]
    beyond = [row for row in differing if not is_rounding(row)]
    first = first_difference(comparison, beyond_rounding=bool(beyond))
    largest = max((row.error for row in differing), default=0.0)
    outside = next((finding for finding in comparison.causes if finding.kind == "between rounds"), None)
    named = outside or named_elsewhere(comparison.causes, "" if first is None else first.output.name)
    where = _place_of(named) if named is not None else "" if first is None else first.where
    of_round = len(comparison), len(differing), len(beyond), largest, where
    return ComparedRound(run, *of_round, other_input(comparison), comparison.verdict().state, outside is not None)


def _place_of(finding: Finding) -> str:
    if finding.kind == "between rounds":
        return f"{finding.layer}, outside the modules"
    module = finding.facts.get("module")
    of_type = f" ({finding.op_type})" if finding.op_type else ""
    return f"{finding.layer}{of_type}{f' in {module}' if module else ''}"


def other_input(comparison: Comparison) -> str:
    """Return the first integer input (tokens, indices) of the two programs that differs, or ""."""
    found = (finding.layer for finding in comparison.environment if finding.facts["what"] == "inputs")
    return next(found, "")


def first_of(rounds: Sequence[ComparedRound]) -> ComparedRound | None:
    """Return the first round that differs by more than rounding, else the first that differs."""
    return next(
        (each for each in rounds if each.state == "differs"), next((each for each in rounds if each.differs), None)
    )


def round_lines(rounds: Sequence[ComparedRound]) -> Iterator[str]:
    """Yield the number of equal rounds, and a line per round that differs."""
    differing = [each for each in rounds if each.differs]
    yield f"Rounds: {len(rounds)} compared, {len(rounds) - len(differing)} equal in both dumps."
    head = ("round", "compared", "differ", "by more than rounding", "largest error", "first at")
    rows = [
        (*map(str, (each.run, each.compared, each.differing, each.beyond)), number(each.error), _short(each.where))
        for each in differing[:MOST_ROUNDS]
    ]
    yield from _table(head, rows, len(differing), "rounds that differ")


def layer_lines(round: ComparedRound, comparison: Comparison) -> Iterator[str]:
    """Yield the layers of a round that differ, in execution order, and the operators of the first layer."""
    layers: dict[str, list[Row]] = {}
    for row in comparison:
        layers.setdefault(layer_of(row.name), []).append(row)
    bad = {name: [row for row in rows if differs(row)] for name, rows in layers.items()}
    differing = {name: rows for name, rows in bad.items() if rows}
    head = ("layer", "tensors", "differ", "largest error")
    cells = [
        (_short(name), str(len(layers[name])), str(len(rows)), number(max(row.error for row in rows)))
        for name, rows in differing.items()
    ]
    if not differing:
        return
    yield ""
    yield f"Layers of {round.run}: {len(layers)} compared, {len(differing)} not equal in both dumps."
    yield from _table(head, cells[:MOST_LAYERS], len(cells), "layers that differ")
    named = [layer_of(finding.layer) for finding in comparison.causes if finding.kind in ("argument", "cause")]
    beyond = [name for name, rows in differing.items() if any(not is_rounding(row) for row in rows)]
    first = next((name for name in [*named, *beyond, *differing] if name in differing), None)
    if first is not None:
        yield from _operator_lines(first, differing[first])


def _operator_lines(layer: str, rows: Sequence[Row]) -> Iterator[str]:
    made = [row for row in rows if row.io == "out"] or list(rows)
    cells = [
        (_short(row.name.partition("/")[2] or row.name), row.op_type, number(row.error))
        for row in made[:MOST_OPERATORS]
    ]
    yield ""
    yield f"Operators of {layer} whose output differs between the dumps: {len(made)}, in execution order."
    yield from _table(("operator", "type", "error"), cells, len(made), "operators")


def layer_of(name: str) -> str:
    """Return the outermost module or operator of a tensor: the first part of its name."""
    return name.partition("/")[0]


def _inside(row: Row) -> str:
    return row.name.partition("/")[2] or row.name


def diverged_line(rounds: Sequence[ComparedRound], left_out: Sequence[Run]) -> str:
    """Return a sentence if the two programs had different inputs from some round on; else ""."""
    if len(rounds) < 2 or not rounds[-1].other_input or rounds[0].other_input:
        return ""
    last = rounds[-1]
    more = f"; {counted(len(left_out), 'later round')} not compared" if left_out else ""
    if last.is_outside:
        later = f"; {counted(len(left_out), 'later round')} not compared" if left_out else ""
        return f"From {last.run} on, the programs had different inputs ({_short(last.other_input)}){later}."
    return (
        f"From {last.run} on, the programs had different inputs ({_short(last.other_input)}), for example because an "
        f"earlier token differs. Later differences are not errors{more}."
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], count: int, noun: str) -> Iterator[str]:
    if rows:
        yield from (f"  {line}" for line in aligned([head, *rows]))
    if len(rows) < count:
        yield f"  … {count - len(rows)} more {noun}"


def _short(text: str) -> str:
    return shortened(text, LONGEST)


def all_lines(
    rounds: Sequence[ComparedRound], detailed: tuple[ComparedRound, Comparison] | None, left_out: Sequence[Run]
) -> Iterable[str]:
    """Yield all lines."""
    yield from round_lines(rounds)
    if detailed is not None:
        yield from layer_lines(*detailed)
    yield ""
    if line := diverged_line(rounds, left_out):
        yield line
