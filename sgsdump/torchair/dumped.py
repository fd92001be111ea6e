"""What is taken of each operator while a graph runs: its inputs and outputs, or their statistics; of all that are
chosen, or of those whose output overflows."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sgsdump.dumps.formats.ascend.ascend_stats import ENDING, Row, table
from sgsdump.dumps.formats.ascend.file_names import file_name
from sgsdump.dumps.formats.ascend.operator_dump import Payload, has_type, write_operator, write_whole
from sgsdump.tensors.statistics import Statistics
from sgsdump.torchair.blacklist import Places
from sgsdump.torchair.log import logger
from sgsdump.torchair.operators import Operator
from sgsdump.torchair.plan import Plan
from sgsdump.torchair.tree import Step
from sgsdump.torchair.unwritten import NotWritten
from sgsdump.torchair.values import (
    KnownStatistics,
    dtype_name,
    facts,
    overflows,
    payload,
    state,
    statistics,
)

STREAM = 0
State = tuple[int, int]
Written = dict[tuple[str, tuple[str, ...]], tuple[State, Path]]


class Earlier:
    """What earlier steps of a graph left. ``weights``: where each was written last, with these statistics or as it is,
    and what it was then: an unchanged one is linked there."""

    def __init__(self) -> None:
        self.weights: Written = {}
        self.statistics = KnownStatistics()


class Dumped:
    """``before`` and ``after`` are called around each operator of a run.

    left_out  inputs and outputs of nodes that are not dumped.
    """

    def __init__(self, plan: Plan, step: Step, nodes: frozenset[str], left_out: Mapping[str, Places], earlier: Earlier):
        self._plan = plan
        self._step = step
        self._nodes = nodes
        self._left_out = left_out
        self._earlier = earlier
        self._on_overflow = plan.control.scene == "overflow"
        mode = "all" if self._on_overflow else plan.control.mode
        self._inputs, self._outputs = mode != "output", mode != "input"

    def before(self, operator: Operator, inputs: Sequence[Any]) -> Sequence[Any]:
        """Its inputs, copied where it may write into them."""
        if not self._inputs or operator.node not in self._nodes:
            return ()
        kept = self._kept(operator, "input", inputs)
        copied = self._earlier.statistics.copy_of
        return [copied(one) if operator.writes and _has_values(one) else one for one in kept]

    def after(self, operator: Operator, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        if operator.node not in self._nodes:
            return
        if self._on_overflow and (operator.is_data or not any(map(overflows, filter(_has_values, outputs)))):
            return
        kept = self._kept(operator, "output", outputs) if self._outputs else ()
        known = self._earlier
        write(self._plan, self._step, operator, inputs, kept, known.weights, summary=known.statistics.of)

    def _kept(self, operator: Operator, side: str, tensors: Sequence[Any]) -> Sequence[Any]:
        """The tensors of one side, None in the place of those that are left out."""
        places = self._left_out.get(operator.node)
        if not places:
            return tensors
        return [None if (side, place) in places else one for place, one in enumerate(tensors)]


def write(
    plan: Plan,
    step: Step,
    operator: Operator,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    weights: Written | None = None,
    watched: Operator | None = None,
    summary: Callable[[Any], Statistics | None] = statistics,
) -> None:
    """The file of one operator, and its lines in the index. An input or output that is None is left out.

    ``NotWritten`` has a line, and no values. With ``watched`` the outputs are this one's, taken after the operator ran.
    ``summary`` gives a tensor's statistics.
    What goes wrong is reported and costs the file, not the program.
    """
    if all(one is None for one in (*inputs, *outputs)) or not step.tree.room(plan.control.min_free):
        return
    name = f"{operator.name}_To_{watched.name}" if watched else operator.name
    sides = [("in", slot, one) for slot, one in enumerate(inputs)] + [("out", i, one) for i, one in enumerate(outputs)]
    for side, slot, one in sides:
        if isinstance(one, NotWritten):
            told = {"name": name, **_line(operator, side, slot, one), "file": None, "stats": None, "unwritten": True}
            step.tensor(told)
    inputs = [one if _has_values(one) else None for one in inputs]
    outputs = [one if _has_values(one) else None for one in outputs]
    if all(one is None for one in (*inputs, *outputs)):
        return
    of, time, stats = watched or operator, step.tree.clock(), plan.control.content == "stats"
    file = file_name(operator.op_type, name, operator.number, STREAM, time)
    path = step.folder / (f"{file}{ENDING}" if stats else file)
    try:
        rows = _rows(inputs, outputs, summary) if stats else []
        now = state(outputs[0]) if of.weight and weights is not None else None
        key = of.name, plan.statistics if stats else ()
        if now is None or weights is None or not _linked(path, now, weights.get(key)):
            if stats:
                path = write_whole(path, [table(rows, plan.statistics).encode()])
            else:
                path = write_operator(path, of.name, list(map(_known, inputs)), list(map(_known, outputs)), time)
            if now is not None and weights is not None:
                weights[key] = now, path
    except OSError as error:
        step.tree.stop(f"cannot write {path}: {error.strerror or error}")
        return
    except (RuntimeError, NotImplementedError, TypeError) as error:
        text = f"{of.name} ({of.op_type}) is not dumped: {' '.join(str(error).split())[:200]}"
        logger.warning("%s", text)
        step.note(text)
        return
    for place, (side, slot, one) in enumerate(side for side in sides if _has_values(side[2])):
        known = rows[place].statistics if rows else None
        step.tensor({"name": name, **_line(operator, side, slot, one), "file": path.name, "stats": _for_index(known)})


def _has_values(one: Any) -> bool:
    return one is not None and not isinstance(one, NotWritten)


def _line(operator: Operator, side: str, slot: int, tensor: Any) -> dict[str, Any]:
    """What the index has of an input or output, besides its name, file and statistics."""
    return {
        "id": str(operator.number),
        "op_type": operator.op_type,
        "module": operator.module,
        "source": operator.source,
        "side": side,
        "slot": slot,
        "moment": "after" if side == "out" else "before",
        "dtype": dtype_name(tensor),
        "shape": [int(size) for size in tensor.shape],
    }


def _linked(path: Path, now: State, before: tuple[State, Path] | None) -> bool:
    """Whether a weight's file became a link to the one of an earlier step, as the weight is what it was then."""
    if before is None or before[0] != now:
        return False
    try:
        os.link(before[1], path)
    except OSError:
        return False
    return True


def _known(tensor: Any) -> Payload | None:
    if tensor is None:
        return None
    taken = payload(tensor)
    if not has_type(taken.dtype):
        logger.info("elements of type %s are written as their bytes", taken.dtype)
    return taken


def _rows(inputs: Sequence[Any], outputs: Sequence[Any], summary: Callable[[Any], Statistics | None]) -> list[Row]:
    rows = []
    for io, tensors in (("Input", inputs), ("Output", outputs)):
        for slot, one in enumerate(tensors):
            if one is not None:
                known = facts(one)
                size = one.numel() * one.element_size()
                rows.append(Row(io, slot, size, known.dtype, known.shape, summary(one)))
    return rows


def _for_index(known: Statistics | None) -> dict[str, Any] | None:
    if known is None:
        return None
    return {name: getattr(known, name) for name in known.__dataclass_fields__}
