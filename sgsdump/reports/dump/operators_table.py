"""The operators of a model's graphs, as text with a line each, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from sgsdump.errors import ConfigError
from sgsdump.files.escaping import shown
from sgsdump.registry import hint
from sgsdump.sidecars.ge_proto import Graph, GraphOperator

LONGEST = 100
_HEAD = ("name", "type", "inputs", "attributes")


def selected(graphs: Sequence[Graph], patterns: Sequence[str]) -> list[Graph]:
    """The graphs with the operators whose names fit one of the patterns. Raises ConfigError for one that fits none."""
    names = [operator.name for graph in graphs for operator in graph.operators]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ConfigError(f"no operator fits {pattern!r}{hint(pattern, names)}")
    if not patterns:
        return list(graphs)
    return [replace(graph, operators=tuple(one for one in graph.operators if _fits(one, patterns))) for graph in graphs]


def render(graphs: Sequence[Graph]) -> str:
    parts = []
    for graph in graphs:
        rows = [_HEAD, *map(_row, graph.operators)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
        lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)
        count = len(graph.operators)
        parts += [f"graph {shown(graph.name)}, {count} operator{'' if count == 1 else 's'}", *lines, ""]
    return "\n".join(parts)


def json_document(graphs: Sequence[Graph]) -> str:
    document = [
        {
            "graph": graph.name,
            "operators": [
                {"name": one.name, "type": one.op_type, "inputs": one.inputs, "attributes": dict(one.attributes)}
                for one in graph.operators
            ],
        }
        for graph in graphs
    ]
    return json.dumps(document, indent=1) + "\n"


def _fits(operator: GraphOperator, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(operator.name, pattern) for pattern in patterns)


def _row(operator: GraphOperator) -> tuple[str, ...]:
    attributes = " ".join(f"{name}={_text(value)}" for name, value in operator.attributes)
    cells = (operator.name, operator.op_type, ", ".join(operator.inputs), attributes)
    return tuple(_cut(shown(cell)) for cell in cells)


def _text(value: object) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
