"""The log of a repair, round by round, for a person to read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.metrics import cos
from sgsdump.comparison.row import Row
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.tuning.advice import holds
from sgsdump.tuning.repair import Change, Repair, Round
from sgsdump.tuning.sensitivity_analysis import Totals, error_of

MOST_JUMPS = 3


def render(head: Sequence[str], rounds: Sequence[str], tail: Sequence[str]) -> str:
    """The whole log: what was done on what, every round (``render_round``), and how it ended."""
    return "\n".join(["".join(f"{line}\n" for line in head), *rounds, "".join(f"{line}\n" for line in tail)])


def render_round(made: Round, limits: Thresholds, repair: Repair) -> str:
    return "".join(f"{line}\n" for line in _lines(made, limits, repair))


def end_lines(repair: Repair, limits: Thresholds) -> Iterator[str]:
    """Why it ended, the final round, and what every convolution at INT16 would give."""
    yield f"Ended: {repair.ended}."
    yield f"Final: round {repair.best.number}."
    yield from _plan(repair.best, repair)
    yield from _outputs(repair.best.run.outputs, limits, repair.logits)
    if repair.measured:
        yield "For comparison, every convolution at INT16:"
        yield from (f"  {line}" for line in _outputs(repair.measured.all_16, limits, repair.logits))


def _lines(made: Round, limits: Thresholds, repair: Repair) -> Iterator[str]:
    yield f"Round {made.number}: {_title(made)}"
    for word, changes in (("raised", made.raised), ("lowered", made.lowered)):
        yield from (f"  {word} {_change(change, repair)}" for change in changes)
    yield from (f"  {line}" for line in _plan(made, repair))
    yield from (f"  {line}" for line in _outputs(made.run.outputs, limits, repair.logits))
    yield from (f"  {line}" for line in _layers(made.run.layers, limits))
    yield f"  {'kept' if made.kept else 'undone'}: {made.verdict}"


def _plan(made: Round, repair: Repair) -> Iterator[str]:
    names = (_readable(repair.shown(name)) for name in made.tensor_arrays)
    yield f"INT16: {', '.join(names) or 'nothing in tensor_arrays'}"
    yield (
        f"{len(made.wide)} of {len(made.run.plan.weights)} convolutions at INT16; weights {made.run.weight_bytes:,} "
        f"bytes, {made.run.rate:.3f} of all at 16 bits"
    )


def _outputs(outputs: Totals, limits: Thresholds, logits: Collection[str]) -> Iterator[str]:
    for name, sums in outputs.items():
        state = "" if holds({name: sums}, limits) else f"   past {limits}"
        into = " (into Softmax)" if name in logits else ""
        yield f"output {_readable(name)}{into}: COS {cos(sums):f}, RMSE {error_of(sums):f}{state}"


def _title(made: Round) -> str:
    if made.raised:
        return f"raise {len(made.raised)} to INT16"
    return f"lower {len(made.lowered)} again" if made.lowered else "as input_config.ini says"


def _change(change: Change, repair: Repair) -> str:
    readers = ", ".join(map(_readable, change.convolutions))
    return f"{_readable(repair.shown(change.tensor))} (read by {readers}): {change.why}"


def _layers(layers: Comparison, limits: Thresholds) -> Iterator[str]:
    worst = layers.worst
    if worst is None:
        return
    yield (
        f"{len(layers.past(limits))} of {len(layers.rows)} layers have {limits}; the worst is {_label(worst)}: "
        f"COS {worst.cos:f}, RMSE {worst.rmse:f}"
    )
    before = {row.name: row for row in layers.alike}
    for row in layers.jumps[:MOST_JUMPS]:
        feeding = max((before[name].error for name in row.sources if name in before), default=0.0)
        yield f"RMSE rises at {_label(row)}: from {feeding:f} to {row.error:f}"


def _label(row: Row) -> str:
    return f"{row.op_index}.{_readable(row.name)}" + (f" ({row.op_type})" if row.op_type else "")


def _readable(text: str) -> str:
    return text if text.isprintable() else repr(text)
