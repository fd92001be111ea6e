"""Every captured run of onnxruntime computed again, into the tree::

    {root}/onnxruntime/{device}_{pid}/{model}/{number}/{step}.bin     a dump for each run, or of another format
    {root}/onnxruntime/runs.json                                      the index, written last

A model runs segment by segment on the feeds that the program gave it, and its outputs are held against the program's
own. Where they differ, the whole model runs once more as the program ran it (optimised, with its threads and
providers): then the notes say whether that is what makes the difference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.capture.control import DumpControl
from sgsdump.capture.process_index import Process
from sgsdump.capture.replay.agreement import Agreement
from sgsdump.capture.replay.captured import CapturedModel, CapturedRun, captured_models, opened
from sgsdump.capture.replay.differences import Differences, compared
from sgsdump.capture.replay.graph_nodes import nodes_of
from sgsdump.capture.replay.room import Room
from sgsdump.capture.replay.run_dump import SIGMASTAR, write_run
from sgsdump.capture.replay.selection import Selection, selection
from sgsdump.dumps.formats.replays.tree import FOLDER, NAME, Entry, Index, Node, text_of
from sgsdump.dumps.runs import Run
from sgsdump.errors import InputError, ModelError, SgsdumpError, ValuesError
from sgsdump.files.atomic_write import replacing
from sgsdump.models.graph import weight_names
from sgsdump.models.model import Model
from sgsdump.progress import Advance, unwatched

if TYPE_CHECKING:
    from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner


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
    entries, notes, differences = tuple(work.entries), tuple(work.notes), tuple(work.differences)
    return Replayed(folder, entries, work.tensors, whole, named, notes, differences, work.differences.agrees)


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
        self.differences = Differences()
        self._folder, self._control, self._format = folder, control, format
        self._room = Room(folder, control)
        self._full = False

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

    def _run(
        self, captured: CapturedModel, model: Model, runner: SegmentRunner, chosen: Selection, run: CapturedRun
    ) -> None:
        feed = {value.name: value.array() for value in run.feeds}
        if overridden := sorted(feed.keys() & weight_names(model.proto.graph)):
            raise InputError(f"the program feeds {overridden[0]!r} in the place of a weight, which is not followed")
        program = {value.name: value for value in run.outputs or ()}
        agreements: list[Agreement] = []
        place = f"{captured.device}_{captured.pid}/{captured.name}/{run.step}"
        layers = compared(runner.run(feed, chosen.tensors | program.keys()), program, agreements)
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
        notes += self.differences.add(captured, feed, run, agreements)
        if not path.exists() and not written.described:
            self._lose(f"{captured.name} of process {captured.pid}: step {run.step}: {'; '.join(written.notes)}")
            return
        self.tensors += written.tensors
        self._room.add(path)
        self.entries.append(
            Entry(
                Run(path.relative_to(self._folder).as_posix(), captured.rank, run.step, captured.name),
                tuple(notes),
                tuple(each.as_json() for each in agreements),
                tuple(written.described),
            )
        )

    def _has_room(self) -> bool:
        why = self._room.why_none()
        if why and not self._full:
            self._full = True
            self._lose(why)
        return not why

    def _lose(self, why: str) -> None:
        self.lost = True
        self.notes.append(why)
