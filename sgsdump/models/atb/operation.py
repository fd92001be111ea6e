"""Operations of an ATB layer or model, read from the JSON of the vendor's probes.

The JSON is one object, mostly on one line::

    layer  {"opName", "opType", "param", "inTensors", "outTensors", "internalTensors", "nodes": [the same, inside]}
    model  {"modelName", "inTensors", "outTensors", "internalTensors", "weightTensors", "nodes": [layers]}

Tensor names are the same on every level: a child uses its parent's. Operations in a layer and their parameters may be
nested to any depth. Some writers omit the tensors of the root. Its inputs are then the tensors that its operations only
read, and its outputs the tensors that its operations only write.

``-ids`` selects operations by id: ``3_1`` is child 1 of operation 3. The probes append the id to the name. If a name
has no id, the order in the file counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import decode, read_bytes
from sgsdump.files.escaping import quoted
from sgsdump.files.folder import in_order
from sgsdump.files.json_yaml import json_of
from sgsdump.sidecars.ge_proto import Graph, GraphOperator

MODELS = "model/*/*.json"
MOST_OPERATIONS = 1_000_000
_MOST_BYTES = 512 << 20


@dataclass(frozen=True)
class Operation:
    """An operation: inputs, outputs, parameters as in the JSON, and nested operations if given.

    ``inputs`` of a model are its input tensors, then its weights.
    """

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    param: Any = None
    nodes: tuple[Any, ...] = ()

    def inside(self, path: Path) -> Iterator[Operation]:
        """Return the direct child operations. Raises FormatError."""
        return (operation_of(node, path) for node in self.nodes)


def looks_like(head: bytes) -> bool:
    """Return whether the first bytes of a file look like such a JSON."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    named = any(key in text for key in (b'"opName"', b'"modelName"'))
    return text.startswith(b"{") and named and any(key in text for key in (b'"nodes"', b'"inTensors"'))


def root_of(document: Any, path: Path) -> Operation:
    """Return the operation of the whole document, with its tensors derived if not given.

    Raises FormatError for any other document.
    """
    root = operation_of(document, path)
    if not ("opName" in document or "modelName" in document):
        raise FormatError(f"{path} has neither opName nor modelName; give the JSON file of an ATB layer or model")
    if (root.inputs and root.outputs) or not root.nodes:
        return root
    inner = list(root.inside(path))
    read, written = _once(inner, "inputs"), _once(inner, "outputs")
    produced, used = set(written), set(read)
    return replace(
        root,
        inputs=root.inputs or tuple(name for name in read if name not in produced),
        outputs=root.outputs or tuple(name for name in written if name not in used),
    )


def operation_of(node: Any, path: Path) -> Operation:
    """Return one operation. Raises FormatError for an invalid field."""
    if not isinstance(node, Mapping):
        raise FormatError(f"{path}: an operation must be a JSON object, not a {type(node).__name__}")
    name = _text(node, "opName" if "opName" in node else "modelName", path)
    nodes = node.get("nodes") or ()
    if not isinstance(nodes, Sequence) or isinstance(nodes, str):
        raise FormatError(f"{path}: the nodes of {quoted(name)} are not a list")
    op_type = _text(node, "opType", path) or name
    inputs = _names(node, "inTensors", name, path) + _names(node, "weightTensors", name, path)
    return Operation(
        name, op_type, inputs, _names(node, "outTensors", name, path), node.get("param"), tuple(nodes)
    )  # fmt: skip


def at_level(root: Operation, level: int, path: Path) -> Iterator[Operation]:
    """Yield the operations of the graph unfolded ``level`` times.

    Level 0 is the root, 1 its children …; -1 gives only operations without children. Raises FormatError, also for more
    than MOST_OPERATIONS.
    """
    waiting = [iter((root,))]
    count = 0
    while waiting:
        operation = next(waiting[-1], None)
        if operation is None:
            waiting.pop()
            continue
        count += 1
        if count > MOST_OPERATIONS:
            raise FormatError(f"{path} has more than {MOST_OPERATIONS} operations, too many for a layer or model")
        if operation.nodes and (level < 0 or len(waiting) <= level):
            waiting.append(operation.inside(path))
        else:
            yield operation


def graphs_of_tree(folder: Path) -> list[Graph]:
    """Return the models in a tree dumped by msit or ``sgsdump exec``. Raises FormatError if there are none."""
    files = sorted(folder.glob(MODELS), key=lambda file: in_order(str(file)))
    if not files:
        raise FormatError(f"{folder} contains no {MODELS}; dump the program with --type model, or give a model file")
    return [graph_of(file) for file in files]


def graph_of(path: Path) -> Graph:
    """Return the operations of a file with their ids. Raises FormatError for a file that is not a topology."""
    root = root_of(json_of(decode(read_bytes(path, _MOST_BYTES), path), path), path)
    operators: list[GraphOperator] = []
    waiting = [_numbered(root, "", path)]
    while waiting:
        numbered = next(waiting[-1], None)
        if numbered is None:
            waiting.pop()
            continue
        operation, number = numbered
        if len(operators) == MOST_OPERATIONS:
            raise FormatError(f"{path} has more than {MOST_OPERATIONS} operations, too many for a layer or model")
        operators.append(GraphOperator(operation.name, operation.op_type, operation.inputs, (("id", number),)))
        waiting.append(_numbered(operation, number, path))
    return Graph(root.name, tuple(operators))


def _numbered(above: Operation, number: str, path: Path) -> Iterator[tuple[Operation, str]]:
    """Yield the direct children of an operation with their ids."""
    depth = number.count("_") + 2 if number else 1
    written = re.compile(rf".*?_(\d+(?:_\d+){{{depth - 1}}})", re.DOTALL)
    for index, operation in enumerate(above.inside(path)):
        by_order = f"{number}_{index}" if number else str(index)
        match = written.fullmatch(operation.name[-200:])
        by_name = match[1] if match else by_order
        yield operation, by_name if by_name.rpartition("_")[0] == number else by_order


def _once(operations: Iterable[Operation], side: str) -> list[str]:
    return list(dict.fromkeys(name for operation in operations for name in getattr(operation, side) if name))


def _text(node: Mapping[str, Any], key: str, path: Path) -> str:
    value = node.get(key, "")
    if not isinstance(value, str):
        raise FormatError(f"{path}: {key} {quoted(str(value)[:80])} is not a string")
    return value


def _names(node: Mapping[str, Any], key: str, owner: str, path: Path) -> tuple[str, ...]:
    names = node.get(key) or ()
    if not isinstance(names, Sequence) or isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise FormatError(f"{path}: {key} of {quoted(owner)} is not a list of names")
    return tuple(names)
