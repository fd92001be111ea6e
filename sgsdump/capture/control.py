"""What is dumped of a program that runs: one record, filled from the command line, a vendor's JSON file, or Python.

The front doors keep their own defaults (``defaults``); the hooks read nothing else than this record, which crosses into
the program's process as JSON (``to_json``, ``from_json``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from sgsdump.capture.steps import EVERY, Steps
from sgsdump.errors import ConfigError

Mode = Literal["input", "output", "all"]
Content = Literal["tensor", "stats", "description", "structure"]
When = Literal["before", "after", "both", "inputs-before-outputs-after"]
Links = Literal["none", "symlink", "hardlink", "index"]

# msit's sentence, to the letter; the hooks, which import nothing, have it too.
DISK_FULL = "Disk space is not enough, it's must more than 2G, free size(MB) is:"


@dataclass(frozen=True)
class DumpControl:
    """enabled     False: hooks stand ready and dump nothing (a live configuration may switch them on).
    mode        the side that is dumped: an operator's inputs, outputs, or both.
    steps       runs of the outermost module or of the session, from 0.
    names       exact operator names; empty for all. ``prefixes``: beginnings of the operator's type, in any case;
                ``patterns``: regular expressions on the name. An operator is dumped where any one of the three that
                are given names it. ``models``: graphs (models) by name, "" for any, with the operators that are dumped
                of each, none for all; one more way to be named.
    ids         operator ids as they count in a step (``2``, and ``3_1`` for the first child of 3); ``children``: with
                the operators inside them.
    when        the moment at which values are taken.
    content     full tensors, statistics only, or only what describes them (shape, dtype); "structure" has no file for a
                tensor at all, only its line in the index.
    timing      the time each operator takes on the host, for CPU profiling.
    devices, ranks   numbers to be dumped; empty for all.
    seed        None, or the number that random generators start from, with deterministic algorithms on.
    links       what stands in place of a payload that was dumped before.
    min_free    bytes of free disk under which dumping stops; ``max_bytes``: of the dump as a whole, 0 for no limit.
    scene       "" or "overflow" (only operators whose output holds NaN, Inf or the largest values of their type, with
                their inputs) or "watcher": after each of ``names`` (or every operator) and after themselves the
                outputs of ``watched``.
    """

    enabled: bool = True
    mode: Mode = "all"
    steps: Steps = EVERY
    names: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    models: tuple[tuple[str, tuple[str, ...]], ...] = ()
    ids: tuple[str, ...] = ()
    children: bool = True
    when: When = "inputs-before-outputs-after"
    content: Content = "tensor"
    timing: bool = False
    devices: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    seed: int | None = None
    links: Links = "none"
    min_free: int = 2 << 30
    max_bytes: int = 0
    scene: Literal["", "overflow", "watcher"] = ""
    watched: tuple[str, ...] = ()


def to_json(control: DumpControl) -> str:
    """For the program's process, whose hook reads it with the standard library alone."""
    return json.dumps({**asdict(control), "steps": control.steps.ranges})


def from_json(text: str) -> DumpControl:
    """Raises ConfigError for anything that ``to_json`` did not write."""
    try:
        document = json.loads(text)
        known = {field.name for field in fields(DumpControl)}
        if not isinstance(document, Mapping) or set(document) != known:
            raise ValueError("other keys than a DumpControl's")
        return DumpControl(**{name: _value(name, value) for name, value in document.items()})
    except (ValueError, TypeError) as error:
        raise ConfigError(f"a dump control is damaged: {str(error)[:200]}") from None


def _value(name: str, value: Any) -> Any:
    if name == "steps":
        return Steps(tuple((int(first), int(last)) for first, last in value))
    return _frozen(value)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
