"""One step of a program as nested operations: layers, the operators in them, and what each reads and writes; and the
JSON of models and layers as ATB's probes save it (docs/formats/ascend.md#atb-graphs).

In a model's JSON a tensor has one name everywhere: of the model's inputs ``{model}_input_{i}``, of a weight its own, of
all else that of the operation that makes it, ``{operation}_output_{i}``. In a layer's JSON the layer's are
``{layer}_input_{i}``, ``{layer}_output_{i}`` and ``{layer}_internal_{i}``, and its children use these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sgsdump.programs.process_index import Line, Step

_DEEPEST = 100
Names = Mapping[object, str]
Readers = Mapping[object, int]


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
        produced = {value.key for operation in self.inside.values() for value in operation.outputs()}
        read = {value.key: value for operation in self.inside.values() for value in operation.inputs()}
        return [value for key, value in read.items() if key not in produced]

    def outputs(self) -> list[Value]:
        """What it makes, each once."""
        if not self.inside:
            return [value for _, value in sorted(self.writes.items())]
        return list({value.key: value for operation in self.inside.values() for value in operation.outputs()}.values())

    def walk(self) -> Iterator[Operation]:
        """Itself and all operations in it, at any depth, outer ones first."""
        yield self
        for operation in self.inside.values():
            yield from operation.walk()

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
    return sorted((inner.operation() for inner in root.inside.values()), key=_sort_key)


def model_document(
    model: str, operations: Sequence[Operation], outputs: Sequence[object] | None = None
) -> dict[str, Any]:
    """The JSON of a model's step, given by its outermost operations.

    ``outputs`` are the keys of what the step gave back; without them, what is made and never read.
    """
    readers, produced = readers_of(operations), _names_of_outputs(operations)
    read = _unique(value for operation in operations for value in operation.inputs())
    from_outside = {key: value for key, value in read.items() if key not in produced}
    weights = {key: value.weight for key, value in from_outside.items() if value.weight}
    inputs = _numbered(f"{model}_input", [key for key in from_outside if key not in weights])
    names = {**produced, **inputs, **weights}
    returned = [key for key in outputs or () if key in names]
    results = dict.fromkeys(returned or [key for key in produced if not readers.get(key)])
    return {
        "modelName": model,
        "inTensors": list(inputs.values()),
        "outTensors": [names[key] for key in results],
        "internalTensors": [names[key] for key in produced if key in read and key not in results],
        "weightTensors": list(weights.values()),
        "nodes": [_node(operation, names, readers) for operation in operations],
    }


def layer_document(layer: Operation, readers: Readers) -> dict[str, Any]:
    """The JSON of one outermost operation; ``readers`` are those of the whole step."""
    inputs = list(_unique(layer.inputs()))
    outputs, internal = _outputs(layer, readers)
    names = {
        **_numbered(f"{layer.name}_internal", internal),
        **_numbered(f"{layer.name}_output", outputs),
        **_numbered(f"{layer.name}_input", inputs),
    }
    return _node(layer, names, readers)


def readers_of(operations: Iterable[Operation]) -> Counter[object]:
    """How often each value is read by the innermost operations."""
    leaves = (leaf for operation in operations for leaf in operation.leaves())
    return Counter(value.key for leaf in leaves for value in leaf.reads.values())


def _sort_key(operation: Operation) -> int:
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
    operation, ids = root, []
    for folder in folders:
        number, _, name = folder.partition("_")
        ids.append(number)
        if folder not in operation.inside:
            operation.inside[folder] = _Gathered(f"{name}_{'_'.join(ids)}", name)
        operation = operation.inside[folder]
    operation.op_type = str(line.get("type") or operation.op_type)
    operation.module = str(line.get("module") or operation.module)
    return operation


def _unique(values: Iterable[Value]) -> Mapping[object, Value]:
    """The values by key, each once, in order."""
    by_key: dict[object, Value] = {}
    for value in values:
        by_key.setdefault(value.key, value)
    return by_key


def _outputs(operation: Operation, readers: Readers) -> tuple[list[object], list[object]]:
    """Of the values made in an operation those that are read outside of it, or nowhere; and the others."""
    inside = readers_of([operation])
    produced = _unique(operation.outputs())
    leaving = [key for key in produced if not readers.get(key) or inside[key] < readers[key] or not operation.inside]
    return leaving, [key for key in produced if key not in set(leaving)]


def _names_of_outputs(operations: Iterable[Operation]) -> dict[object, str]:
    """The name of every value that is made, by its first maker among the innermost operations."""
    names: dict[object, str] = {}
    for operation in operations:
        for leaf in operation.leaves():
            for slot, value in sorted(leaf.writes.items()):
                names.setdefault(value.key, f"{leaf.name}_output_{slot}")
    return names


def _node(operation: Operation, names: Names, readers: Readers) -> dict[str, Any]:
    outputs, internal = _outputs(operation, readers)
    param = operation.param
    node = {
        "opName": operation.name,
        "opType": operation.op_type,
        "param": "" if param is None else param,
        "inTensors": [names[value.key] for value in operation.inputs()],
        "outTensors": [names[key] for key in outputs],
    }
    if operation.inside:
        node["internalTensors"] = [names[key] for key in internal]
        node["nodes"] = [_node(inner, names, readers) for inner in operation.inside.values()]
    return node


def _numbered(stem: str, keys: Sequence[object]) -> dict[object, str]:
    return {key: f"{stem}_{number}" for number, key in enumerate(keys)}
