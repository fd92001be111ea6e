"""Reader of the processes' indexes: ``processes/{pid}/index.jsonl`` and those of rounds, line by line and summed up.

``dumps/formats/rounds`` specifies the rounds. The index of a killed process lacks ``{"complete": true}``; its last line
may be cut off. The last line of a round is its summary, so only one round of each form (the operators that ran, in
order) is read line by line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sgsdump.dumps.format import json_object
from sgsdump.dumps.formats.rounds.round_file import Index
from sgsdump.dumps.formats.rounds.tree import FOLDER as ROUNDS
from sgsdump.dumps.formats.shared.hooked import Line, Lines, lines_in
from sgsdump.errors import FormatError
from sgsdump.files.folder import in_order

PROCESSES, INDEX = "processes", "index.jsonl"
_MOST_TROUBLES = 100
_MOST_IDS = 100_000
# A step's lines are contiguous except for lines of other threads.
_OPEN_STEPS = 3
# Kinds of lines that are written even if nothing is dumped.
_NO_WORK = {
    *("begin", "trouble", "stop", "seen", "step", "steps", "operator", "graph", "environment", "unfit", "rank"),
    "source",
}


@dataclass(frozen=True)
class TensorCounts:
    """Counts of a process's inputs and outputs.

    tensors     with a line in the index; ``files``: with a file.
    unreadable  without readable values, by reason: how many, and the first one.
    unwritten   memory that nothing had written to.
    """

    tensors: int = 0
    files: int = 0
    unreadable: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    unwritten: int = 0


@dataclass(frozen=True)
class OperatorNames:
    """Names of operators.

    names, types   some operators that ran, recorded if operators are selected by name; ``matched``: names, beginnings
    and
                   patterns that selected one.
    ids            ids of the operators in dumped steps; empty if unknown.
    """

    names: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    matched: frozenset[str] = frozenset()
    ids: frozenset[str] = frozenset()

    def __or__(self, other: OperatorNames) -> OperatorNames:
        return OperatorNames(
            self.names | other.names, self.types | other.types, self.matched | other.matched, self.ids | other.ids
        )


@dataclass(frozen=True)
class Process:
    """Summary of one process's index.

    libraries   hooked libraries with their versions.
    steps       numbers of the steps with dumped tensors, in order.
    kinds       number of lines of each kind other than tensors, by ``event``.
    troubles    problems, a sentence each; ``stopped``: reason why dumping stopped, or "".
    begun       number of steps, dumped or not, that began before the normal end; None without a normal end.
    broken_off  True if the process ended, or was ended, within a dumped step.
    complete    True if the process ended normally; for ``run_program`` also if it was ended between two steps of a
                program that ended well.
    """

    pid: int
    folder: Path
    libraries: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    kinds: Mapping[str, int] = field(default_factory=dict)
    counts: TensorCounts = TensorCounts()
    operators: OperatorNames = OperatorNames()
    troubles: tuple[str, ...] = ()
    stopped: str = ""
    begun: int | None = None
    broken_off: bool = False
    complete: bool = False

    @property
    def caught(self) -> bool:
        """Whether any of the program's work was dumped."""
        return bool(self.counts.tensors or set(self.kinds) - _NO_WORK)


@dataclass(frozen=True)
class Step:
    """One step of one model: lines of inputs and outputs, and lines of operators (``event``).

    outputs  numbers of the values that the step returned; None if unknown.
    """

    model: str
    number: int
    tensors: tuple[Line, ...]
    operators: tuple[Line, ...]
    outputs: tuple[int, ...] | None = None


def processes_of(root: Path) -> tuple[Process, ...]:
    """Return the processes of a dump that have an index, sorted by number. Raises FormatError."""
    try:
        folders = sorted((root / PROCESSES).iterdir(), key=lambda path: in_order(path.name))
    except OSError:
        return ()
    return tuple(read_process(folder) for folder in folders if folder.name.isdecimal() and (folder / INDEX).is_file())


def lines_of(folder: Path) -> Iterator[Line]:
    """Yield the readable lines of a process's index and its rounds. Raises FormatError if one cannot be opened."""
    yield from own_lines(folder)
    for path in round_files(folder):
        yield from round_lines(path)


def round_files(folder: Path) -> list[Path]:
    """Return the indexes of a process's rounds, step by step."""
    found = folder.parents[1].glob(f"{ROUNDS}/*_{folder.name}/*.round")
    return sorted((path for path in found if path.stem.isdecimal()), key=lambda path: in_order(path.name))


def round_lines(path: Path) -> Iterator[Line]:
    """Yield the readable lines of a round. Raises FormatError if it cannot be opened."""
    lines = Lines(None)
    for text in _texts(path):
        for data in text.splitlines():
            yield from lines.read(data)


def _texts(path: Path) -> Iterator[bytes]:
    """Yield the frames of an index; none if its first bytes were never written."""
    if path.stat().st_size:
        yield from Index(path).texts()


def summary_of(path: Path) -> Line | None:
    """Return the last line of a round's index, or None for an interrupted round."""
    last = b""
    for text in _texts(path):
        last = text
    line = json_object(last.splitlines()[-1]) if last.endswith(b"\n") else None
    return line if line is not None and line.get("event") == "round" else None


def own_lines(folder: Path) -> Iterator[Line]:
    """Yield the lines of a process's index, without rounds. Raises FormatError if it cannot be opened."""
    try:
        yield from lines_in(folder / INDEX)
    except OSError as error:
        raise FormatError(f"cannot read {folder / INDEX}: {error.strerror or error}") from None


class _Sum:
    """Running totals of a process's lines."""

    def __init__(self) -> None:
        self.libraries: dict[str, None] = {}
        self.kinds: Counter[str] = Counter()
        self.steps: set[int] = set()
        self.ids: set[str] = set()
        self.unreadable: dict[str, tuple[int, str]] = {}
        self.troubles: list[str] = []
        self.tensors = self.files = self.unwritten = self.open_steps = 0
        self.stopped = ""
        self.begun: int | None = None
        self.complete = False
        self.asked_for: Line = {}

    def add(self, line: Line) -> None:
        kind = str(line.get("event", ""))
        if "side" in line:
            self.tensors += 1
            self.files += "payload" in line or line.get("file") is not None
            self.steps.add(step_of(line))
            self.unwritten += line.get("unwritten") is True
            if line.get("unreadable") is True:
                _count_unreadable(self.unreadable, line)
        elif kind and kind != "round":
            self.kinds[kind] += 1
        if kind == "begin":
            self.libraries[f"{line.get('library')} {line.get('version')}".strip()] = None
        elif kind == "trouble" and len(self.troubles) < _MOST_TROUBLES:
            self.troubles.append(str(line.get("text", "")))
        elif kind == "stop":
            self.stopped = self.stopped or str(line.get("text", "")) or "it stopped"
        elif kind == "operator" and len(self.ids) < _MOST_IDS:
            self.ids.add(str(line.get("id")))
        elif kind == "steps":
            self.begun = step_of({"step": line.get("ran")})
        elif kind in ("step", "ort_run", "ort_end"):
            self.open_steps += 1 if "inputs" in line or "feeds" in line else -1
        elif kind == "seen":
            self.asked_for = line

    def add_round(self, summary: Line) -> None:
        """Add the summary of a complete round whose form was read line by line before."""
        tensors, files, operators, unwritten = (
            count if isinstance(count := summary.get(name), int) else 0
            for name in ("tensors", "files", "operators", "unwritten")
        )
        self.tensors, self.files, self.unwritten = (
            self.tensors + tensors,
            self.files + files,
            self.unwritten + unwritten,
        )
        self.kinds["operator"] += operators
        self.kinds["step"] += 2
        if tensors:
            self.steps.add(step_of(summary))
        found = summary.get("unreadable")
        for why, counted in found.items() if isinstance(found, Mapping) else ():
            match counted:
                case [int(more), str(first)]:
                    count, earliest = self.unreadable.get(str(why), (0, first))
                    self.unreadable[str(why)] = count + more, earliest


def read_process(folder: Path) -> Process:
    """Read a process's index as far as possible. Raises FormatError if it cannot be opened."""
    found = _Sum()
    for line in own_lines(folder):
        found.complete = line.get("complete") is True
        found.add(line)
    forms: set[object] = set()
    for path in round_files(folder):
        summary = summary_of(path)
        if summary is not None and str(summary.get("form")) in forms:
            found.add_round(summary)
            continue
        forms.add(str(summary and summary.get("form")))
        for line in round_lines(path):
            found.add(line)
    names, types, matched = (
        frozenset(map(str, found.asked_for.get(key) or ())) for key in ("names", "types", "matched")
    )
    return Process(
        pid=int(folder.name),
        folder=folder,
        libraries=tuple(found.libraries),
        steps=tuple(sorted(found.steps)),
        kinds=dict(found.kinds),
        counts=TensorCounts(found.tensors, found.files, found.unreadable, found.unwritten),
        operators=OperatorNames(names, types, matched, frozenset(found.ids)),
        troubles=tuple(found.troubles),
        stopped=found.stopped,
        begun=found.begun,
        broken_off=found.open_steps > 0,
        complete=found.complete,
    )


def _count_unreadable(unreadable: dict[str, tuple[int, str]], line: Line) -> None:
    why = str(line.get("why", ""))
    count, first = unreadable.get(why, (0, f"{line.get('op')}, {line.get('side')}put {line.get('slot')}"))
    if count or len(unreadable) < _MOST_TROUBLES:
        unreadable[why] = count + 1, first


def steps_of(process: Process, one_of_each: bool = False) -> Iterator[Step]:
    """Yield the steps of a process, each model's in order, holding only a few at a time.

    With ``one_of_each``, only the first of steps with the same operators.
    """
    yield from _steps(own_lines(process.folder))
    forms: set[object] = set()
    for path in round_files(process.folder):
        summary = summary_of(path) if one_of_each else None
        if summary is None or (form := str(summary.get("form"))) not in forms:
            forms.add(form if summary else None)
            yield from _steps(round_lines(path))


def _steps(lines: Iterator[Line]) -> Iterator[Step]:
    waiting: dict[str, dict[int, list[Line]]] = {}
    for line in lines:
        if not ("side" in line or line.get("event") in ("operator", "step")):
            continue
        model, number = str(line.get("model") or ""), step_of(line)
        of_model = waiting.setdefault(model, {})
        of_model.setdefault(number, []).append(line)
        if len(of_model) > _OPEN_STEPS:
            oldest = next(iter(of_model))
            yield _step(model, oldest, of_model.pop(oldest))
    for model, of_model in waiting.items():
        for number, found in of_model.items():
            yield _step(model, number, found)


def _step(model: str, number: int, lines: list[Line]) -> Step:
    tensors = tuple(line for line in lines if "side" in line)
    operators = tuple(line for line in lines if line.get("event") == "operator")
    returned = next((line["outputs"] for line in lines if isinstance(line.get("outputs"), list)), None)
    outputs = None if returned is None else tuple(value for value in returned if isinstance(value, int))
    return Step(model, number, tensors, operators, outputs)


def step_of(line: Line) -> int:
    """Return the line's step, or -1."""
    step = line.get("step")
    return step if isinstance(step, int) else -1
