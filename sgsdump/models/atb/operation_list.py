"""The operations of a topology with their ids, to choose some by ``-ids``: of a JSON file, or of all in a dump's tree.

An id is a place, ``3_1`` the child 1 of operation 3. The probes put it behind the name; where it is not there the order
in the file counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import decode, read_bytes
from sgsdump.files.folder import in_order
from sgsdump.files.json_yaml import json_of
from sgsdump.models.atb.operation import MOST_OPERATIONS, Operation, root_of
from sgsdump.sidecars.ge_proto import Graph, GraphOperator

MODELS = "model/*/*.json"
_MOST_BYTES = 512 << 20


def graphs_of_tree(folder: Path) -> list[Graph]:
    """The models in a tree that msit or ``sgsdump exec`` dumped. Raises FormatError where there is none."""
    files = sorted(folder.glob(MODELS), key=lambda file: in_order(str(file)))
    if not files:
        raise FormatError(f"{folder} has no {MODELS}; dump it with --type model, or name a model's file")
    return [graph_of(file) for file in files]


def graph_of(path: Path) -> Graph:
    """Raises FormatError for what is no topology."""
    root = root_of(json_of(decode(read_bytes(path, _MOST_BYTES), path), path), path)
    operators: list[GraphOperator] = []
    waiting = [_numbered(root, "", path)]
    while waiting:
        one = next(waiting[-1], None)
        if one is None:
            waiting.pop()
            continue
        operation, number = one
        if len(operators) == MOST_OPERATIONS:
            raise FormatError(f"{path} has more than {MOST_OPERATIONS} operations, no layer's or model's")
        operators.append(GraphOperator(operation.name, operation.op_type, operation.inputs, (("id", number),)))
        waiting.append(_numbered(operation, number, path))
    return Graph(root.name, tuple(operators))


def _numbered(above: Operation, number: str, path: Path) -> Iterator[tuple[Operation, str]]:
    """What is directly inside an operation, with ids."""
    depth = number.count("_") + 2 if number else 1
    written = re.compile(rf".*?_(\d+(?:_\d+){{{depth - 1}}})", re.DOTALL)
    for place, operation in enumerate(above.inside(path)):
        own = f"{number}_{place}" if number else str(place)
        match = written.fullmatch(operation.name[-200:])
        named = match[1] if match else own
        yield operation, named if named.rpartition("_")[0] == number else own
