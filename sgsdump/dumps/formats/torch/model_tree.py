"""Reader of ``model_tree.json``: the modules of a model, in the order of their first run.

``{"name": "root", "type": "ResNet", "children": [{"name": "root.conv1", "type": "Conv2d", "children": []}, …]}``
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import decode, read_start
from sgsdump.files.json_yaml import json_of

NAME = "model_tree.json"
MOST_BYTES = 64 << 20


class Modules(NamedTuple):
    """Class of each module, and its position in order of completion: inner modules before outer ones."""

    types: dict[str, str]
    places: dict[str, int]


def read(folder: Path, notes: list[str]) -> Modules:
    """Read the modules from the file in a folder; return none if it is missing or damaged (with a note)."""
    path = folder / NAME
    if not path.is_file() or path.is_symlink():
        return Modules({}, {})
    try:
        content = read_start(path, MOST_BYTES)
        return modules_of(json_of(decode(content, path), path))
    except (FormatError, OSError) as error:
        notes.append(f"{path} cannot be read, so modules have no types: {error}")
        return Modules({}, {})


def modules_of(document: Any) -> Modules:
    """Return the modules of a document; ignore other entries."""
    types: dict[str, str] = {}
    order: list[str] = []
    waiting = [document]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, dict) or not isinstance(node.get("name"), str):
            continue
        kind, children = node.get("type"), node.get("children")
        types.setdefault(node["name"], kind if isinstance(kind, str) else "")
        order.append(node["name"])
        waiting.extend(children if isinstance(children, list) else [])
    # The stack visits outer before inner modules and the last child first. The reverse is the order of completion.
    return Modules(types, {name: place for place, name in enumerate(reversed(order))})
