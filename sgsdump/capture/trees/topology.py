"""The JSON of models and layers as ATB's probes save it (docs/formats/ascend.md, "Topology and mapping files").

In a model's JSON a tensor has one name wherever it stands: of the model's inputs ``{model}_input_{i}``, of a weight
its own, of all else the operation's that makes it, ``{operation}_output_{i}``. In a layer's JSON the layer's are
``{layer}_input_{i}``, ``{layer}_output_{i}`` and ``{layer}_internal_{i}``, and its children use these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from sgsdump.capture.trees.operations import Operation, unique

Names = Mapping[object, str]


def model_document(model: str, operations: Sequence[Operation]) -> dict[str, Any]:
    """The JSON of a model's step, given by its outermost operations."""
    made, read = _made(operations), unique(value for operation in operations for value in operation.inputs())
    given = {key: value for key, value in read.items() if key not in made}
    weights = {key: value.weight for key, value in given.items() if value.weight}
    inputs = _numbered(f"{model}_input", [key for key in given if key not in weights])
    names = {**made, **inputs, **weights}
    outputs = [names[key] for key in made if key not in read]
    return {
        "modelName": model,
        "inTensors": list(inputs.values()),
        "outTensors": outputs,
        "internalTensors": [names[key] for key in made if key in read],
        "weightTensors": list(weights.values()),
        "nodes": [_node(operation, names) for operation in operations],
    }


def layer_document(layer: Operation, leaving: Set[object]) -> dict[str, Any]:
    """The JSON of one outermost operation; ``leaving`` are the keys of what it makes for others."""
    inputs, outputs = unique(layer.inputs()), unique(layer.outputs())
    internal = [key for key in outputs if key not in leaving] if layer.inside else []
    names = {
        **_numbered(f"{layer.name}_internal", internal),
        **_numbered(f"{layer.name}_output", [key for key in outputs if key not in internal]),
        **_numbered(f"{layer.name}_input", list(inputs)),
    }
    return {
        **_head(layer),
        "inTensors": [names[key] for key in inputs],
        "outTensors": [names[key] for key in outputs if key not in internal],
        **({"internalTensors": [names[key] for key in internal]} if layer.inside else {}),
        **({"nodes": [_node(inner, names) for inner in layer.inside.values()]} if layer.inside else {}),
    }


def leaving_each(operations: Sequence[Operation]) -> dict[str, set[object]]:
    """For each outermost operation the keys of the values that it makes for others, or that nobody reads."""
    readers: dict[object, set[str]] = {}
    for operation in operations:
        for value in operation.inputs():
            readers.setdefault(value.key, set()).add(operation.name)
    leaving: dict[str, set[object]] = {}
    for operation in operations:
        used = {value.key for inner in operation.inside.values() for value in inner.inputs()}
        made = unique(operation.outputs())
        leaving[operation.name] = {key for key in made if key not in used or readers.get(key, set()) - {operation.name}}
    return leaving


def _made(operations: Iterable[Operation]) -> dict[object, str]:
    """The name of every value that is made, by its first maker among the innermost operations."""
    names: dict[object, str] = {}
    for operation in operations:
        for leaf in operation.leaves():
            for slot, value in sorted(leaf.writes.items()):
                names.setdefault(value.key, f"{leaf.name}_output_{slot}")
    return names


def _node(operation: Operation, names: Names) -> dict[str, Any]:
    node = {
        **_head(operation),
        "inTensors": [names[value.key] for value in operation.inputs()],
        "outTensors": [names[value.key] for value in unique(operation.outputs()).values()],
    }
    if operation.inside:
        node["nodes"] = [_node(inner, names) for inner in operation.inside.values()]
    return node


def _head(operation: Operation) -> dict[str, Any]:
    param = operation.param
    return {"opName": operation.name, "opType": operation.op_type, "param": "" if param is None else param}


def _numbered(stem: str, keys: Sequence[object]) -> dict[object, str]:
    return {key: f"{stem}_{number}" for number, key in enumerate(keys)}
