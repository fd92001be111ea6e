"""The models and runs that ``hook/sgsdump_hook_ort.py`` wrote of, whose docstring has the lines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.capture.process_index import Line, Process, lines_of
from sgsdump.errors import ConfigError, InputError, ModelError
from sgsdump.files.folder import leads_out_of
from sgsdump.models.model import Model, open_model
from sgsdump.tensors.dtypes import dtype_named, packed_size, unpacked


@dataclass(frozen=True)
class Value:
    """One input or output as the program had it; ``why`` it could not be kept, or ""."""

    name: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    file: Path | None = None
    why: str = ""

    def array(self) -> np.ndarray:
        """Raises InputError where it was not kept or its file is damaged."""
        if self.file is None:
            raise InputError(f"{self.name!r} was not kept: {self.why or 'it has no file'}")
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
            raise InputError(f"{self.file} has {len(raw)} bytes, not the {count * dtype.itemsize} of {self.shape}")
        return unpacked(raw, dtype, count).reshape(self.shape)


@dataclass(frozen=True)
class CapturedRun:
    """outputs  None where the run did not come to its end; ``failed``: what it raised, or ""."""

    step: int
    feeds: tuple[Value, ...]
    outputs: tuple[Value, ...] | None = None
    failed: str = ""


@dataclass(frozen=True)
class CapturedModel:
    """name     and number of the session among those of the name: ``net/0``.
    path     the file as the program named it, None for bytes; ``file``: where it is now, None with ``why``.
    options  of the session: level, mode, threads, providers, entries.
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
    """The models that ran, process by process, in the order of their first runs."""
    return [model for process in processes for model in _of_process(root, process)]


def opened(captured: CapturedModel) -> Model:
    """Raises ModelError where it was not kept or cannot be read."""
    if captured.file is None:
        raise ModelError(f"its model {captured.path or ''} was not kept: {captured.why or 'it is gone'}")
    return open_model(captured.file, in_place=True)


def _of_process(root: Path, process: Process) -> list[CapturedModel]:
    models: dict[int, Line] = {}
    begun: dict[tuple[int, int], Line] = {}
    ended: dict[tuple[int, int], Line] = {}
    for line in lines_of(process.folder):
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
    seen = line.get("seen")
    if file is None and isinstance(path, str) and _as_seen(Path(path), seen):
        file, why = Path(path), ""
    return CapturedModel(
        *(pid, device, rank, str(line.get("name") or "model"), path if isinstance(path, str) else None, file, why),
        changed=line.get("changed") is True or (line.get("linked") is True and not _as_seen(file, seen)),
        options=options if isinstance(options, Mapping) else {},
        runs=runs,
    )


def _as_seen(path: Path | None, seen: object) -> bool:
    """Whether a file has the size and the time that it had when it was loaded."""
    if path is None:
        return False
    try:
        status = path.stat()
    except OSError:
        return False
    return [status.st_size, status.st_mtime_ns] == seen


def _run(root: Path, begun: Line, ended: Line | None) -> CapturedRun:
    feeds = _values(root, begun.get("feeds"))
    if ended is None:
        return CapturedRun(int(begun["step"]), feeds)
    failed = str(ended.get("failed") or "")
    outputs = None if failed else _values(root, ended.get("outputs"))
    return CapturedRun(int(begun["step"]), feeds, outputs, failed)


def _values(root: Path, lines: object) -> tuple[Value, ...]:
    lines = lines if isinstance(lines, list) else []
    return tuple(_value(root, line) for line in lines if isinstance(line, Mapping))


def _value(root: Path, line: Line) -> Value:
    shape = line.get("shape")
    dims = tuple(size for size in shape if isinstance(size, int) and size >= 0) if isinstance(shape, list) else ()
    name, dtype, why = (str(line.get(key) or "") for key in ("name", "dtype", "why"))
    return Value(name, dtype, dims, _inside(root, line.get("file")), why)


def _inside(root: Path, file: object) -> Path | None:
    """A file of the dump by its path below the root; None for a path that leads out of it."""
    return root / file if isinstance(file, str) and file and not leads_out_of(root, file) else None
