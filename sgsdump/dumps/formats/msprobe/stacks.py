"""Reader of msprobe's ``stack.json``: the call stack of each operator.

The form is ``{operator: [line, …]}`` or, in newer versions, ``{"0": [[operator, …], [line, …]], …}``. The innermost
line comes first: ``File PATH, line N, in FUNCTION, \\n CODE``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import decode, read_bytes
from sgsdump.files.folder import leads_out
from sgsdump.files.json_yaml import json_of

CONSTRUCT, STACK = "construct.json", "stack.json"
FRAMEWORK = ("site-packages/torch", "package/torch", "site-packages/mindspore", "package/mindspore")
_MOST_BYTES = 256 << 20
_TOOLS = ("msprobe", "MindSpeed")
_LINE = re.compile(r"File (?P<file>[^,]+), line (?P<line>\d{1,9})\b", re.ASCII)

Stacks = Mapping[str, Sequence[str]]


def stacks_of(document: Any) -> Stacks:
    """Return the stack lines by operator, from either form of ``stack.json``; skip other entries."""
    if not isinstance(document, dict):
        return {}
    stacks: dict[str, Sequence[str]] = {}
    for name, entry in document.items():
        if _is_shared(entry):
            stacks.update(dict.fromkeys(filter(lambda operator: isinstance(operator, str), entry[0]), entry[1]))
        elif _are_lines(entry):
            stacks[name] = entry
    return stacks


def beside(document: Path, name: str) -> Mapping[str, Any]:
    """Return the content of an optional file beside a ``dump.json``; {} if it is missing or damaged."""
    path = document.with_name(name)
    if not path.is_file() or leads_out(path, path.parent):
        return {}
    try:
        content = json_of(decode(read_bytes(path, _MOST_BYTES), path), path)
    except (FormatError, OSError):
        return {}
    return content if isinstance(content, dict) else {}


def source_of(lines: Sequence[str]) -> str:
    """Return the innermost line of the user's program, ``net.py:28``; "" if there is none."""
    for line in lines:
        match = _LINE.match(line)
        if match and not any(part in match["file"] for part in (*FRAMEWORK, *_TOOLS)):
            return f"{PurePath(match['file']).name}:{match['line']}"
    return ""


def _is_shared(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], list) and _are_lines(entry[1])


def _are_lines(entry: Any) -> bool:
    return isinstance(entry, list) and all(isinstance(line, str) for line in entry)
