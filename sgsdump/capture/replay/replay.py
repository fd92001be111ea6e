"""Every captured run of onnxruntime computed again, into the tree::

    {root}/onnxruntime/{device}_{pid}/{model}/{number}/{step}.bin     a dump for each run, or of another format
    {root}/onnxruntime/runs.json                                      the index, written last

A model runs segment by segment on the feeds that the program gave it, and its outputs are held against the program's
own. Where they differ, the whole model runs once more as the program ran it (optimised, with its threads and
providers): then the notes say whether that is what makes the difference.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.capture.control import DISK_FULL, DumpControl
from sgsdump.capture.process_index import Process
from sgsdump.capture.replay.agreement import Agreement, agreement
from sgsdump.capture.replay.captured import CapturedModel, CapturedRun, Value, captured_models, opened
from sgsdump.capture.replay.graph_nodes import nodes_of
from sgsdump.capture.replay.run_dump import SIGMASTAR, write_run
from sgsdump.capture.replay.selection import Selection, selection
from sgsdump.dumps.formats.replays.index import NAME, Entry, Index, Node, text_of
from sgsdump.dumps.formats.replays.tree import FOLDER
from sgsdump.dumps.runs.run import Run
from sgsdump.errors import InputError, ModelError, OutputError, SgsdumpError, ValuesError
from sgsdump.files.atomic_write import replacing
from sgsdump.models.model import Model, weight_names
from sgsdump.progress import Advance, unwatched

if TYPE_CHECKING:
    from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
    from sgsdump.executors.runner import Layer


@dataclass(frozen=True)
class Replayed:
    """folder     where the dumps and their index are, None where there was no run to dump.
    entries    of the index, a run each.
    tensors    in all dumps together; complete: every captured run is here, of a program that came to its end.
    processes  as they were given, with the names and types of the operators that ran.
    notes      what the user should know, a sentence each; differences: how far the outputs are from the program's, for
               each model that has not the same ones. agrees: none is further from it than rounding explains.
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
    """Run again what the processes below ``root`` ran with onnxruntime, and dump what ``control`` says.

    format   of the dumps of full tensors, one that can be written; ``advance`` is called with (runs done, all runs).

    A run that cannot be computed is noted. Raises OutputError when the disk refuses, FormatError for a damaged tree.
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
    named = tuple(
        replace(
            p,
            names=(*p.names, *sorted(work.names[p.pid])),
            types=(*p.types, *sorted(work.types[p.pid])),
            ids=p.ids | work.ids[p.pid],
        )
        for p in processes
    )
    differences = tuple(work.differences())
    return Replayed(
        folder, tuple(work.entries), work.tensors, whole, named, tuple(work.notes), differences, work.agrees
    )


class _Work:
    """The runs dumped so far."""

    def __init__(self, folder: Path, control: DumpControl, format: str):
        folder.mkdir(exist_ok=True)
        self.entries: list[Entry] = []
        self.notes: list[str] = []
        self.names: defaultdict[int, set[str]] = defaultdict(set)
        self.types: defaultdict[int, set[str]] = defaultdict(set)
        self.ids: defaultdict[int, set[str]] = defaultdict(set)
        self.graphs: dict[str, tuple[Node, ...]] = {}
        self.tensors = 0
        self.lost = False
        self.agrees = True
        self._folder, self._control, self._format = folder, control, format
        self._bytes = _spent(folder.parent)
        self._full = False
        self._unequal: defaultdict[str, list[Agreement]] = defaultdict(list)
        self._why: dict[str, str] = {}

    def run_all(self, captured: CapturedModel) -> Iterator[None]:
        """All runs of a model, yielding after each."""
        from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner

        where = f"{captured.name} of process {captured.pid}"
        try:
            model = opened(captured)
            chosen = selection(self._control, model.proto.graph, captured.name)
            runner = SegmentRunner(model, keep_sessions=len(captured.runs) > 1, keep_going=True)
        except SgsdumpError as error:
            self._lose(f"{where} is not replayed: {error}")
            yield from (None for _ in captured.runs)
            return
        self.names[captured.pid] |= chosen.names
        self.types[captured.pid] |= chosen.types
        self.ids[captured.pid] |= set(map(str, range(len(model.proto.graph.node))))
        self.graphs[captured.name] = tuple(nodes_of(model.proto.graph))
        if captured.changed:
            self.notes.append(f"{where}: its file {captured.path} was written over after it was loaded")
        elsewhere = [name for name in captured.options.get("providers", ()) if name != "CPUExecutionProvider"]
        if elsewhere:
            self.notes.append(f"{where} ran on {', '.join(map(str, elsewhere))}; it is replayed on the processor")
        for run in captured.runs:
            if self._has_room():
                try:
                    self._run(captured, model, runner, chosen, run)
                except (InputError, ModelError, ValuesError) as error:
                    self._lose(f"{where}: step {run.step} is not replayed: {error}")
            yield
        for skip in runner.skipped.values():
            self.notes.append(f"{where}: not dumped: {skip.name} ({skip.op_type}): {skip.reason}")

    def differences(self) -> Iterator[str]:
        """How far the outputs are from the program's, a sentence for each model where they are not the same."""
        for where, outputs in self._unequal.items():
            worst = max(outputs, key=lambda each: (bool(each.why), each.relative or 0.0))
            how = worst.why or f"by at most {worst.max_abs:.3g}, {worst.relative or 0:.3g} of the largest value"
            yield f"{where}: the outputs differ from the program's ({worst.name}): {how}{self._why[where]}"

    def _run(
        self, captured: CapturedModel, model: Model, runner: SegmentRunner, chosen: Selection, run: CapturedRun
    ) -> None:
        feed = {value.name: value.array() for value in run.feeds}
        if overridden := sorted(feed.keys() & weight_names(model.proto.graph)):
            raise InputError(f"the program feeds {overridden[0]!r} in the place of a weight, which is not followed")
        program = {value.name: value for value in run.outputs or ()}
        agreements: list[Agreement] = []
        place = f"{captured.device}_{captured.pid}/{captured.name}/{run.step}"
        layers = _held_against(runner.run(feed, chosen.tensors | program.keys()), program, agreements)
        control = self._control
        graph = model.proto.graph
        path, written = write_run(self._folder / place, control.content, self._format, graph, feed, layers, chosen)
        notes = list(written.notes)
        if run.failed:
            notes.append(f"the program's run failed: {run.failed}")
        elif run.outputs is None:
            notes.append("the program ended during this run; its outputs are not held against anything")
        notes += [
            f"output {value.name} of the program was not kept: {value.why}" for value in program.values() if value.why
        ]
        if not all(each.equal for each in agreements):
            difference = self._differing(captured, feed, run, agreements)
            notes += [difference] if any(each.is_large for each in agreements) else []
        if not path.exists() and not written.described:
            self._lose(f"{captured.name} of process {captured.pid}: step {run.step}: {'; '.join(written.notes)}")
            return
        self.tensors += written.tensors
        self._bytes += _size(path)
        self.entries.append(
            Entry(
                Run(path.relative_to(self._folder).as_posix(), captured.rank, run.step, captured.name),
                tuple(notes),
                tuple(each.as_json() for each in agreements),
                tuple(written.described),
            )
        )

    def _differing(
        self,
        captured: CapturedModel,
        feed: Mapping[str, np.ndarray],
        run: CapturedRun,
        agreements: Sequence[Agreement],
    ) -> str:
        """A sentence on a run's outputs; for the first such run of a model with the reason, as far as one is found."""
        where = f"{captured.name} of process {captured.pid}"
        unequal = [each for each in agreements if not each.equal]
        if where not in self._unequal:
            self._why[where] = self._reason(captured, feed, run)
        self._unequal[where] += unequal
        self.agrees = self.agrees and not any(each.is_large for each in unequal)
        worst = max(unequal, key=lambda each: (bool(each.why), each.relative or 0.0))
        how = worst.why or f"by at most {worst.max_abs:.3g}, {worst.relative or 0:.3g} of the largest value"
        return f"output {worst.name} differs from the program's: {how}{self._why[where]}"

    def _reason(self, captured: CapturedModel, feed: Mapping[str, np.ndarray], run: CapturedRun) -> str:
        from sgsdump.executors.onnx_runtime.program_session import ProgramSession

        assert captured.file is not None
        kept = [value for value in run.outputs or () if value.file is not None]
        try:
            again = ProgramSession(captured.file, captured.options).run(feed, [value.name for value in kept])
            same = all(agreement(v.name, again[v.name], v.array()).equal for v in kept if v.name in again)
        except (ModelError, InputError):
            return ""
        level = captured.options.get("level", "")
        if same:
            return f"; run as the program did ({level}), the model gives the program's own outputs again"
        return f"; run as the program did ({level}), the model does not give its outputs again either"

    def _has_room(self) -> bool:
        free = shutil.disk_usage(self._folder).free
        least, most = self._control.min_free, self._control.max_bytes
        if least and free < least:
            why = f"{DISK_FULL} {free >> 20}"
        elif most and self._bytes >= most:
            why = f"the dump has reached its {most} bytes (--max-size); nothing more is dumped"
        else:
            return True
        if not self._full:
            self._full = True
            self._lose(why)
        return False

    def _lose(self, why: str) -> None:
        self.lost = True
        self.notes.append(why)


def _held_against(
    layers: Iterator[Layer], program: Mapping[str, Value], agreements: list[Agreement]
) -> Iterator[Layer]:
    """The layers as they come; those that are outputs of the program are compared with its own."""
    for layer in layers:
        value = program.get(layer.name)
        if value is not None and value.file is not None:
            agreements.append(agreement(layer.name, layer.array, value.array()))
        yield layer


def _spent(root: Path) -> int:
    """Bytes that the program's processes wrote, counted where there is a limit (``hook/sgsdump_files.py``)."""
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
