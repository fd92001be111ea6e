"""The rounds of ``tune --first`` as a log, and as JSON in full precision."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.metrics import cos
from sgsdump.comparison.row import Row
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.dumps.tables import data_frame
from sgsdump.files.escaping import shown
from sgsdump.files.json_yaml import json_text
from sgsdump.fixedpoint.quantisation.objective import Totals, error_of
from sgsdump.fixedpoint.reports.worth import worth_document
from sgsdump.fixedpoint.tuning.advice import holds
from sgsdump.fixedpoint.tuning.rounds import Change, Round, RoundSearch
from sgsdump.fixedpoint.tuning.worth import Worths
from sgsdump.reports.remarks import error_before

MOST_JUMPS = 3


def rounds_log(head: Sequence[str], rounds: Sequence[str], tail: Sequence[str]) -> str:
    """Return the whole log: head, every round (``render_round``), and ending."""
    return "\n".join(["".join(f"{line}\n" for line in head), *rounds, "".join(f"{line}\n" for line in tail)])


def render_round(turn: Round, limits: Thresholds, search: RoundSearch) -> str:
    return "".join(f"{line}\n" for line in _round_lines(turn, limits, search))


def end_lines(search: RoundSearch, limits: Thresholds) -> Iterator[str]:
    """Yield why the search ended, the final round, and the outputs with every convolution at INT16."""
    yield f"Ended: {search.ended}."
    yield f"Final: round {search.best.number}."
    before = search.before_lowering
    if before is not None:
        yield (
            f"Round {before.number}: the weights take {before.run.rate:.3f} of their INT16 size, and "
            f"the output error is {before.error:.6f}. After some convolutions were lowered to INT8, "
            f"the weights take {search.best.run.rate:.3f} of their INT16 size. The output error is "
            f"then {search.best.error:.6f}, within the limits."
        )
    yield from _plan_lines(search.best, search)
    yield from _outputs(search.best.run.outputs, limits, search.logits)
    if search.measured:
        yield "For comparison, every convolution at INT16:"
        yield from (f"  {line}" for line in _outputs(search.measured.all_16, limits, search.logits))


def rounds_json(
    facts: Mapping[str, Any],
    rounds: Sequence[Round],
    search: RoundSearch,
    limits: Thresholds,
    worths: Worths | None = None,
) -> str:
    """Return the rounds as JSON; ``facts`` on the command and its inputs come first."""
    document = {
        "format": "sgsdump repair",
        "version": 1,
        **facts,
        "min_cos": limits.min_cos,
        "max_rmse": limits.max_rmse,
        "rounds": [_round(turn, limits) for turn in rounds],
        "final_round": search.best.number,
        "thresholds_hold": search.best.holds,
        "tensor_arrays": list(search.config_names(search.best.tensor_arrays)),
        "ended": search.ended,
    }
    return json_text(document if worths is None else {**document, "worth": worth_document(worths)})


def rounds_frame(rounds: Sequence[Round], limits: Thresholds) -> Any:
    """Return a pandas DataFrame with one row per round. Raises MissingExtra without pandas."""
    columns = "round raised lowered int16_convolutions weight_bytes rate output_error layers_past thresholds_hold kept"
    lines = [[_round(turn, limits)[name] for name in columns.split()] for turn in rounds]
    counted = [[len(cell) if isinstance(cell, list) else cell for cell in line] for line in lines]
    return data_frame(counted, columns.split())


def _round_lines(turn: Round, limits: Thresholds, search: RoundSearch) -> Iterator[str]:
    yield f"Round {turn.number}: {_title(turn)}"
    for word, changes in (("raised", turn.raised), ("lowered", turn.lowered)):
        yield from (f"  {word} {_change(change, search)}" for change in changes)
    yield from (f"  {line}" for line in _plan_lines(turn, search))
    yield from (f"  {line}" for line in _outputs(turn.run.outputs, limits, search.logits))
    yield from (f"  {line}" for line in _layers(turn.run.layers, limits))
    yield f"  {'kept' if turn.kept else 'undone'}: {turn.verdict}"


def _plan_lines(turn: Round, search: RoundSearch) -> Iterator[str]:
    names = (shown(search.shown(name)) for name in turn.tensor_arrays)
    yield f"INT16: {', '.join(names) or 'nothing in tensor_arrays'}"
    yield (
        f"{len(turn.wide)} of {len(turn.run.plan.weights)} convolutions are at INT16; the weights "
        f"take {turn.run.weight_bytes:,} bytes, {turn.run.rate:.3f} of their INT16 size"
    )


def _outputs(outputs: Totals, limits: Thresholds, logits: Collection[str]) -> Iterator[str]:
    for name, sums in outputs.items():
        state = "" if holds({name: sums}, limits) else f"   has {limits}"
        into = " (into Softmax)" if name in logits else ""
        yield f"output {shown(name)}{into}: COS {cos(sums):f}, RMSE {error_of(sums):f}{state}"


def _title(turn: Round) -> str:
    if turn.raised:
        return f"raise {len(turn.raised)} to INT16"
    return f"lower {len(turn.lowered)} again" if turn.lowered else "as input_config.ini says"


def _change(change: Change, search: RoundSearch) -> str:
    readers = ", ".join(map(shown, change.convolutions))
    return f"{shown(search.shown(change.tensor))} (read by {readers}): {change.why}"


def _layers(layers: Comparison, limits: Thresholds) -> Iterator[str]:
    worst = layers.worst
    if worst is None:
        return
    yield (
        f"{len(layers.past(limits))} of {len(layers.rows)} layers have {limits}; the worst layer is "
        f"{_label(worst)}, with COS {worst.cos:f} and RMSE {worst.rmse:f}"
    )
    for row in layers.jumps[:MOST_JUMPS]:
        yield (
            f"RMSE rises at {_label(row)}: from {error_before(row, layers):f} in the layers that feed "
            f"this layer to {row.error:f} in its output"
        )


def _label(row: Row) -> str:
    return f"{row.op_index}.{shown(row.name)}" + (f" ({row.op_type})" if row.op_type else "")


def _round(turn: Round, limits: Thresholds) -> dict[str, Any]:
    layers = turn.run.layers
    return {
        "round": turn.number,
        "raised": [asdict(change) for change in turn.raised],
        "lowered": [asdict(change) for change in turn.lowered],
        "tensor_arrays": list(turn.tensor_arrays),
        "int16_convolutions": list(turn.wide),
        "weight_bytes": turn.run.weight_bytes,
        "rate": turn.run.rate,
        "outputs": {name: {"cos": cos(sums), "rmse": error_of(sums)} for name, sums in turn.run.outputs.items()},
        "output_error": turn.error,
        "layers": len(layers.rows),
        "layers_past": len(layers.past(limits)),
        "worst_layer": _row(layers.worst) if layers.worst else None,
        "rmse_rises_at": [_row(row) for row in layers.jumps],
        "thresholds_hold": turn.holds,
        "kept": turn.kept,
        "verdict": turn.verdict,
    }


def _row(row: Row) -> dict[str, Any]:
    return {"name": row.name, "op_type": row.op_type, "cos": row.cos, "rmse": row.rmse, "rise": row.rise}
