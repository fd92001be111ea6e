"""The log of a repair, round by round, for a person to read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from sgsdump.blame import error_of
from sgsdump.comparison import Comparison
from sgsdump.metrics.cos import cos
from sgsdump.repair import Change, Round
from sgsdump.row import Row
from sgsdump.thresholds import Thresholds

MOST_JUMPS = 3


def render(head: Sequence[str], rounds: Sequence[str], tail: Sequence[str]) -> str:
    """The whole log: what was done on what, every round (``render_round``), and how it ended."""
    return "\n".join(["".join(f"{line}\n" for line in head), *rounds, "".join(f"{line}\n" for line in tail)])


def render_round(made: Round, limits: Thresholds, logits: Collection[str]) -> str:
    return "".join(f"{line}\n" for line in _lines(made, limits, logits))


def plan_lines(made: Round) -> Iterator[str]:
    """Which tensors are in tensor_arrays, how many convolutions are INT16 and what the weights take."""
    yield f"INT16: {', '.join(map(_readable, made.tensor_arrays)) or 'nothing in tensor_arrays'}"
    yield (
        f"{len(made.wide)} of {len(made.run.plan.weights)} convolutions at INT16; weights {made.run.weight_bytes:,} "
        f"bytes, {made.run.rate:.3f} of all at 16 bits"
    )


def output_lines(made: Round, limits: Thresholds, logits: Collection[str]) -> Iterator[str]:
    """COS and RMSE of every judged output, over all pictures."""
    for name, sums in made.run.outputs.items():
        value, error = cos(sums), error_of(sums)
        state = "" if limits.hold(value, error, 0.0 if sums.dd == 0 else 1.0) else f"   past {limits}"
        into = " (into Softmax)" if name in logits else ""
        yield f"output {_readable(name)}{into}: COS {value:f}, RMSE {error:f}{state}"


def _lines(made: Round, limits: Thresholds, logits: Collection[str]) -> Iterator[str]:
    yield f"Round {made.number}: {_title(made)}"
    for word, changes in (("raised", made.raised), ("lowered", made.lowered)):
        yield from (f"  {word} {_change(change)}" for change in changes)
    yield from (f"  {line}" for line in plan_lines(made))
    yield from (f"  {line}" for line in output_lines(made, limits, logits))
    yield from (f"  {line}" for line in _layers(made.run.layers, limits))
    yield f"  {'kept' if made.kept else 'undone'}: {made.verdict}"


def _title(made: Round) -> str:
    if made.raised:
        return f"raise {len(made.raised)} to INT16"
    return f"lower {len(made.lowered)} again" if made.lowered else "as input_config.ini says"


def _change(change: Change) -> str:
    readers = ", ".join(map(_readable, change.convolutions))
    return f"{_readable(change.tensor)} (read by {readers}): {change.why}"


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
