"""The index of each process of a hooked program, ``processes/{pid}/index.jsonl`` and those of its rounds
(``dumps/formats/rounds``), line by line and summed up.

A process that was killed has an index without ``{"complete": true}``, its last line perhaps cut off. The last line of a
round sums it up, so that only one round of each form (the operators that ran, in their order) is read line by line.
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
# A step's lines are together but for what other threads do at the time.
_OPEN_STEPS = 3
# Lines that come also where nothing is dumped.
_NO_WORK = {"begin", "trouble", "stop", "seen", "step", "steps", "operator", "graph", "environment", "unfit", "rank"}


@dataclass(frozen=True)
class TensorCounts:
    """tensors  inputs and outputs that the index has a line of; ``files``: those with a file.
    unreadable  inputs and outputs whose values could not be had, by the reason: how many, and the first of them.
    unwritten   how many inputs and outputs were memory to which nothing had been written yet.
    """

    tensors: int = 0
    files: int = 0
    unreadable: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    unwritten: int = 0


@dataclass(frozen=True)
class OperatorNames:
    """The names of operators.

    names, types   some of those that ran, where they were asked for by name; ``matched``: the names, beginnings and
                   patterns that named one.
    ids            of the operators that ran in the steps that were dumped; empty where they are not known.
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
    """One process's index, summed up.

    libraries   the libraries that were hooked, with their versions.
    steps       the numbers of the steps that something was dumped of, in order.
    kinds       how many lines other than tensors' there are of each kind, by their ``event``.
    troubles    what went wrong, a sentence each; ``stopped``: why it dumped no further, or "".
    begun       how many steps, dumped or not, began before it came to its end; None where it did not.
    broken_off  whether it ended, or was ended, in the middle of a step that was dumped.
    complete    whether the process came to its end; of a program that was run (``run_program``) also of one that was
                ended between two steps while the program ended well.
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
        """Whether anything of the program's work was dumped."""
        return bool(self.counts.tensors or set(self.kinds) - _NO_WORK)


@dataclass(frozen=True)
class Step:
    """One step of one model: lines of single inputs and outputs, and those of operators (``event``).

    outputs  the numbers of the values that the step gave back; None where that is not known.
    """

    model: str
    number: int
    tensors: tuple[Line, ...]
    operators: tuple[Line, ...]
    outputs: tuple[int, ...] | None = None


def processes_of(root: Path) -> tuple[Process, ...]:
    """The processes of a dump that have an index, by their number. Raises FormatError."""
    try:
        folders = sorted((root / PROCESSES).iterdir(), key=lambda path: in_order(path.name))
    except OSError:
        return ()
    return tuple(read_process(folder) for folder in folders if folder.name.isdecimal() and (folder / INDEX).is_file())


def lines_of(folder: Path) -> Iterator[Line]:
    """The lines of a process's index that can be read, and those of its rounds. Raises FormatError when it cannot be
    opened."""
    yield from own_lines(folder)
    for path in round_files(folder):
        yield from round_lines(path)


def round_files(folder: Path) -> list[Path]:
    """The indexes of a process's rounds, step by step."""
    found = folder.parents[1].glob(f"{ROUNDS}/*_{folder.name}/*.round")
    return sorted((path for path in found if path.stem.isdecimal()), key=lambda path: in_order(path.name))


def round_lines(path: Path) -> Iterator[Line]:
    """The lines of a round that can be read. Raises FormatError when it cannot be opened."""
    lines = Lines(None)
    for text in _texts(path):
        for data in text.splitlines():
            yield from lines.read(data)


def _texts(path: Path) -> Iterator[bytes]:
    """The frames of an index; none of one whose first bytes were never written."""
    if path.stat().st_size:
        yield from Index(path).texts()


def summary_of(path: Path) -> Line | None:
    """The last line of a round's index; None of one that was broken off."""
    last = b""
    for text in _texts(path):
        last = text
    line = json_object(last.splitlines()[-1]) if last.endswith(b"\n") else None
    return line if line is not None and line.get("event") == "round" else None


def own_lines(folder: Path) -> Iterator[Line]:
    """The lines of a process's index alone. Raises FormatError when it cannot be opened."""
    try:
        yield from lines_in(folder / INDEX)
    except OSError as error:
        raise FormatError(f"cannot read {folder / INDEX}: {error.strerror or error}") from None


class _Sum:
    """What the lines of a process come to."""

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
        """A round that is whole, of a form that was read line by line before."""
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
    """A process's index, what can be read of it. Raises FormatError when it cannot be opened."""
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
    """The steps of a process, each model's in order; only a few are held at a time. ``one_of_each``: of steps in which
    the same operators run, the first is enough."""
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
    """The line's step; -1 for one that says none."""
    step = line.get("step")
    return step if isinstance(step, int) else -1
