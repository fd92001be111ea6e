"""The onnxruntime models that a program ran, and which of their tensors a ``DumpControl`` selects.

The hook ``hook/sgsdump_hook_ort.py`` records models and runs. Its docstring specifies the recorded lines.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.capture.programs.control import DumpControl, OperatorFilter
from sgsdump.capture.programs.process_index import Line, OperatorNames, Process, own_lines
from sgsdump.errors import ConfigError, InputError, ModelError
from sgsdump.files.folder import leads_out_of
from sgsdump.models.model import Model, open_model
from sgsdump.tensors.dtypes import dtype_named, packed_size, unpacked

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto


@dataclass(frozen=True)
class Value:
    """One input or output of a run; ``why`` is the reason why its values were not kept, or ""."""

    name: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    file: Path | None = None
    why: str = ""

    def array(self) -> np.ndarray:
        """Return the values. Raises InputError if they were not kept or the file is damaged."""
        if self.file is None:
            raise InputError(f"{self.name!r} has no values in the dump: {self.why or 'there is no file'}")
        try:
            dtype = dtype_named(self.dtype)
            raw = self.file.read_bytes()
        except ConfigError as error:
            raise InputError(f"{self.name!r}: {error}") from None
        except OSError as error:
            raise InputError(f"{self.name!r}: cannot read {self.file}: {error.strerror}") from None
        count = math.prod(self.shape)
        if len(raw) == count * dtype.itemsize:
            return np.frombuffer(raw, dtype).reshape(self.shape)
        if len(raw) != packed_size(dtype, count):
            raise InputError(
                f"{self.file} has {len(raw)} bytes; shape {self.shape} needs {count * dtype.itemsize} bytes"
            )
        return unpacked(raw, dtype, count).reshape(self.shape)


@dataclass(frozen=True)
class CapturedRun:
    """One run of a model.

    outputs  None if the run did not end; ``failed``: error that it raised, or "".
    thread   number of the thread that ran it; None if unknown.
    """

    step: int
    feeds: tuple[Value, ...]
    outputs: tuple[Value, ...] | None = None
    failed: str = ""
    thread: int | None = None


@dataclass(frozen=True)
class CapturedModel:
    """A model that the program ran.

    name     name and number of the session among those of the same name: ``net/0``.
    path     file that the program named, None for bytes; ``file``: its copy or place now, None with the reason ``why``.
    options  session options: level, mode, threads, providers, entries.
    runs     in order of their steps.
    """

    pid: int
    device: int
    rank: int
    name: str
    path: str | None
    file: Path | None
    why: str = ""
    changed: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    runs: tuple[CapturedRun, ...] = ()


def captured_models(root: Path, processes: Iterable[Process]) -> list[CapturedModel]:
    """Return the models that ran, process by process, in the order of their first runs."""
    return [model for process in processes for model in _of_process(root, process)]


def opened(captured: CapturedModel) -> Model:
    """Return the model. Raises ModelError if it was not kept or cannot be read."""
    if captured.file is None:
        raise ModelError(f"model {captured.path or ''} is not in the dump: {captured.why or 'the file is gone'}")
    return open_model(captured.file, in_place=True)


def _of_process(root: Path, process: Process) -> list[CapturedModel]:
    models: dict[int, Line] = {}
    begun: dict[tuple[int, int], Line] = {}
    ended: dict[tuple[int, int], Line] = {}
    for line in own_lines(process.folder):
        kind, session, step = line.get("event"), line.get("session"), line.get("step")
        if not isinstance(session, int) or (kind != "ort_model" and not isinstance(step, int)):
            continue
        if kind == "ort_model":
            models[session] = line
        elif kind == "ort_run":
            begun[session, int(step or 0)] = line
        elif kind == "ort_end":
            ended[session, int(step or 0)] = line
    return [
        _model(root, process.pid, line, tuple(_run(root, begun[key], ended.get(key)) for key in keys))
        for session, line in models.items()
        if (keys := sorted(key for key in begun if key[0] == session))
    ]


def _model(root: Path, pid: int, line: Line, runs: tuple[CapturedRun, ...]) -> CapturedModel:
    path, options = line.get("path"), line.get("options")
    device, rank = (number if isinstance(number := line.get(key), int) else 0 for key in ("device", "rank"))
    file, why = _inside(root, line.get("file")), str(line.get("why") or "")
    loaded_as = line.get("seen")
    if file is None and isinstance(path, str) and _is_unchanged(Path(path), loaded_as):
        file, why = Path(path), ""
    return CapturedModel(
        *(pid, device, rank, str(line.get("name") or "model"), path if isinstance(path, str) else None, file, why),
        changed=line.get("changed") is True or (line.get("linked") is True and not _is_unchanged(file, loaded_as)),
        options=options if isinstance(options, Mapping) else {},
        runs=runs,
    )


def _is_unchanged(path: Path | None, loaded_as: object) -> bool:
    """Return whether a file has the size and the time that it had when the program loaded it."""
    if path is None:
        return False
    try:
        status = path.stat()
    except OSError:
        return False
    return [status.st_size, status.st_mtime_ns] == loaded_as


def _run(root: Path, begun: Line, ended: Line | None) -> CapturedRun:
    feeds, number = _values(root, begun.get("feeds")), begun.get("thread")
    thread = number if isinstance(number, int) else None
    if ended is None:
        return CapturedRun(int(begun["step"]), feeds, thread=thread)
    failed = str(ended.get("failed") or "")
    outputs = None if failed else _values(root, ended.get("outputs"))
    return CapturedRun(int(begun["step"]), feeds, outputs, failed, thread)


def _values(root: Path, lines: object) -> tuple[Value, ...]:
    lines = lines if isinstance(lines, list) else []
    return tuple(_value(root, line) for line in lines if isinstance(line, Mapping))


def _value(root: Path, line: Line) -> Value:
    shape = line.get("shape")
    dims = tuple(size for size in shape if isinstance(size, int) and size >= 0) if isinstance(shape, list) else ()
    name, dtype, why = (str(line.get(key) or "") for key in ("name", "dtype", "why"))
    return Value(name, dtype, dims, _inside(root, line.get("file")), why)


def _inside(root: Path, file: object) -> Path | None:
    """Return the path of a file below the dump's root, or None if it leads out of the root."""
    return root / file if isinstance(file, str) and file and not leads_out_of(root, file) else None


@dataclass(frozen=True)
class Selection:
    """Selected tensors of a graph: ``tensors`` are node outputs, ``feeds`` graph inputs; and all operators."""

    tensors: frozenset[str]
    feeds: frozenset[str]
    operators: OperatorNames


def selection(control: DumpControl, graph: GraphProto, model: str) -> Selection:
    """Return the tensors of a graph that a control selects.

    An operator is known by its node's name and the names of its outputs; its id is the node's index in the graph. An
    input of an operator is dumped once, as the output of the operator that computes it. A graph input is dumped only if
    inputs alone or operators are selected: the feeds of a whole run are stored beside the dump.
    """
    outputs = {name for node in graph.node for name in node.output if name}
    selected: set[str] = set()
    for number, node in enumerate(graph.node):
        if _is_selected(control.operators, node, number, model):
            if control.mode != "input":
                selected.update(node.output)
            if control.mode != "output":
                selected.update(node.input)
    names = frozenset(name for node in graph.node for name in _names_of(node))
    types = frozenset(node.op_type for node in graph.node)
    with_feeds = control.mode == "input" or control.operators.ids or control.operators.named
    feeds = selected & {info.name for info in graph.input} if with_feeds else set()
    operators = OperatorNames(names, types, ids=frozenset(map(str, range(len(graph.node)))))
    return Selection(frozenset(selected & outputs), frozenset(feeds), operators)


def _is_selected(operators: OperatorFilter, node: NodeProto, number: int, model: str) -> bool:
    if operators.ids and str(number) not in operators.ids:
        return False
    if not operators.named:
        return True
    names = _names_of(node)
    if any(
        graph in ("", model, model.partition("/")[0]) and (not layers or names & set(layers))
        for graph, layers in operators.models
    ):
        return True
    if names & set(operators.names) or node.op_type.lower().startswith(tuple(map(str.lower, operators.prefixes))):
        return True
    return any(re.search(pattern, name) for pattern in operators.patterns for name in names)


def _names_of(node: NodeProto) -> set[str]:
    return {node.name, *node.output} - {""}
