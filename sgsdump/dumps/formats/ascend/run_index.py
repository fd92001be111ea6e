"""``index.jsonl`` of a run that sgsdump itself dumped: whether all of it is there, and what was not dumped.

The first line is ``{"event": "begin", …}``, then a line for each tensor and for each ``{"event": "note", "text": …}``;
``{"complete": true}`` is last. Devices leave no such file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sgsdump.files.bounded_read import open_file

INDEX = "index.jsonl"
CUT_OFF = "the run was cut off, or is still going on: this step is not complete"
MOST_LINE = 1 << 20


def notes_of(folder: Path) -> list[str]:
    """What the index of a folder has to say, a line each; nothing without one."""
    notes: list[str] = []
    complete = True
    try:
        with open_file(folder / INDEX) as file:
            while data := file.readline(MOST_LINE):
                line = _line(data)
                if line.get("event") == "begin":
                    complete = False
                elif line.get("event") == "note":
                    notes.append(str(line.get("text", "")))
                complete = complete or line.get("complete") is True
    except OSError:
        return []
    return notes if complete else [*notes, CUT_OFF]


def _line(data: bytes) -> dict[str, Any]:
    try:
        line = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return line if isinstance(line, dict) else {}
