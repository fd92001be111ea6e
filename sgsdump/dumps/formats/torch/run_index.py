"""Reader of a run's ``index.jsonl``: the dumped tensors in time order, written line by line while the program runs.

::

    {"name": "root.conv1/output", "file": "root.conv1/output.pth", "module": "root.conv1", "type": "Conv2d",
     "side": "out", "slot": 0, "dtype": "float32", "shape": [1, 8, 4, 4], "stats": {"max": 1.5, "min": 0.0,
     "mean": 0.25, "l2norm": 3.0}}
    {"event": "arguments", "module": "root.norm", "type": "LayerNorm", "param": {"eps": 1e-05}}
    {"event": "note", "text": "root.attention, input is left out, and others like it: a nested tensor has no shape"}
    {"complete": true}

``file`` is null if only statistics were dumped; ``stats`` is null if only values were dumped. If the program was
killed, the last line is missing; the lines before it are complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from sgsdump.dumps.dump import as_arguments
from sgsdump.dumps.format import json_object
from sgsdump.files.bounded_read import read_all
from sgsdump.tensors.statistics import Statistics

NAME = "index.jsonl"
MOST_BYTES = 256 << 20
_MOST_NOTE = 1000
_STATISTICS = ("min", "max", "mean", "l2norm")


class Entry(NamedTuple):
    """One line: a tensor of an operator, in a file (path relative to the run) or as statistics only."""

    name: str
    file: str
    module: str
    type: str
    side: str
    slot: int
    dtype: str
    shape: tuple[int, ...] | None
    statistics: Statistics | None


class Index(NamedTuple):
    """Entries in order; ``complete`` if the program closed the run; non-tensor arguments by module or function."""

    entries: tuple[Entry, ...]
    complete: bool
    arguments: Mapping[str, Mapping[str, str]] = MappingProxyType({})


def read(folder: Path, notes: list[str]) -> Index | None:
    """Read the index of a run's folder; None if there is none. Damaged lines are noted. Raises FormatError."""
    path = folder / NAME
    if not path.is_file() or path.is_symlink():
        return None
    content = read_all(path, MOST_BYTES, "the index of a run")
    entries, complete, damaged = [], False, 0
    arguments: dict[str, Mapping[str, str]] = {}
    for line in content.splitlines():
        document = json_object(line)
        entry = None if document is None else _entry(document)
        if entry is not None:
            entries.append(entry)
        elif document is not None and document.get("event") == "arguments":
            arguments[str(document.get("module"))] = as_arguments(document.get("param"))
        elif document is not None and document.get("event") == "note":
            notes.append(str(document.get("text", ""))[:_MOST_NOTE])
        elif document is not None and document.get("complete") is True:
            complete = True
        else:
            damaged += 1
    if damaged:
        notes.append(f"{path}: left out {damaged} lines that are cut off or damaged")
    if not complete:
        notes.append(f"{folder} is not complete: the program ended during the run")
    return Index(tuple(entries), complete, arguments)


def _entry(line: Mapping[str, Any]) -> Entry | None:
    words = [line.get(key) for key in ("name", "module", "type", "side", "dtype")]
    if not all(isinstance(word, str) for word in words) or line["side"] not in ("in", "out"):
        return None
    slot, shape, file = line.get("slot"), line.get("shape"), line.get("file")
    if type(slot) is not int or not 0 <= slot < 2**31:
        return None
    sizes = shape if isinstance(shape, list) else []
    fits = len(sizes) <= 32 and all(type(size) is int and 0 <= size < 2**60 for size in sizes)
    return Entry(
        line["name"],
        file if isinstance(file, str) else "",
        line["module"],
        line["type"],
        line["side"],
        slot,
        line["dtype"],
        tuple(sizes) if isinstance(shape, list) and fits else None,
        _statistics(line.get("stats")),
    )


def _statistics(stored: Any) -> Statistics | None:
    if not isinstance(stored, Mapping):
        return None
    low, high, mean, norm = (_number(stored.get(name)) for name in _STATISTICS)
    return Statistics(low, high, mean, norm)


def _number(value: Any) -> float | None:
    if isinstance(value, float):
        return value
    return float(value) if type(value) is int and abs(value) < 2**63 else None
