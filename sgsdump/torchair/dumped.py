"""What is taken of each operator while a graph runs: its inputs and outputs, or their statistics; of all that are
chosen, or of those whose output overflows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sgsdump.dumps.formats.ascend.file_names import file_name
from sgsdump.dumps.formats.ascend.operator_file import Payload, has_type, write_operator, write_whole
from sgsdump.dumps.formats.ascend.statistics_csv import ENDING
from sgsdump.dumps.formats.ascend.statistics_rows import Row, table
from sgsdump.tensors.statistics import Statistics
from sgsdump.torchair.log import logger
from sgsdump.torchair.operators import Operator
from sgsdump.torchair.plan import Plan
from sgsdump.torchair.tree import Step
from sgsdump.torchair.values import dtype_name, facts, overflows, payload, statistics, tensors_in

STREAM = 0
Written = dict[str, tuple[tuple[int, int], Path]]


class Dumped:
    """``before`` and ``after`` are called around each operator of a run.

    weights  where each weight was written last, and what it was then: an unchanged one is linked there.
    """

    def __init__(self, plan: Plan, step: Step, nodes: frozenset[str], weights: Written):
        self._plan = plan
        self._step = step
        self._nodes = nodes
        self._weights = weights
        self._on_overflow = plan.control.scene == "overflow"
        mode = "all" if self._on_overflow else plan.control.mode
        self._inputs, self._outputs = mode != "output", mode != "input"

    def before(self, operator: Operator, arguments: Any) -> Sequence[Any]:
        """Its inputs, copied where it may write into them."""
        if not self._inputs or operator.node not in self._nodes:
            return ()
        return [one.detach().clone() if operator.writes else one for one in tensors_in(arguments)]

    def after(self, operator: Operator, inputs: Sequence[Any], result: Any) -> None:
        if operator.node not in self._nodes:
            return
        outputs = tensors_in(result)
        if self._on_overflow and (operator.is_data or not any(map(overflows, outputs))):
            return
        write(self._plan, self._step, operator, inputs, outputs if self._outputs else (), self._weights)


def write(
    plan: Plan,
    step: Step,
    operator: Operator,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    weights: Written | None = None,
    watched: Operator | None = None,
) -> None:
    """The file of one operator, and its lines in the index. With ``watched`` the outputs are this one's, taken after
    the operator ran. What goes wrong is told and costs the file, not the program."""
    if not (inputs or outputs) or not step.tree.room(plan.control.min_free):
        return
    of, time = watched or operator, step.tree.clock()
    name = f"{operator.name}_To_{watched.name}" if watched else operator.name
    path = step.folder / file_name(operator.op_type, name, operator.number, STREAM, time)
    try:
        if plan.control.content == "stats":
            path, known = _statistics_file(plan, path, inputs, outputs)
        else:
            path, known = _tensor_file(path, of.name, inputs, outputs, time, weights if of.weight else None), []
    except OSError as error:
        step.tree.stop(f"cannot write {path}: {error.strerror or error}")
        return
    except (RuntimeError, NotImplementedError, TypeError) as error:
        text = f"{of.name} ({of.op_type}) is not dumped: {' '.join(str(error).split())[:200]}"
        logger.warning("%s", text)
        step.note(text)
        return
    sides = [("in", slot, one) for slot, one in enumerate(inputs)] + [("out", i, one) for i, one in enumerate(outputs)]
    for place, (side, slot, one) in enumerate(sides):
        step.tensor(
            {
                "id": str(operator.number),
                "name": name,
                "op_type": operator.op_type,
                "module": operator.module,
                "source": operator.source,
                "side": side,
                "slot": slot,
                "moment": "after" if side == "out" else "before",
                "file": path.name,
                "dtype": dtype_name(one),
                "shape": [int(size) for size in one.shape],
                "stats": _for_index(known[place]) if known else None,
            }
        )


def _tensor_file(
    path: Path, op_name: str, inputs: Sequence[Any], outputs: Sequence[Any], time: int, weights: Written | None
) -> Path:
    state = _state(outputs[0]) if weights is not None and outputs else None
    if weights is not None and op_name in weights and weights[op_name][0] == state:
        with suppress(OSError):
            os.link(weights[op_name][1], path)
            return path
    written = write_operator(path, op_name, list(map(_known, inputs)), list(map(_known, outputs)), time)
    if weights is not None and state is not None:
        weights[op_name] = state, written
    return written


def _known(tensor: Any) -> Payload:
    taken = payload(tensor)
    if not has_type(taken.dtype):
        logger.info("elements of type %s are written as their bytes", taken.dtype)
    return taken


def _statistics_file(
    plan: Plan, path: Path, inputs: Sequence[Any], outputs: Sequence[Any]
) -> tuple[Path, list[Statistics | None]]:
    rows = []
    for io, tensors in (("Input", inputs), ("Output", outputs)):
        for slot, one in enumerate(tensors):
            told = facts(one)
            size = one.numel() * one.element_size()
            rows.append(Row(io, slot, size, told.dtype, told.shape, statistics(one)))
    text = table(rows, plan.statistics)
    return write_whole(Path(f"{path}{ENDING}"), [text.encode()]), [row.statistics for row in rows]


def _state(tensor: Any) -> tuple[int, int] | None:
    """What changes whenever the tensor's values may have changed; None where torch does not count."""
    try:
        return tensor.data_ptr(), tensor._version
    except RuntimeError:
        return None


def _for_index(known: Statistics | None) -> dict[str, Any] | None:
    if known is None:
        return None
    return {name: getattr(known, name) for name in known.__dataclass_fields__}
