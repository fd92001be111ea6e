"""What the hooks of ``sgsdump exec`` wrote beside an ATB tree: whether the tree is whole, and files that stand for
others.

The tree's root has ``control.json`` and ``processes/{pid}/index.jsonl``; ``index.json`` is written last. Any folder
below ``tensors/`` may be opened alone, so the root is looked for above it too. Source:
docs/formats/ascend.md#trees-of-a-hooked-program.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sgsdump.dumps.dump import Record
from sgsdump.dumps.formats.atb.hook_lines import Line, lines_in
from sgsdump.dumps.network import Operator, Value
from sgsdump.files.bounded_read import open_file, read_start
from sgsdump.files.folder import leads_out, leads_out_of

CONTROL, INDEX, PROCESSES, LINES = "control.json", "index.json", "processes", "index.jsonl"
_MOST_BYTES, _TAIL = 64 << 20, 4096
_ABOVE = 8
Key = tuple[str, int, int, str]


def missing(path: Path) -> Iterator[str]:
    """What is not complete of the hooks' tree that a folder is in or is, a sentence each; nothing for other folders."""
    root = _root_of(path)
    if root is None:
        return
    document = _json(root / INDEX)
    if document is None:
        yield f"{root.name} has no {INDEX}: it is not complete, for its dump was stopped before the end"
    processes = document.get("processes") if document else None
    known = processes if isinstance(processes, list) else [{"pid": pid, "complete": end} for pid, end in _ends(root)]
    for process in known:
        if isinstance(process, Mapping) and process.get("complete") is not True:
            yield f"it is not complete: process {process.get('pid')} did not come to its end"
        if isinstance(process, Mapping) and process.get("stopped"):
            yield f"it is not complete: {str(process['stopped'])[:300]}"


def equals(path: Path) -> dict[str, str]:
    """Tensors without a file of their own, by their path below a folder -> the path, seen from there, of the file
    with their values."""
    root = _root_of(path)
    document = None if root is None else _json(root / CONTROL)
    if root is None or document is None or document.get("links") != "index":
        return {}
    same_as: dict[str, str] = {}
    folder = path.resolve()
    for process in _folders(root):
        for line in _lines(process / LINES):
            own, same = line.get("file"), line.get("same")
            if not (isinstance(own, str) and isinstance(same, str)) or leads_out(root / same, root):
                continue
            if (root / own).is_relative_to(folder) and not leads_out_of(root, own):
                same_as[(root / own).relative_to(folder).as_posix()] = os.path.relpath(root / same, folder)
    return same_as


def unwritten(path: Path) -> set[str]:
    """The files below a folder that stand for memory to which nothing had been written yet."""
    root = _root_of(path)
    if root is None:
        return set()
    folder = path.resolve().relative_to(root.resolve())
    parts = folder.parts[1:3]  # tensors/{device}_{pid}/{step}
    found = set()
    for process in _folders(root):
        if parts and parts[0].rpartition("_")[2] != process.name:
            continue
        for line in _lines(process / LINES, int(parts[1]) if len(parts) > 1 and parts[1].isdecimal() else None):
            own = line.get("file")
            if line.get("unwritten") is True and isinstance(own, str) and Path(own).is_relative_to(folder):
                found.add(Path(own).relative_to(folder).as_posix())
    return found


def network(
    path: Path, records: Sequence[Record], paths: Mapping[Key, str], key_of: Callable[[Record], Key]
) -> dict[int, Operator]:
    """Where the operators of a dump in the hooks' tree stand, by the index; none of any other tree.

    paths  the file of each record, below ``path``.
    """
    root = _root_of(path)
    if root is None or not paths:
        return {}
    folder = path.resolve().relative_to(root.resolve())
    of_file = {(folder / paths[key]).as_posix(): record for record in records if (key := key_of(record)) in paths}
    _, process_name, step = next(iter(of_file)).split("/")[:3]  # tensors/{device}_{pid}/{step}
    values: defaultdict[int, dict[Value, Hashable]] = defaultdict(dict)
    weights: defaultdict[int, dict[Value, str]] = defaultdict(dict)
    lines: dict[int, Mapping[str, Any]] = {}
    for process in _folders(root):
        if process_name.rpartition("_")[2] != process.name:
            continue
        for line in _lines(process / LINES, int(step) if step.isdecimal() else None):
            record = of_file.get(str(line.get("file")))
            if record is not None:
                lines[record.op_index] = line
                values[record.op_index][record.io, record.slot] = line.get("value")
                if "weight" in line:
                    weights[record.op_index][record.io, record.slot] = _below_root(line["weight"])
    return {index: _operator(line, values[index], weights[index]) for index, line in lines.items()}


def _operator(line: Mapping[str, Any], values: Mapping[Value, Hashable], weights: Mapping[Value, str]) -> Operator:
    """Types of operators have their library's name before a dot, those of modules have none."""
    kind = str(line.get("type", ""))
    return Operator(_below_root(line.get("module", "")), kind, "." not in kind, values, weights)


def _below_root(path: object) -> str:
    """``layer1.conv`` of ``root.layer1.conv``."""
    return str(path).partition(".")[2]


def _root_of(path: Path) -> Path | None:
    """The root of the hooks' tree that a folder is in or is; None for any other folder."""
    path = path.resolve()
    for folder in (path, *path.parents[:_ABOVE]):
        if (folder / CONTROL).is_file() and (folder / PROCESSES).is_dir():
            return folder if folder == path or path.is_relative_to(folder / "tensors") else None
    return None


def _ends(root: Path) -> Iterator[tuple[str, bool]]:
    """Each process and whether its index has its last line."""
    for folder in _folders(root):
        try:
            with open_file(folder / LINES) as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
                last = file.read().strip().rpartition(b"\n")[2]
        except OSError:
            last = b""
        yield folder.name, last == b'{"complete": true}'


def _folders(root: Path) -> list[Path]:
    try:
        return sorted(path for path in (root / PROCESSES).iterdir() if (path / LINES).is_file())
    except OSError:
        return []


def _lines(path: Path, step: int | None = None) -> Iterator[Line]:
    try:
        yield from lines_in(path, step)
    except OSError:
        return


def _json(path: Path) -> Mapping[str, Any] | None:
    try:
        return _object(read_start(path, _MOST_BYTES))
    except OSError:
        return None


def _object(data: bytes) -> Mapping[str, Any] | None:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, Mapping) else None
