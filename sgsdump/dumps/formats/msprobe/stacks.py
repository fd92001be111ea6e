"""``stack.json``, the call stacks of a dump of msprobe's: which line of the program called what.

``{operator: [line, …]}``, newer ones ``{"0": [[operator, …], [line, …]], …}``, the innermost line first: ``File PATH,
line N, in FUNCTION, \\n CODE``.
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
    """Operator -> lines, of either form of ``stack.json``; entries that are neither are left out."""
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
    """A file beside a ``dump.json``; nothing where there is none, or a damaged one: values can be read without it."""
    path = document.with_name(name)
    if not path.is_file() or leads_out(path, path.parent):
        return {}
    try:
        content = json_of(decode(read_bytes(path, _MOST_BYTES), path), path)
    except (FormatError, OSError):
        return {}
    return content if isinstance(content, dict) else {}


def source_of(lines: Sequence[str]) -> str:
    """``net.py:28``, the innermost line of the program itself; "" where there is none."""
    for line in lines:
        match = _LINE.match(line)
        if match and not any(part in match["file"] for part in (*FRAMEWORK, *_TOOLS)):
            return f"{PurePath(match['file']).name}:{match['line']}"
    return ""


def _is_shared(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], list) and _are_lines(entry[1])


def _are_lines(entry: Any) -> bool:
    return isinstance(entry, list) and all(isinstance(line, str) for line in entry)
