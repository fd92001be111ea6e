"""Operators that were asked for and do not run, reported with the nearest of those that do.

Which operators a program runs is known when it ended; and before it starts, where the same command was dumped into the
same folder before. A type that neither torch nor onnxruntime has is reported before the program starts.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from sgsdump.capture.control import DumpControl, from_json
from sgsdump.capture.operator_types import types_before
from sgsdump.capture.process_index import Process, lines_of, processes_of
from sgsdump.capture.replay.captured import captured_models, opened
from sgsdump.capture.replay.selection import selection
from sgsdump.errors import ConfigError, SgsdumpError
from sgsdump.files.bounded_read import read_start

_SHOWN, _MOST_LINES, _MOST_BYTES, _MOST_TREES = 3, 200_000, 64 << 20, 50


@dataclass(frozen=True)
class Known:
    """What operators are called; no ids where these are not known. ``matched``: what is known to name one."""

    names: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    matched: tuple[str, ...] = ()


def known_of(processes: Sequence[Process]) -> Known:
    """What the processes' hooks were asked about."""
    sides = ("names", "types", "matched")
    found = {side: sorted({name for process in processes for name in getattr(process, side)}) for side in sides}
    ids = {id for process in processes for id in process.ids}
    return Known(**{side: tuple(names) for side, names in found.items()}, ids=tuple(_with_parents(ids)))


def unmatched(control: DumpControl, known: Known) -> Iterator[str]:
    """A sentence for each name, beginning, pattern and id that no operator answers to."""
    if known.ids:
        for id in control.ids:
            if id not in known.ids:
                yield f"no operator has the id {id}{_beside(id, set(known.ids))}"
    if not known.names and not known.types:
        return
    for name in dict.fromkeys([*control.names, *(name for _, layer in control.models for name in layer)]):
        if name not in (*known.names, *known.matched):
            yield f"no operator {name!r} ran{_near(name, known.names)}"
    for prefix in control.prefixes:
        if prefix not in known.matched and not any(_begins(kind, prefix) for kind in known.types):
            near = _near(prefix, [*known.types, *map(_short, known.types)])
            yield f"no operator ran whose type begins with {prefix!r}{near}"
    for pattern in control.patterns:
        if pattern not in known.matched and not any(re.search(pattern, name) for name in known.names):
            yield f"no operator ran whose name matches {pattern!r}"


def check_names(control: DumpControl, output: Path, command: Sequence[str]) -> None:
    """Raises ConfigError for what did not run when the same command was last dumped, whole, into ``output``."""
    if not (control.ids or control.names or control.prefixes or control.patterns or control.models):
        return
    tree = _last(output, list(command), control)
    known = None if tree is None else _known_in(tree)
    lacking = [] if known is None else list(unmatched(control, known))
    if lacking:
        raise ConfigError(f"{lacking[0]}, as {tree} of this command shows; to run it all the same name another -o")


def told_types(prefixes: Sequence[str], program: str) -> Iterator[str]:
    """A sentence, before the program runs, for each beginning of a type that it alone may have."""
    types = types_before(program) if prefixes else frozenset()
    for prefix in prefixes:
        if types and not any(_begins(kind, prefix) for kind in types):
            near = _near(prefix, sorted(map(_short, types)))
            yield (
                f"no operator type of torch or onnxruntime begins with {prefix!r}{near}; it is looked for among the "
                f"program's own modules and operators"
            )


def _last(output: Path, command: list[str], control: DumpControl) -> Path | None:
    """The last tree of the same command and steps in which every operator was dumped."""
    for tree in sorted(output.glob("msit_dump_*"), reverse=True)[:_MOST_TREES]:
        try:
            index = json.loads(read_start(tree / "index.json", _MOST_BYTES))
            earlier = from_json(read_start(tree / "control.json", _MOST_BYTES).decode("utf-8"))
        except (OSError, ValueError, SgsdumpError):
            continue
        if _tells_all(index, earlier, command) and earlier.steps == control.steps:
            return tree
    return None


def _tells_all(index: Any, earlier: DumpControl, command: list[str]) -> bool:
    whole = isinstance(index, dict) and index.get("complete") is True and index.get("command") == command
    chosen = earlier.names or earlier.prefixes or earlier.patterns or earlier.models or earlier.ids
    return whole and earlier.children and not chosen


def _known_in(tree: Path) -> Known | None:
    """None where the operators of a model are not to be had any more."""
    names: dict[str, None] = {}
    types: dict[str, None] = {}
    ids: dict[str, None] = {}
    processes = processes_of(tree)
    for process in processes:
        for line in islice(lines_of(process.folder), _MOST_LINES):
            if "op" in line and "id" in line:
                names[str(line["op"])] = types[str(line.get("type"))] = ids[str(line["id"])] = None
    for model in captured_models(tree, processes):
        try:
            graph = opened(model).proto.graph
        except SgsdumpError:
            return None
        all_of_it = selection(DumpControl(), graph, model.name)
        names |= dict.fromkeys(all_of_it.names)
        types |= dict.fromkeys(all_of_it.types)
        ids |= dict.fromkeys(map(str, range(len(graph.node))))
    return Known(tuple(names), tuple(types), tuple(_with_parents(ids)))


def _with_parents(ids: Iterable[str]) -> Iterator[str]:
    """``3_1`` and the 3 it is in."""
    for id in ids:
        parts = id.split("_")
        yield from ("_".join(parts[: count + 1]) for count in range(len(parts)))


def _begins(kind: str, prefix: str) -> bool:
    return any(text.lower().startswith(prefix.lower()) for text in (kind, _short(kind)))


def _short(kind: str) -> str:
    """``addmm`` of ``aten.addmm``."""
    return kind.partition(".")[2] or kind


def _beside(id: str, known: set[str]) -> str:
    """Which ids there are where one is not."""
    parent, _, _ = id.rpartition("_")
    if parent and parent not in known:
        return _beside(parent, known)
    beside = sorted(int(each.rpartition("_")[2]) for each in known if each.rpartition("_")[0] == parent)
    if not beside:
        return f"; {parent} has no operators inside"
    stem = f"{parent}_" if parent else ""
    return f"; there are {stem}{beside[0]} to {stem}{beside[-1]}{' inside it' if parent else ''}"


def _near(name: str, names: Sequence[str]) -> str:
    lower = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), lower, _SHOWN, cutoff=0.5)
    return f"; near it are {', '.join(lower[found] for found in near)}" if near else ""
