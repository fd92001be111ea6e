"""One step of a program as nested operations: layers, the operators in them, and what each reads and writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sgsdump.capture.process_index import Line, Step

_DEEPEST = 100


@dataclass(frozen=True)
class Value:
    """A tensor that operations read or write: one and the same for all of them, whatever they call it.

    key     equal for equal values; ``weight``: the name of a weight in the program, "" for what is computed.
    """

    key: object
    dtype: str
    shape: tuple[int, ...]
    file: str | None
    weight: str = ""


@dataclass
class Operation:
    """``name`` is type and ids, ``addmm_3_1``, as ATB names its operations; ``module``: its place in the program."""

    name: str
    op_type: str
    module: str = ""
    param: Any = None
    nanoseconds: int | None = None
    reads: dict[int, Value] = field(default_factory=dict)
    writes: dict[int, Value] = field(default_factory=dict)
    inside: dict[str, Operation] = field(default_factory=dict)

    def inputs(self) -> list[Value]:
        """What it reads and does not make itself, each once; of one with operations inside, theirs."""
        if not self.inside:
            return [value for _, value in sorted(self.reads.items())]
        made = {value.key for operation in self.inside.values() for value in operation.outputs()}
        read = {value.key: value for operation in self.inside.values() for value in operation.inputs()}
        return [value for key, value in read.items() if key not in made]

    def outputs(self) -> list[Value]:
        """What it makes, each once."""
        if not self.inside:
            return [value for _, value in sorted(self.writes.items())]
        made = {value.key: value for operation in self.inside.values() for value in operation.outputs()}
        return list(made.values())

    def leaves(self) -> Iterator[Operation]:
        """The operations in it that have none inside, in order; itself where it has none."""
        if not self.inside:
            yield self
        for operation in self.inside.values():
            yield from operation.leaves()


def operations_of(step: Step) -> list[Operation]:
    """The outermost operations of a step in the order in which they began."""
    root = Operation(step.model, step.model)
    for line in (*step.tensors, *step.operators):
        operation = _operation(root, line)
        if operation is None:
            continue
        if "side" in line:
            _add_value(operation, line)
        else:
            operation.param = line.get("param")
            nanoseconds = line.get("nanoseconds")
            operation.nanoseconds = nanoseconds if isinstance(nanoseconds, int) else None
    return sorted(root.inside.values(), key=_ids)


def _ids(operation: Operation) -> tuple[int, ...]:
    return tuple(int(part) for part in operation.name.split("_") if part.isdecimal() and len(part) < 10)[-1:]


def _operation(root: Operation, line: Line) -> Operation | None:
    """The operation a line is of, made with those around it where it is new."""
    folders = line.get("folders")
    if not isinstance(folders, list) or not 0 < len(folders) <= _DEEPEST:
        return None
    if not all(isinstance(folder, str) for folder in folders):
        return None
    operation, ids = root, []
    for folder in folders:
        number, _, name = folder.partition("_")
        ids.append(number)
        if folder not in operation.inside:
            operation.inside[folder] = Operation(f"{name}_{'_'.join(ids)}", name)
        operation = operation.inside[folder]
    operation.op_type = str(line.get("type") or operation.op_type)
    operation.module = str(line.get("module") or operation.module)
    return operation


def _add_value(operation: Operation, line: Line) -> None:
    side, slot, number = line["side"], line.get("slot"), line.get("value")
    if not isinstance(slot, int):
        return
    values = operation.reads if side == "in" else operation.writes
    key = number if isinstance(number, int) else (operation.name, side, slot)
    shape = line.get("shape")
    dims = tuple(size for size in shape if isinstance(size, int)) if isinstance(shape, list) else ()
    file = line.get("file")
    value = Value(
        key, str(line.get("dtype") or ""), dims, file if isinstance(file, str) else None, str(line.get("weight") or "")
    )
    # Of one dumped before and after, inputs count as they were before, outputs as they are after.
    if slot not in values or line.get("moment") == ("before" if side == "in" else "after"):
        values[slot] = value


def unique(values: Iterable[Value]) -> Mapping[object, Value]:
    """The values by key, each once, in order."""
    known: dict[object, Value] = {}
    for value in values:
        known.setdefault(value.key, value)
    return known
