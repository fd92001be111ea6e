"""What each process of a hooked program wrote of itself: ``processes/{pid}/index.jsonl``, read into records.

A process that was killed has an index without ``{"complete": true}``, its last line perhaps cut off.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sgsdump.errors import FormatError
from sgsdump.files.folder import in_order

PROCESSES, INDEX = "processes", "index.jsonl"
MOST_LINE = 1 << 20


@dataclass(frozen=True)
class Process:
    """One process's index.

    libraries   the libraries that were hooked, with their versions.
    tensors     lines of single inputs and outputs, as ``hook/sgsdump_spool.py`` has them.
    events      lines of any other kind, by their ``event``.
    complete    whether the process came to its end; ``stopped``: why it dumped no further, or "".
    """

    pid: int
    folder: Path
    libraries: tuple[str, ...] = ()
    tensors: tuple[Mapping[str, Any], ...] = ()
    events: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    complete: bool = False
    stopped: str = ""

    @property
    def troubles(self) -> tuple[str, ...]:
        return tuple(str(line.get("text", "")) for line in self.events.get("trouble", ()))


def processes_of(root: Path) -> tuple[Process, ...]:
    """The processes of a dump that have an index, by their number. Raises FormatError."""
    try:
        folders = sorted((root / PROCESSES).iterdir(), key=lambda path: in_order(path.name))
    except OSError:
        return ()
    return tuple(read_process(folder) for folder in folders if folder.name.isdecimal() and (folder / INDEX).is_file())


def read_process(folder: Path) -> Process:
    """A process's index, what can be read of it. Raises FormatError when it cannot be opened."""
    tensors: list[Mapping[str, Any]] = []
    events: dict[str, list[Mapping[str, Any]]] = {}
    complete = False
    try:
        with open(folder / INDEX, encoding="utf-8", errors="replace") as file:
            while text := file.readline(MOST_LINE):
                line = _line(text)
                complete = line is not None and line.get("complete") is True
                if line is None or complete:
                    continue
                if "side" in line:
                    tensors.append(line)
                else:
                    events.setdefault(str(line.get("event", "")), []).append(line)
    except OSError as error:
        raise FormatError(f"cannot read {folder / INDEX}: {error.strerror or error}") from None
    begun = events.get("begin", [])
    libraries = dict.fromkeys(f"{line.get('library')} {line.get('version')}" for line in begun)
    stopped = [str(line.get("text", "")) for line in events.get("stop", [])]
    frozen = {kind: tuple(lines) for kind, lines in events.items()}
    return Process(int(folder.name), folder, tuple(libraries), tuple(tensors), frozen, complete, "".join(stopped[:1]))


def _line(text: str) -> Mapping[str, Any] | None:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, Mapping) else None
