"""Requested operators that do not run, reported with similar names of operators that do.

The operators of a program are known after it ended, or before it starts if the same command was dumped into the same
folder before. A type that neither torch nor onnxruntime has is reported before the start: the program may still define
it, as a module class of its own or a registered operator.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import islice
from operator import or_
from pathlib import Path
from typing import Any

from sgsdump.capture.programs.captured_models import captured_models, opened, selection
from sgsdump.capture.programs.control import DumpControl, from_json
from sgsdump.capture.programs.process_index import OperatorNames, Process, lines_of, processes_of
from sgsdump.errors import ConfigError, SgsdumpError
from sgsdump.files.bounded_read import decode, read_bytes, read_start

OPERATORS, MODULES = Path("torchgen/packaged/ATen/native/native_functions.yaml"), Path("torch/nn/modules/__init__.py")
_OPERATOR = re.compile(r"^- func: (\w+)", re.MULTILINE)
_MODULE = re.compile(r"^    (\w+),$", re.MULTILINE)
_SHOWN, _MOST_LINES, _MOST_BYTES, _MOST_FILE_BYTES, _MOST_TREES = 3, 200_000, 64 << 20, 16 << 20, 50


def names_in(processes: Sequence[Process]) -> OperatorNames:
    """Return the operators that the processes' hooks met."""
    return reduce(or_, (process.operators for process in processes), OperatorNames())


def unmatched(control: DumpControl, ran: OperatorNames) -> Iterator[str]:
    """Yield a sentence for each name, beginning, pattern and id that matches no operator."""
    operators = control.operators
    if ran.ids:
        ids = frozenset(_with_parents(ran.ids))
        for id in operators.ids:
            if id not in ids:
                yield f"no operator has the id {id}{_beside(id, ids)}"
    if not ran.names and not ran.types:
        return
    for name in dict.fromkeys([*operators.names, *(name for _, layers in operators.models for name in layers)]):
        if name not in ran.names | ran.matched:
            yield f"no operator {name!r} ran{_near(name, ran.names)}"
    if operators.module and operators.module not in ran.matched:
        yield f"no module or network {operators.module!r} ran{_near(operators.module, ran.names)}"
    for prefix in operators.prefixes:
        if prefix not in ran.matched and not any(_begins(kind, prefix) for kind in ran.types):
            near = _near(prefix, [*ran.types, *map(_short, ran.types)])
            yield f"no operator with a type that begins with {prefix!r} ran{near}"
    for pattern in operators.patterns:
        if pattern not in ran.matched and not any(re.search(pattern, name) for name in ran.names):
            yield f"no operator with a name that matches {pattern!r} ran"


def check_names(control: DumpControl, output: Path, command: Sequence[str]) -> None:
    """Raise ConfigError for operators missing in the last complete dump of the same command into ``output``."""
    if not (control.operators.ids or control.operators.named):
        return
    tree = _last_tree(output, list(command), control)
    ran = None if tree is None else _names_in_tree(tree)
    lacking = [] if ran is None else list(unmatched(control, ran))
    if lacking:
        raise ConfigError(
            f"in the previous dump of this command ({tree}), {lacking[0]}. To run the program anyway, "
            "select another output folder with -o."
        )


def told_types(prefixes: Sequence[str], program: str) -> Iterator[str]:
    """Yield a sentence, before the program runs, for each type beginning that only the program may define."""
    types = _types_before(program) if prefixes else frozenset()
    for prefix in prefixes:
        if types and not any(_begins(kind, prefix) for kind in types):
            near = _near(prefix, map(_short, types))
            yield (
                f"no operator type of torch or onnxruntime begins with {prefix!r}{near}; only the "
                "program's own modules and operators can match"
            )


def _last_tree(output: Path, command: list[str], control: DumpControl) -> Path | None:
    """Return the last tree of the same command and steps in which every operator was dumped."""
    for tree in sorted(output.glob("msit_dump_*"), reverse=True)[:_MOST_TREES]:
        try:
            index = json.loads(read_start(tree / "index.json", _MOST_BYTES))
            earlier = from_json(read_start(tree / "control.json", _MOST_BYTES).decode("utf-8"))
        except (OSError, ValueError, SgsdumpError):
            continue
        if _has_all_operators(index, earlier, command) and earlier.steps == control.steps:
            return tree
    return None


def _has_all_operators(index: Any, earlier: DumpControl, command: list[str]) -> bool:
    whole = isinstance(index, dict) and index.get("complete") is True and index.get("command") == command
    return whole and earlier.operators.children and not (earlier.operators.named or earlier.operators.ids)


def _names_in_tree(tree: Path) -> OperatorNames | None:
    """Return the operators of a tree; None if a model's operators are no longer available."""
    processes = processes_of(tree)
    lines = (line for process in processes for line in islice(lines_of(process.folder), _MOST_LINES))
    ran = [(str(line["op"]), str(line.get("type")), str(line["id"])) for line in lines if "op" in line and "id" in line]
    names, types, ids = map(frozenset, zip(*ran, strict=True)) if ran else (frozenset(),) * 3
    operators = OperatorNames(names, types, ids=ids)
    for model in captured_models(tree, processes):
        try:
            operators |= selection(DumpControl(), opened(model).proto.graph, model.name).operators
        except SgsdumpError:  # noqa: PERF203 - the first missing model ends the loop
            return None
    return operators


def _types_before(program: str) -> frozenset[str]:
    """Return the operator types of torch and onnxruntime, such as ``aten.addmm``, ``Linear``, ``Conv``.

    torch's types come from the files of the program's torch, because importing it takes seconds. Empty if that torch is
    not found: no type can then be checked.
    """
    for folder in _package_folders(program):
        try:
            operators, modules = (
                decode(read_bytes(folder / file, _MOST_FILE_BYTES), folder / file) for file in (OPERATORS, MODULES)
            )
        except SgsdumpError:
            continue
        from sgsdump.executors.onnx_runtime.session import operator_types

        aten = {f"aten.{name}" for name in _OPERATOR.findall(operators)}
        return frozenset(aten | set(_MODULE.findall(modules))) | operator_types()
    return frozenset()


def _package_folders(program: str) -> Iterator[Path]:
    """Yield folders of installed packages: of the program if it is a Python, else of this Python."""
    yield from map(Path, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    python = shutil.which(program)
    if python is not None and Path(python).name.startswith("python"):
        yield from Path(python).absolute().parents[1].glob("lib/python3*/*-packages")
    yield from map(Path, sys.path)


def _with_parents(ids: Iterable[str]) -> Iterator[str]:
    """Yield each id and the ids that contain it: ``3_1`` and ``3``."""
    for id in ids:
        parts = id.split("_")
        yield from ("_".join(parts[: count + 1]) for count in range(len(parts)))


def _begins(kind: str, prefix: str) -> bool:
    return any(text.lower().startswith(prefix.lower()) for text in (kind, _short(kind)))


def _short(kind: str) -> str:
    """Return ``addmm`` for ``aten.addmm``."""
    return kind.partition(".")[2] or kind


def _beside(id: str, ids: frozenset[str]) -> str:
    """Return which ids exist next to a missing one."""
    parent, _, _ = id.rpartition("_")
    if parent and parent not in ids:
        return _beside(parent, ids)
    beside = sorted(int(sibling.rpartition("_")[2]) for sibling in ids if sibling.rpartition("_")[0] == parent)
    if not beside:
        return f"; {parent} has no operators inside"
    stem = f"{parent}_" if parent else ""
    return f"; the existing ids {'inside the parent ' if parent else ''}are {stem}{beside[0]} to {stem}{beside[-1]}"


def _near(name: str, names: Iterable[str]) -> str:
    lower = {candidate.lower(): candidate for candidate in sorted(names)}
    near = difflib.get_close_matches(name.lower(), lower, _SHOWN, cutoff=0.5)
    return f"; similar names: {', '.join(map(lower.__getitem__, near))}" if near else ""
