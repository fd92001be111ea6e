"""Replay of captured onnxruntime runs, one dump per run.

Files in the tree::

    {root}/onnxruntime/{device}_{pid}/{model}/{number}/{step}.bin     a dump per run, or another format
    {root}/onnxruntime/runs.json                                      the index, written last

A model runs segment by segment on the program's feeds. A run's dump is in SigmaStar's container, as ``sgsdump dump``
writes it, or in any other format. The outputs are compared with the program's own. If they differ, the whole model runs
once more as in the program (with its optimisation, threads and providers), and the notes say whether that explains the
difference.

torch's newer exporter (``dynamo=True``) omits modules from node names and stores them in each node's metadata. A node
that it made from several nodes carries the last one's module; the module whose weight it reads takes precedence
(``nodes_of``).
"""

from __future__ import annotations

import itertools
import json
import math
import shutil
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.capture.programs.agreement import Agreement, Differences, compared
from sgsdump.capture.programs.captured_models import (
    CapturedModel,
    CapturedRun,
    Selection,
    captured_models,
    opened,
    selection,
)
from sgsdump.capture.programs.control import DISK_FULL, Content, DumpControl
from sgsdump.capture.programs.process_index import OperatorNames, Process
from sgsdump.dumps.dump import Record
from sgsdump.dumps.formats.replays.tree import FOLDER, NAME, Entry, Index, text_of
from sgsdump.dumps.io import save_dump
from sgsdump.dumps.onnx_network import INITIALIZER, SCOPES, Node, module_by_scopes
from sgsdump.dumps.runs import Run
from sgsdump.errors import InputError, ModelError, OutputError, SgsdumpError, ValuesError
from sgsdump.executors.runner import Layer
from sgsdump.files.atomic_write import make_folder, replacing
from sgsdump.models.graph import weight_names
from sgsdump.models.model import Model
from sgsdump.progress import Advance, unwatched
from sgsdump.tensors.dtypes import is_float, is_integer, name_of
from sgsdump.tensors.statistics import Statistics, summarise
from sgsdump.tensors.tensor import Tensor
from sgsdump.tensors.types import NCHW

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, TensorProto

    from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner

SIGMASTAR = "sigmastar_bin"
ENDINGS = {SIGMASTAR: ".bin", "sigmastar_text": ".txt", "npz": ".npz", "safetensors": ".safetensors"}
STATISTICS_FORMAT = "atb_tree"
Described = tuple[str, str, str, tuple[int, ...]]


@dataclass(frozen=True)
class Replayed:
    """Result of a replay.

    folder       folder of the dumps and their index; None if no run was captured.
    entries      entries of the index, one per run.
    tensors      tensors in all dumps; ``complete``: every captured run was replayed, of a program that ended normally.
    processes    the given processes, with names and types of the operators that ran.
    notes        sentences for the user.
    differences  for each model whose outputs differ from the program's, by how much.
    agrees       True if rounding explains every difference.
    """

    folder: Path | None
    entries: tuple[Entry, ...]
    tensors: int
    complete: bool
    processes: tuple[Process, ...]
    notes: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    agrees: bool = True

    @property
    def steps(self) -> set[int]:
        return {entry.run.step for entry in self.entries if entry.run.step is not None}


def replay(
    root: Path,
    processes: Sequence[Process],
    control: DumpControl,
    format: str = SIGMASTAR,
    advance: Advance = unwatched,
) -> Replayed:
    """Replay the onnxruntime runs of the processes below ``root`` and dump the tensors that ``control`` selects.

    format   format of dumps with full tensors; ``advance`` is called with (runs done, all runs).

    A run that cannot be computed gets a note. Raises OutputError if the disk refuses, FormatError for a damaged tree.
    """
    models = captured_models(root, processes)
    if not models and not any("ort_model" in process.kinds for process in processes):
        return Replayed(None, (), 0, True, tuple(processes))
    folder, total = root / FOLDER, sum(len(model.runs) for model in models)
    work = _Work(folder, control, format)
    done = 0
    for model in models:
        for _ in work.run_all(model):
            done += 1
            advance(done, total)
    ended = all(process.complete and not process.stopped for process in processes)
    whole = ended and not work.lost
    with replacing(folder / NAME) as file:
        file.write(text_of(Index(tuple(work.entries), whole, tuple(work.notes), work.graphs)).encode("utf-8"))
    named = tuple(replace(process, operators=process.operators | work.operators[process.pid]) for process in processes)
    entries, notes, differences = tuple(work.entries), tuple(work.notes), tuple(work.differences)
    return Replayed(folder, entries, work.tensors, whole, named, notes, differences, work.differences.agrees)


def _checksum(feed: Mapping[str, np.ndarray]) -> str:
    """Return a CRC-32 of the names, types, shapes and values that a run was fed."""
    total = 0
    for name, array in sorted(feed.items()):
        total = zlib.crc32(f"{name} {array.dtype} {array.shape}".encode(), total)
        total = zlib.crc32(array.tobytes(), total)
    return f"{total:08x}"


class _Work:
    """Runs dumped so far."""

    def __init__(self, folder: Path, control: DumpControl, format: str):
        folder.mkdir(exist_ok=True)
        self.entries: list[Entry] = []
        self.notes: list[str] = []
        self.operators: defaultdict[int, OperatorNames] = defaultdict(OperatorNames)
        self.graphs: dict[str, tuple[Node, ...]] = {}
        self.tensors = 0
        self.lost = False
        self.differences = Differences()
        self._folder, self._control, self._format = folder, control, format
        self._space = DiskSpace(folder, control)
        self._full = False

    def run_all(self, captured: CapturedModel) -> Iterator[None]:
        """Replay all runs of a model; yield after each."""
        from sgsdump.executors.onnx_runtime.observed_branches import with_branches
        from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner

        where = f"{captured.name} of process {captured.pid}"
        try:
            model = with_branches(opened(captured), partial(_kept_feeds, captured))
            chosen = selection(self._control, model.proto.graph, captured.name)
            runner = SegmentRunner(model, keep_sessions=len(captured.runs) > 1, keep_going=True)
        except SgsdumpError as error:
            self._lose(f"{where} is not replayed: {error}")
            yield from (None for _ in captured.runs)
            return
        self.operators[captured.pid] |= chosen.operators
        self.graphs[captured.name] = tuple(nodes_of(model.proto.graph))
        if captured.changed:
            self.notes.append(f"{where}: the model file {captured.path} was overwritten after the program loaded it")
        elsewhere = [name for name in captured.options.get("providers", ()) if name != "CPUExecutionProvider"]
        if elsewhere:
            self.notes.append(f"{where} ran on {', '.join(map(str, elsewhere))}; it is replayed on the CPU")
        for run in captured.runs:
            if self._has_room():
                try:
                    self._run(captured, model, runner, chosen, run)
                except (InputError, ModelError, ValuesError) as error:
                    if run.failed:  # the run failed in the program too, so nothing is lost
                        why = " ".join(run.failed.split())
                        self.notes.append(f"{where}: step {run.step} failed in the program and has no dump: {why}")
                    else:
                        self._lose(f"{where}: step {run.step} is not replayed: {error}")
            yield
        if model.branches is not None:
            self.notes += [f"{where}: {sentence}" for sentence in model.branches.sentences()]
        for skip in runner.skipped.values():
            self.notes.append(f"{where}: not dumped: {skip.name} ({skip.op_type}): {skip.reason}")

    def _run(
        self, captured: CapturedModel, model: Model, runner: SegmentRunner, chosen: Selection, run: CapturedRun
    ) -> None:
        feed = {value.name: value.array() for value in run.feeds}
        if overridden := sorted(feed.keys() & weight_names(model.proto.graph)):
            raise InputError(
                f"the program passes the input {overridden[0]!r}, which replaces a weight of the model; "
                "sgsdump does not support this"
            )
        program = {value.name: value for value in run.outputs or ()}
        agreements: list[Agreement] = []
        path = self._folder / f"{captured.device}_{captured.pid}/{captured.name}/{run.step}"
        layers = compared(runner.run(feed, chosen.tensors | program.keys()), program, agreements)
        computed = ComputedRun(model.proto.graph, feed, layers, chosen)
        path, written = write_run(path, self._control.content, self._format, computed)
        notes = list(written.notes)
        if run.failed:
            notes.append(f"the program's run failed: {run.failed}")
        elif run.outputs is None:
            notes.append("the program ended during this run; there are no outputs to compare with")
        notes += [
            f"output {value.name} of the program was not kept: {value.why}" for value in program.values() if value.why
        ]
        notes += self.differences.add(captured, feed, run, agreements)
        if not path.exists() and not written.described:
            self._lose(f"{captured.name} of process {captured.pid}: step {run.step}: {'; '.join(written.notes)}")
            return
        self.tensors += written.tensors
        self._space.add(path)
        self.entries.append(
            Entry(
                Run(
                    *(path.relative_to(self._folder).as_posix(), captured.rank, run.step, captured.name),
                    fed=_checksum(feed),
                    thread=run.thread,
                ),
                tuple(notes),
                tuple(output.as_json() for output in agreements),
                tuple(written.described),
            )
        )

    def _has_room(self) -> bool:
        why = self._space.why_none()
        if why and not self._full:
            self._full = True
            self._lose(why)
        return not why

    def _lose(self, why: str) -> None:
        self.lost = True
        self.notes.append(why)


def _kept_feeds(captured: CapturedModel) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Yield the feeds of the runs that can be replayed."""
    for run in captured.runs:
        with suppress(InputError):
            yield str(run.step), {value.name: value.array() for value in run.feeds}


def nodes_of(graph: GraphProto) -> Iterator[Node]:
    """Yield the nodes of a graph as ``Node`` tuples: name, type, inputs, outputs, module, attributes."""
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    facts = {name: facts for name, tensor in initializers.items() if (facts := _initializer(tensor)) is not None}
    weights = set(initializers)
    for node in graph.node:
        attributes = dict(_attributes(node))
        attributes |= {
            f"{INITIALIZER}{slot}": json.dumps([name, *facts[name]])
            for slot, name in enumerate(node.input)
            if name in facts
        }
        yield node.name, node.op_type, list(node.input), list(node.output), _module(node, weights), attributes


def _initializer(tensor: TensorProto) -> tuple[str, str] | None:
    """Return type and identification (checksum, norm) of an initializer; None for values in other files."""
    from onnx import TensorProto, numpy_helper

    if tensor.data_location == TensorProto.EXTERNAL:
        return None
    array = np.ascontiguousarray(numpy_helper.to_array(tensor))
    known_by = f"checksum {zlib.crc32(array.reshape(-1).view(np.uint8).data):08x}" if array.size else "no elements"
    if is_float(array.dtype):
        known_by += f", norm {np.linalg.norm(array.astype(np.float64).ravel()):.9g}"
    return name_of(array.dtype), known_by


def _attributes(node: NodeProto) -> Iterator[tuple[str, str]]:
    """Yield the attributes that are numbers or text, as JSON."""
    from onnx import AttributeProto

    plain = {
        AttributeProto.INT: lambda value: value.i,
        AttributeProto.FLOAT: lambda value: float(np.format_float_positional(np.float32(value.f))),
        AttributeProto.STRING: lambda value: value.s.decode("utf-8", "replace"),
        AttributeProto.INTS: lambda value: list(value.ints),
        AttributeProto.FLOATS: lambda value: list(value.floats),
    }
    for attribute in node.attribute:
        if attribute.type in plain:
            yield attribute.name, json.dumps(plain[attribute.type](attribute))


def _module(node: NodeProto, weights: set[str]) -> str:
    """Return the module of a node, ``layer1.0.conv1``; "" for the outermost, or if the model does not say."""
    scopes = next((entry.value for entry in node.metadata_props if entry.key == SCOPES), "")
    return module_by_scopes(scopes, node.input, weights)


class DiskSpace:
    """Disk space for dumps in ``folder``; bytes that the program's own processes wrote beside it count too."""

    def __init__(self, folder: Path, control: DumpControl):
        self._folder, self._control = folder, control
        self._bytes = _written_by_program(folder.parent)

    def add(self, path: Path) -> None:
        """Count a file or folder that has been written."""
        self._bytes += _size(path)

    def why_none(self) -> str:
        """Return why nothing more can be dumped, or ""."""
        free = shutil.disk_usage(self._folder).free
        least, most = self._control.storage.min_free, self._control.storage.max_bytes
        if least and free < least:
            return f"{DISK_FULL} {free >> 20}"
        if most and self._bytes >= most:
            return f"the dump has reached {most} bytes (--max-size); nothing more is dumped"
        return ""


def _written_by_program(root: Path) -> int:
    """Return the bytes that the program's processes wrote, counted under a size limit (``hook/sgsdump_files.py``)."""
    try:
        return int((root / "processes" / ".bytes").read_bytes()[:30] or b"0")
    except (OSError, ValueError):
        return 0


def _size(path: Path) -> int:
    try:
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        return sum(file.stat().st_size for file in files)
    except OSError as error:
        raise OutputError(f"cannot read {path}: {error.strerror}") from None


@dataclass(frozen=True, eq=False)
class ComputedRun:
    """A run with ``layers`` that are computed one after another; ``chosen`` selects the dumped ones."""

    graph: GraphProto
    feed: Mapping[str, np.ndarray]
    layers: Iterable[Layer]
    chosen: Selection


@dataclass
class Written:
    """Contents of a dump; ``described`` holds each tensor's facts if only descriptions are dumped."""

    tensors: int = 0
    notes: list[str] = field(default_factory=list)
    described: list[Described] = field(default_factory=list)


def write_run(path: Path, content: Content, format: str, run: ComputedRun) -> tuple[Path, Written]:
    """Write the chosen layers of a run; return the path of the dump, which is ``path`` with the format's ending.

    All layers are computed. Raises OutputError and the errors of ``layers``.
    """
    written = Written()
    records = _records(run, written)
    if content in ("description", "structure"):
        for record in records:
            info = record.tensor.info
            written.described.append((info.name, info.op_type, name_of(info.dtype), record.tensor.shape or ()))
        return path, written
    if content == "stats":
        format, records = STATISTICS_FORMAT, _statistics(records, written)
    path = path.with_name(path.name + ENDINGS.get(format, ""))
    make_folder(path.parent)
    first = next(records, None)
    if first is None:
        written.notes.append("no tensor of this run was selected")
        return path, written
    whole = itertools.chain([first], records)
    if format == SIGMASTAR:
        from sgsdump.dumps.formats.sigmastar import binary

        # The form of framework dumps holds outputs only.
        binary.write(whole, path, binary.SIM_SHAPED if run.chosen.feeds else binary.FRAMEWORK)
    else:
        save_dump(whole, path, format, on_loss="ignore")
    return path, written


def _records(run: ComputedRun, written: Written) -> Iterator[Record]:
    nodes = run.graph.node
    slots = {name: slot for node in nodes for slot, name in enumerate(node.output) if name}
    readers = {name: node for node in reversed(nodes) for name in node.input}
    for name, array in run.feed.items():
        if name in run.chosen.feeds and name in readers:
            node = readers[name]
            slot = list(node.input).index(name)
            yield _counted(
                Record("in", slot, 0, node.name or node.op_type, _tensor(name, array, node.op_type)), written
            )
    number = 0
    for layer in run.layers:
        if layer.name in run.chosen.tensors:
            tensor = _tensor(layer.name, layer.array, layer.op_type)
            label = layer.node or layer.op_type
            yield _counted(Record("out", slots.get(layer.name, 0), number, label, tensor), written)
            number += 1


def _tensor(name: str, array: np.ndarray, op_type: str) -> Tensor:
    return Tensor.of(name, array, layout=NCHW if array.ndim == 4 else None, op_type=op_type)


def _counted(record: Record, written: Written) -> Record:
    written.tensors += 1
    array = record.tensor.raw()
    if is_float(array.dtype):
        with np.errstate(all="ignore"):
            if not np.isfinite(array.sum()):
                nan, inf = np.count_nonzero(np.isnan(array)), np.count_nonzero(np.isinf(array))
                minus = np.count_nonzero(np.isneginf(array))
                if inf and inf == minus and not nan:
                    written.notes.append(f"{record.name}: {minus} of {array.size} values are -Inf, as in masks")
                elif nan or inf:
                    written.notes.append(f"not finite: {record.name}: {nan} NaN, {inf} Inf of {array.size} values")
    return record


def _statistics(records: Iterable[Record], written: Written) -> Iterator[Record]:
    """Yield the records of numbers with msit's statistics instead of values."""
    for record in records:
        info = record.tensor.info
        if not (is_float(info.dtype) or is_integer(info.dtype)):
            written.notes.append(f"no statistics of {info.name}: its type is {name_of(info.dtype)}")
            continue
        summary = summarise(record.tensor.raw())
        # NaN if no value is finite, as the file format requires.
        low, high, mean, norm = (
            math.nan if value is None else value for value in (summary.min, summary.max, summary.mean, summary.l2norm)
        )
        stated = Statistics(low, high, mean, norm)
        yield Record(record.io, record.slot, record.op_index, record.op_type, Tensor.of_statistics(info, stated))
