"""``model_tree.json``: the modules of a network, in the order in which they first ran.

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
    """The class of each module, and the place at which it was done: inner ones are before the outer one."""

    types: dict[str, str]
    places: dict[str, int]


def read(folder: Path, notes: list[str]) -> Modules:
    """The modules by the file in a folder; none where it is missing or damaged, the latter noted."""
    path = folder / NAME
    if not path.is_file() or path.is_symlink():
        return Modules({}, {})
    try:
        content = read_start(path, MOST_BYTES)
        return modules_of(json_of(decode(content, path), path))
    except (FormatError, OSError) as error:
        notes.append(f"{path} is left out, so modules have no types: {error}")
        return Modules({}, {})


def modules_of(document: Any) -> Modules:
    """The modules of a document; other things in it are passed over."""
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
    # Taken from the last child to the first, outer before inner: the reverse is the order in which they were done.
    return Modules(types, {name: place for place, name in enumerate(reversed(order))})
