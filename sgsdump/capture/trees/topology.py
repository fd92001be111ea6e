"""The JSON of models and layers as ATB's probes save it (docs/formats/ascend.md#atb-graphs).

In a model's JSON a tensor has one name wherever it stands: of the model's inputs ``{model}_input_{i}``, of a weight
its own, of all else the operation's that makes it, ``{operation}_output_{i}``. In a layer's JSON the layer's are
``{layer}_input_{i}``, ``{layer}_output_{i}`` and ``{layer}_internal_{i}``, and its children use these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sgsdump.capture.trees.operations import Operation, unique

Names = Mapping[object, str]
Readers = Mapping[object, int]


def model_document(
    model: str, operations: Sequence[Operation], outputs: Sequence[object] | None = None
) -> dict[str, Any]:
    """The JSON of a model's step, given by its outermost operations.

    ``outputs`` are the keys of what the step gave back; without them, what is made and never read.
    """
    readers, made = readers_of(operations), _made(operations)
    read = unique(value for operation in operations for value in operation.inputs())
    given = {key: value for key, value in read.items() if key not in made}
    weights = {key: value.weight for key, value in given.items() if value.weight}
    inputs = _numbered(f"{model}_input", [key for key in given if key not in weights])
    names = {**made, **inputs, **weights}
    known = [key for key in outputs or () if key in names]
    given_back = dict.fromkeys(known or [key for key in made if not readers.get(key)])
    return {
        "modelName": model,
        "inTensors": list(inputs.values()),
        "outTensors": [names[key] for key in given_back],
        "internalTensors": [names[key] for key in made if key in read and key not in given_back],
        "weightTensors": list(weights.values()),
        "nodes": [_node(operation, names, readers) for operation in operations],
    }


def layer_document(layer: Operation, readers: Readers) -> dict[str, Any]:
    """The JSON of one outermost operation; ``readers`` are those of the whole step."""
    inputs = list(unique(layer.inputs()))
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


def _outputs(operation: Operation, readers: Readers) -> tuple[list[object], list[object]]:
    """Of the values made in an operation those that are read outside of it, or nowhere; and the others."""
    own = readers_of([operation])
    made = unique(operation.outputs())
    leaving = [key for key in made if not readers.get(key) or own[key] < readers[key] or not operation.inside]
    return leaving, [key for key in made if key not in set(leaving)]


def _made(operations: Iterable[Operation]) -> dict[object, str]:
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
