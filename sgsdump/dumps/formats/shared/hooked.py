"""Reader of the index that the hooks of ``sgsdump exec`` write: completeness, shared files, operators and environment.

The tree's root has ``control.json`` and ``processes/{pid}/index.jsonl``; ``index.json`` is written last. A user may
open any folder below ``tensors/`` alone, so the root is also searched in parent folders. ``index.jsonl`` describes each
operator once, and the values of its tensors in each step. ``Lines`` combines both into a full line per input and
output. Specification: docs/formats/ascend.md#trees-of-a-hooked-program.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from sgsdump.dumps.dump import Call, Environment, Operator, Record, SourceLines, Value, as_arguments
from sgsdump.dumps.format import json_object
from sgsdump.dumps.outside_operators import OutermostModule, OutsideOperator, OutsideTensor
from sgsdump.files.bounded_read import open_file, read_start
from sgsdump.files.folder import leads_out, leads_out_of

Line = Mapping[str, Any]
Key = tuple[str, int, int, str]
CONTROL, INDEX, PROCESSES, LINES = "control.json", "index.json", "processes", "index.jsonl"
MOST_BYTES = 1 << 20
_MOST_JSON, _TAIL = 64 << 20, 4096
# Lines of several steps are interleaved if threads run in parallel; at most this many steps are kept.
_OPEN_STEPS = 64
_ABOVE = 8
STEP, BETWEEN, ENVIRONMENT, _GROUPS = (
    "step",
    "between",
    "environment",
    ("selection", "versions", "variables", "settings", "random"),
)
_MOST_SOURCE = 300
_SOURCE_LINE, _MOST_PLACES, _MOST_CODE, _MOST_CODE_LINE = b'{"event": "source", ', 10_000, 5, 300
_PLACE = re.compile(r".+:([0-9]{1,9})", re.DOTALL)


class Lines:
    """Decoder of the index lines of process ``pid``, read in order.

    ``pid`` is None for the index of a round, where tensors have no files.
    """

    def __init__(self, pid: str | None) -> None:
        self._pid = pid
        self._operators: dict[int, Line] = {}
        self._values: dict[int, dict[int, Line]] = {}

    def read(self, data: bytes) -> list[Line]:
        """Return the full lines for an index line; [] if the line is damaged."""
        line = json_object(data)
        if line is None:
            return []
        number = line.get("place")
        if isinstance(number, int):
            self._operators[number] = {key: line[key] for key in line if key != "place"}
            return []
        if "at" not in line:
            return [line]
        operator = self._operators.get(line["at"]) if isinstance(line["at"], int) else None
        if operator is None:
            return []
        return list(self._tensors(operator, line)) if "values" in line else [{**operator, **line}]

    def _tensors(self, operator: Line, line: Line) -> Iterator[Line]:
        step, side, moment, values = (line.get(key) for key in ("step", "side", "moment", "values"))
        first = line.get("slot", 0)
        if not (isinstance(step, int) and isinstance(first, int) and isinstance(values, list)):
            return
        earlier = self._of_step(step)
        for slot, stored in enumerate(values, first):
            value = earlier.get(stored) if isinstance(stored, int) else stored
            if not isinstance(value, Mapping):
                continue
            number = value.get("value")
            if isinstance(number, int):
                earlier[number] = value
            yield self._full(operator, {"step": step, "side": side, "slot": slot, "moment": moment, **value})

    def _full(self, operator: Line, tensor: dict[str, Any]) -> Line:
        full = {**operator, **tensor}
        if self._pid is None:
            return full
        if "file" not in full:
            folders = full.get("folders")
            inside = "/".join(map(str, folders)) if isinstance(folders, list) else ""
            full["file"] = (
                f"tensors/{full.get('device')}_{self._pid}/{full['step']}/{inside}/"
                f"{full['moment']}/{full['side']}tensor{full['slot']}.bin"
            )
        for kind in ("link", "same"):
            if kind in full and full[kind] == full["file"]:
                del full[kind]
        return full

    def _of_step(self, step: int) -> dict[int, Line]:
        values = self._values.setdefault(step, {})
        if len(self._values) > _OPEN_STEPS:
            del self._values[next(iter(self._values))]
        return values


def lines_in(path: Path, step: int | None = None) -> Iterator[Line]:
    """Yield the readable lines of an index, optionally of one ``step`` only. Raises OSError."""
    lines = Lines(path.parent.name)
    of_step = f'{{"step": {step},'.encode()
    with open_file(path) as file:
        while data := file.readline(MOST_BYTES):
            if step is None or data.startswith(of_step) or not data.startswith(b'{"step": '):
                yield from lines.read(data)


def missing(path: Path) -> Iterator[str]:
    """Yield messages about missing parts of the hooks' tree that contains ``path``; nothing for other folders."""
    root = _root_of(path)
    if root is None:
        return
    document = _json(root / INDEX)
    if document is None:
        yield f"{root.name} is not complete: it has no {INDEX}, because the dump was stopped before its end"
    processes = document.get("processes") if document else None
    if not isinstance(processes, list):
        processes = [{"pid": pid, "complete": end} for pid, end in _ends(root)]
    for process in processes:
        if not isinstance(process, Mapping):
            continue
        if process.get("complete") is not True:
            yield f"the dump is not complete: process {process.get('pid')} did not finish"
        if process.get("stopped"):
            yield f"the dump is not complete: {str(process['stopped'])[:300]}"


def equals(path: Path) -> dict[str, str]:
    """Map tensors without their own file to the file with their values; both paths are relative to the folder."""
    root = _root_of(path)
    document = None if root is None else _json(root / CONTROL)
    if root is None or document is None or document.get("links") != "index":
        return {}
    same_as: dict[str, str] = {}
    folder = path.resolve()
    for line in _lines(root):
        file, same = line.get("file"), line.get("same")
        if not (isinstance(file, str) and isinstance(same, str)) or leads_out(root / same, root):
            continue
        if (root / file).is_relative_to(folder) and not leads_out_of(root, file):
            same_as[(root / file).relative_to(folder).as_posix()] = Path(
                os.path.relpath(root / same, folder)
            ).as_posix()
    return same_as


def unwritten(path: Path) -> set[str]:
    """Return the files below a folder that stand for memory that was not written yet."""
    root = _root_of(path)
    if root is None:
        return set()
    folder = path.resolve().relative_to(root.resolve())
    lines = (line for line in _lines(root, folder) if line.get("unwritten") is True)
    files = (Path(file) for line in lines if isinstance(file := line.get("file"), str))
    return {file.relative_to(folder).as_posix() for file in files if file.is_relative_to(folder)}


def environment(path: Path) -> Environment:
    """Return the environment of the step in a folder of the hooks' tree; {} if unknown."""
    root = _root_of(path)
    if root is None:
        return {}
    lines = _lines(root, path.resolve().relative_to(root.resolve()))
    return next((environment_of(line) for line in lines if line.get("event") == ENVIRONMENT), {})


def between(path: Path) -> tuple[OutsideOperator, ...]:
    """Return the operators that ran outside modules before the step in a folder of the hooks' tree."""
    root = _root_of(path)
    if root is None:
        return ()
    lines = _lines(root, path.resolve().relative_to(root.resolve()))
    return next((outside_operators(line) for line in lines if line.get("event") == BETWEEN), ())


def outermost(path: Path) -> OutermostModule:
    """Return the outermost module of the step in a folder of the hooks' tree."""
    root = _root_of(path)
    found = OutermostModule()
    if root is None:
        return found
    place = path.resolve().relative_to(root.resolve())
    for line in _lines(root, place):
        if line.get("event") == STEP and str(line.get("step")) in place.parts:
            found = with_step(found, line)
    return found


def with_step(known: OutermostModule, line: Line) -> OutermostModule:
    """Return the outermost module, updated from the line of its start or end."""
    values = {side: line.get(side) for side in ("inputs", "outputs")}
    ends = {
        side: tuple(numbers)
        for side, numbers in values.items()
        if isinstance(numbers, list) and all(map(_is_number, numbers))
    }
    inputs, outputs = (ends.get(side, getattr(known, side)) for side in values)
    return OutermostModule(str(line.get("model") or ""), inputs, outputs)


def outside_operators(line: Line) -> tuple[OutsideOperator, ...]:
    """Return the operators in a line between two rounds (written by ``capture/programs/hook``)."""
    operators = line.get("operators")
    entries = [entry for entry in operators if isinstance(entry, Mapping)] if isinstance(operators, list) else []
    return tuple(
        OutsideOperator(
            str(entry.get("type", "")),
            str(entry.get("source", ""))[:_MOST_SOURCE],
            as_arguments(entry.get("param")),
            _outside_tensors(entry.get("in")),
            _outside_tensors(entry.get("out")),
        )
        for entry in entries
    )


def _outside_tensors(tensors: object) -> tuple[OutsideTensor, ...]:
    found = []
    for tensor in tensors if isinstance(tensors, list) else ():
        match tensor:
            case [str(dtype), list(shape), int() | None as checksum, list() | None as figures]:
                sizes = tuple(size for size in shape if isinstance(size, int))
                found.append(OutsideTensor(dtype, sizes, checksum, _figures_of(figures)))
    return tuple(found)


def _figures_of(figures: list[Any] | None) -> tuple[float, ...]:
    try:
        return tuple(map(float, figures or ()))
    except (TypeError, ValueError):
        return ()


def source_lines(path: Path) -> SourceLines:
    """Return the code around the program's lines, for a step's folder or a round in the hooks' tree; {} if not kept.

    If several processes kept code of the same place, the process of the step wins, then the first one.
    """
    root = _root_of(path, ("tensors", "rounds"))
    control = None if root is None else _json(root / CONTROL)
    if root is None or control is None or control.get("with_source") is not True:
        return {}
    place = path.resolve().relative_to(root.resolve()).parts  # tensors/{device}_{pid}/… or rounds/{rank}_{pid}/…
    own = place[1].rpartition("_")[2] if len(place) > 1 else ""
    found: dict[str, tuple[int, tuple[str, ...]]] = {}
    for process in sorted(_folders(root), key=lambda folder: folder.name != own):
        with suppress(OSError), open_file(process / LINES) as file:
            while len(found) < _MOST_PLACES and (data := file.readline(MOST_BYTES)):
                if data.startswith(_SOURCE_LINE) and (line := json_object(data)) is not None:
                    _add_source(found, line)
    return found


def _add_source(found: dict[str, tuple[int, tuple[str, ...]]], line: Line) -> None:
    """Add the code in a line; ignore a damaged line."""
    source, first, lines = (line.get(key) for key in ("source", "first", "lines"))
    if not (isinstance(source, str) and type(first) is int and isinstance(lines, list)):
        return
    number = _PLACE.fullmatch(source[:_MOST_SOURCE])
    if not (number and len(lines) <= _MOST_CODE and all(isinstance(text, str) for text in lines)):
        return
    if 0 < first <= int(number[1]) < first + len(lines):
        found.setdefault(source, (first, tuple(text[:_MOST_CODE_LINE] for text in lines)))


def environment_of(line: Line) -> Environment:
    """Return the environment in a line."""
    groups = ((group, facts) for group in _GROUPS if isinstance(facts := line.get(group), Mapping))
    return {(group, str(name)): str(value)[:_MOST_SOURCE] for group, facts in groups for name, value in facts.items()}


def network(
    path: Path, records: Sequence[Record], paths: Mapping[Key, str], key_of: Callable[[Record], Key]
) -> dict[int, Operator]:
    """Return the operators of a dump in the hooks' tree from the index; {} for any other tree.

    paths  file of each record, relative to ``path``.
    """
    root = _root_of(path)
    if root is None or not paths:
        return {}
    folder = path.resolve().relative_to(root.resolve())
    of_file = {(folder / paths[key]).as_posix(): record for record in records if (key := key_of(record)) in paths}
    return network_of(_lines(root, Path(next(iter(of_file)))), lambda line: of_file.get(str(line.get("file"))))


def network_of(lines_of_run: Iterable[Line], record_of: Callable[[Line], Record | None]) -> dict[int, Operator]:
    """Return the operators of a run from its lines.

    ``record_of`` returns the record of a tensor's line, or None if the tensor is not in the dump.
    """
    values: defaultdict[int, dict[Value, Hashable]] = defaultdict(dict)
    weights: defaultdict[int, dict[Value, str]] = defaultdict(dict)
    parts: defaultdict[int, dict[Value, tuple[Hashable, ...]]] = defaultdict(dict)
    lines: dict[int, Mapping[str, Any]] = {}
    calls: dict[str, Line] = {}
    for line in lines_of_run:
        if line.get("event") == "operator":
            calls[_called(line)] = line
        record = record_of(line)
        if record is not None:
            lines[record.op_index] = line
            values[record.op_index][record.io, record.slot] = line.get("value")
            if isinstance(line.get("parts"), list):
                parts[record.op_index][record.io, record.slot] = tuple(filter(_is_number, line["parts"]))
            if "weight" in line:
                weights[record.op_index][record.io, record.slot] = _below_root(line["weight"])
    return {
        index: replace(_operator(line, values[index], weights[index], calls.get(_called(line), {})), parts=parts[index])
        for index, line in lines.items()
    }


def _operator(
    line: Mapping[str, Any],
    values: Mapping[Value, Hashable],
    weights: Mapping[Value, str],
    called: Line,
) -> Operator:
    """Return the operator of a line. Operator types have a library prefix and a dot, module types have no dot."""
    kind, arguments = str(line.get("type", "")), as_arguments(called.get("param"))
    call, module = _call(called.get("call")), _below_root(line.get("module", ""))
    source = str(line.get("source", ""))[:_MOST_SOURCE]
    return Operator(module, kind, "." not in kind, values, weights, arguments, source, call)


def _is_number(value: object) -> bool:
    return isinstance(value, int)


def _call(call: object) -> Call | None:
    if not isinstance(call, Mapping) or not isinstance(call.get("tensors"), list):
        return None
    return Call(str(call.get("overload", "")), tuple(map(str, call["tensors"])))


def _called(line: Mapping[str, Any]) -> str:
    """Return the key of an operator's call within a step."""
    return json.dumps([line.get(key) for key in ("model", "id", "folders")])


def _below_root(path: object) -> str:
    """Return ``layer1.conv`` for ``root.layer1.conv``."""
    return str(path).partition(".")[2]


def _root_of(path: Path, below: Sequence[str] = ("tensors",)) -> Path | None:
    """Return the root of the hooks' tree that has the path in a folder of ``below``; None for any other path."""
    path = path.resolve()
    for folder in (path, *path.parents[:_ABOVE]):
        if (folder / CONTROL).is_file() and (folder / PROCESSES).is_dir():
            return folder if folder == path or any(path.is_relative_to(folder / name) for name in below) else None
    return None


def _ends(root: Path) -> Iterator[tuple[str, bool]]:
    """Yield each process and whether its index is complete."""
    for folder in _folders(root):
        try:
            with open_file(folder / LINES) as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
                last = file.read().strip().rpartition(b"\n")[2]
        except OSError:
            last = b""
        yield folder.name, last == b'{"complete": true}'


def _folders(root: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(path for path in (root / PROCESSES).iterdir() if (path / LINES).is_file())
    return []


def _lines(root: Path, place: Path = Path()) -> Iterator[Line]:
    """Yield the lines of all processes, or of the process and step of ``place``, a path relative to the root."""
    device, step, *_ = (*place.parts[1:3], "", "")  # tensors/{device}_{pid}/{step}
    for process in _folders(root):
        if device and device.rpartition("_")[2] != process.name:
            continue
        with suppress(OSError):
            yield from lines_in(process / LINES, int(step) if step.isdecimal() else None)


def _json(path: Path) -> Mapping[str, Any] | None:
    with suppress(OSError):
        return json_object(read_start(path, _MOST_JSON))
    return None
