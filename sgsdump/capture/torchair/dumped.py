"""Observation of each operator's inputs and outputs while a graph runs (``run_observed``).

``Dumped`` dumps all chosen operators, or only those whose output overflows. ``Watched`` dumps the outputs of watched
operators, once after the operator itself and again after each listed operator. An operator in both lists, and
collective communication, dump only their own outputs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch.fx

from sgsdump.capture.torchair.operators import Operator, Slots, logger
from sgsdump.capture.torchair.plan import Plan
from sgsdump.capture.torchair.tree import Step
from sgsdump.capture.torchair.values import (
    KnownStatistics,
    NotWritten,
    Watch,
    dtype_name,
    facts,
    overflows,
    payload,
    state,
    statistics,
    tensors_in,
)
from sgsdump.dumps.formats.ascend.ascend_stats import ENDING, Row, table
from sgsdump.dumps.formats.ascend.file_names import file_name
from sgsdump.dumps.formats.ascend.operator_dump import Payload, has_type, write_operator, write_whole
from sgsdump.tensors.statistics import Statistics

STREAM = 0
State = tuple[int, int]
Written = dict[tuple[str, tuple[str, ...]], tuple[State, Path]]


class Observer(Protocol):
    """Receiver of the tensors that an operator reads and writes; ``NotWritten`` replaces tensors without values."""

    def before(self, operator: Operator, inputs: Sequence[Any]) -> Sequence[Any]: ...

    def after(self, operator: Operator, inputs: Sequence[Any], outputs: Sequence[Any]) -> None: ...


def run_observed(module: Any, operators: Mapping[str, Operator], observer: Observer, inputs: Sequence[Any]) -> Any:
    """Run ``module(*inputs)`` and call ``observer`` around each of ``operators``, which are keyed by node."""
    return _Run(module, operators, observer).run(*inputs)


class _Run(torch.fx.Interpreter):
    def __init__(self, module: Any, operators: Mapping[str, Operator], observer: Observer):
        super().__init__(module)
        self._operators = operators
        self._observer = observer
        self._watch = Watch(module)

    def run_node(self, n: Any) -> Any:
        operator = self._operators.get(n.name)
        if operator is None:
            with self._watch.running():
                return super().run_node(n)
        arguments = () if operator.is_data else self.fetch_args_kwargs_from_env(n)
        with torch.no_grad():
            inputs = self._observer.before(operator, self._watch.told(tensors_in(arguments)))
        with self._watch.running():
            result = super().run_node(n)
        with torch.no_grad():
            self._observer.after(operator, inputs, self._watch.told(tensors_in(result)))
        return result


class Earlier:
    """Data kept from earlier steps of a graph.

    ``weights`` holds, per weight and statistics, the state and the file of its last dump: an unchanged weight is
    linked.
    """

    def __init__(self) -> None:
        self.weights: Written = {}
        self.statistics = KnownStatistics()


class Dumped:
    """Observer that dumps chosen operators.

    left_out  inputs and outputs of nodes that are not dumped.
    """

    def __init__(self, plan: Plan, step: Step, nodes: frozenset[str], left_out: Mapping[str, Slots], earlier: Earlier):
        self._write = Writer(plan, step, earlier).write
        self._nodes = nodes
        self._left_out = left_out
        is_statistics = plan.control.content == "stats"
        self._kept_before = earlier.statistics.before if is_statistics else _copy_of
        self._on_overflow = plan.control.scene == "overflow"
        mode = "all" if self._on_overflow else plan.control.mode
        self._inputs, self._outputs = mode != "output", mode != "input"

    def before(self, operator: Operator, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the operator's inputs; of those that the operator may write to, what is dumped of them."""
        if not self._inputs or operator.node not in self._nodes:
            return ()
        kept = self._kept(operator, "input", inputs)
        return [self._kept_before(tensor) if operator.writes and _has_values(tensor) else tensor for tensor in kept]

    def after(self, operator: Operator, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        if operator.node not in self._nodes:
            return
        if self._on_overflow and (operator.is_data or not any(map(overflows, filter(_has_values, outputs)))):
            return
        kept = self._kept(operator, "output", outputs) if self._outputs else ()
        self._write(operator, inputs, kept)

    def _kept(self, operator: Operator, side: str, tensors: Sequence[Any]) -> Sequence[Any]:
        """Return the tensors of one side, with None for omitted ones."""
        slots = self._left_out.get(operator.node)
        if not slots:
            return tensors
        return [None if (side, slot) in slots else tensor for slot, tensor in enumerate(tensors)]


class Watched:
    """Observer that dumps watched operators; ``listed`` None means after every operator."""

    def __init__(self, plan: Plan, step: Step, watched: frozenset[str], listed: frozenset[str] | None):
        self._write = Writer(plan, step).write
        self._watched = watched
        self._listed = listed
        self._held: list[tuple[Operator, Sequence[Any]]] = []

    def before(self, operator: Operator, inputs: Sequence[Any]) -> Sequence[Any]:
        return ()

    def after(self, operator: Operator, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        if operator.node in self._watched:
            self._held.append((operator, outputs))
            self._write(operator, (), outputs)
        elif self._is_listed(operator):
            for watched, tensors in self._held:
                now = [tensor.now() if isinstance(tensor, NotWritten) else tensor for tensor in tensors]
                self._write(operator, (), now, watched=watched)

    def _is_listed(self, operator: Operator) -> bool:
        if operator.is_data or operator.is_collective:
            return False
        return self._listed is None or operator.node in self._listed


class Writer:
    """Writer of a step's operators.

    ``earlier`` holds data of earlier steps, whose statistics and weights are reused; None reads every tensor again.
    """

    def __init__(self, plan: Plan, step: Step, earlier: Earlier | None = None):
        self._plan, self._step = plan, step
        self._weights: Written | None = None if earlier is None else earlier.weights
        self._summary = statistics if earlier is None else earlier.statistics.of

    def write(
        self, operator: Operator, inputs: Sequence[Any], outputs: Sequence[Any], watched: Operator | None = None
    ) -> None:
        """Write the file of one operator and its index lines. Inputs and outputs that are None are omitted.

        A ``NotWritten`` tensor gets a line without values. With ``watched``, the outputs belong to ``watched`` and were
        taken after ``operator`` ran. A failure is reported and loses the file, never stops the program.
        """
        step = self._step
        if _nothing_in(inputs, outputs) or not step.tree.room(self._plan.control.storage.min_free):
            return
        name = f"{operator.name}_To_{watched.name}" if watched else operator.name
        sides = [*(("in", slot, tensor) for slot, tensor in enumerate(inputs))]
        sides += [("out", slot, tensor) for slot, tensor in enumerate(outputs)]
        for side, slot, tensor in sides:
            if isinstance(tensor, NotWritten):
                line = _line(operator, side, slot, tensor)
                step.tensors([{"name": name, **line, "file": None, "stats": None, "unwritten": True}])
        inputs, outputs = ([tensor if _has_values(tensor) else None for tensor in side] for side in (inputs, outputs))
        if _nothing_in(inputs, outputs):
            return
        of, time, stats = watched or operator, step.tree.clock(), self._plan.control.content == "stats"
        file = file_name(operator.op_type, name, operator.number, STREAM, time)
        path = step.folder / (f"{file}{ENDING}" if stats else file)
        try:
            rows = self._rows(inputs, outputs) if stats else []
            now = state(outputs[0]) if of.weight and self._weights is not None else None  # type: ignore[arg-type]
            key = of.name, self._plan.statistics if stats else ()
            if now is None or self._weights is None or not _linked(path, now, self._weights.get(key)):
                if stats:
                    path = write_whole(path, [table(rows, self._plan.statistics).encode()])
                else:
                    path = write_operator(
                        path, of.name, list(map(_payload, inputs)), list(map(_payload, outputs)), time
                    )
                if now is not None and self._weights is not None:
                    self._weights[key] = now, path
        except OSError as error:
            step.tree.stop(f"cannot write {path}: {error.strerror or error}")
            return
        except (RuntimeError, NotImplementedError, TypeError) as error:
            text = f"{of.name} ({of.op_type}) is not dumped: {' '.join(str(error).split())[:200]}"
            logger.warning("%s", text)
            step.note(text)
            return
        lines = []
        for index, (side, slot, tensor) in enumerate(entry for entry in sides if _has_values(entry[2])):
            summary = _for_index(rows[index].statistics) if rows else None
            lines.append({"name": name, **_line(operator, side, slot, tensor), "file": path.name, "stats": summary})
        step.tensors(lines)

    def _rows(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Row]:
        rows = []
        for io, tensors in (("Input", inputs), ("Output", outputs)):
            for slot, tensor in enumerate(tensors):
                if tensor is not None:
                    described = facts(tensor)
                    size = tensor.numel() * tensor.element_size()
                    rows.append(Row(io, slot, size, described.dtype, described.shape, self._summary(tensor)))
        return rows


def _copy_of(tensor: Any) -> Any:
    return tensor.detach().clone()


def _nothing_in(inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    return all(tensor is None for tensor in (*inputs, *outputs))


def _has_values(tensor: Any) -> bool:
    return tensor is not None and not isinstance(tensor, NotWritten)


def _line(operator: Operator, side: str, slot: int, tensor: Any) -> dict[str, Any]:
    """Return the index line of an input or output, without name, file and statistics."""
    return {
        "id": str(operator.number),
        "op_type": operator.op_type,
        "module": operator.module,
        "source": operator.call.source,
        "param": operator.call.param,
        "side": side,
        "slot": slot,
        "moment": "after" if side == "out" else "before",
        **({"weight": operator.name} if operator.weight else {}),
        "dtype": dtype_name(tensor),
        "shape": [int(size) for size in tensor.shape],
    }


def _linked(path: Path, now: State, before: tuple[State, Path] | None) -> bool:
    """Return whether the weight is unchanged and its file is now a link to the file of an earlier step."""
    if before is None or before[0] != now:
        return False
    try:
        os.link(before[1], path)
    except OSError:
        return False
    return True


def _payload(tensor: Any) -> Payload | None:
    if tensor is None:
        return None
    taken = payload(tensor)
    if not has_type(taken.dtype):
        logger.info("elements of type %s are written as raw bytes", taken.dtype)
    return taken


def _for_index(summary: Statistics | None) -> dict[str, Any] | None:
    return None if summary is None else {name: getattr(summary, name) for name in summary.__dataclass_fields__}
