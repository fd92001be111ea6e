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


@dataclass(frozen=True)
class Operation:
    """``name`` is type and ids, ``addmm_3_1``, as ATB names its operations; ``module``: its place in the program."""

    name: str
    op_type: str
    module: str = ""
    param: Any = None
    nanoseconds: int | None = None
    reads: Mapping[int, Value] = field(default_factory=dict)
    writes: Mapping[int, Value] = field(default_factory=dict)
    inside: Mapping[str, Operation] = field(default_factory=dict)

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
    """The outermost operations of a step in the order of their ids."""
    root = _Gathered(step.model, step.model)
    for line in (*step.tensors, *step.operators):
        gathered = _gathered(root, line)
        if gathered is None:
            continue
        if "side" in line:
            gathered.add(line)
        else:
            gathered.param = line.get("param")
            nanoseconds = line.get("nanoseconds")
            gathered.nanoseconds = nanoseconds if isinstance(nanoseconds, int) else None
    return sorted((inner.operation() for inner in root.inside.values()), key=_id)


def _id(operation: Operation) -> int:
    number = operation.name.rpartition("_")[2]
    return int(number) if number.isdecimal() and len(number) < 10 else -1


class _Gathered:
    """An operation of which lines are still read."""

    def __init__(self, name: str, op_type: str) -> None:
        self.name, self.op_type, self.module = name, op_type, ""
        self.param: Any = None
        self.nanoseconds: int | None = None
        self.reads: dict[int, Value] = {}
        self.writes: dict[int, Value] = {}
        self.inside: dict[str, _Gathered] = {}

    def add(self, line: Line) -> None:
        """Take an input or output."""
        side, slot, number = line["side"], line.get("slot"), line.get("value")
        if not isinstance(slot, int):
            return
        values = self.reads if side == "in" else self.writes
        key = number if isinstance(number, int) else (self.name, side, slot)
        shape, file = line.get("shape"), line.get("same") or line.get("file")
        dims = tuple(size for size in shape if isinstance(size, int)) if isinstance(shape, list) else ()
        path = file if isinstance(file, str) else None
        # Of one dumped before and after, inputs count as they were before, outputs as they are after.
        if slot not in values or line.get("moment") == ("before" if side == "in" else "after"):
            values[slot] = Value(key, str(line.get("dtype") or ""), dims, path, str(line.get("weight") or ""))

    def operation(self) -> Operation:
        inside = {folder: inner.operation() for folder, inner in self.inside.items()}
        facts = (self.name, self.op_type, self.module, self.param, self.nanoseconds)
        return Operation(*facts, reads=self.reads, writes=self.writes, inside=inside)


def _gathered(root: _Gathered, line: Line) -> _Gathered | None:
    """The operation a line is of, made with those around it where it is new."""
    folders = line.get("folders")
    if not isinstance(folders, list) or not 0 < len(folders) <= _DEEPEST:
        return None
    if not all(isinstance(folder, str) for folder in folders):
        return None
    found, ids = root, []
    for folder in folders:
        number, _, name = folder.partition("_")
        ids.append(number)
        if folder not in found.inside:
            found.inside[folder] = _Gathered(f"{name}_{'_'.join(ids)}", name)
        found = found.inside[folder]
    found.op_type = str(line.get("type") or found.op_type)
    found.module = str(line.get("module") or found.module)
    return found


def unique(values: Iterable[Value]) -> Mapping[object, Value]:
    """The values by key, each once, in order."""
    known: dict[object, Value] = {}
    for value in values:
        known.setdefault(value.key, value)
    return known
