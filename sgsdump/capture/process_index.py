"""What each process of a hooked program wrote of itself: ``processes/{pid}/index.jsonl``, line by line and summed up.

A process that was killed has an index without ``{"complete": true}``, its last line perhaps cut off.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sgsdump.dumps.formats.atb.hooked import Line, lines_in
from sgsdump.errors import FormatError
from sgsdump.files.folder import in_order

PROCESSES, INDEX = "processes", "index.jsonl"
_MOST_TROUBLES = 100
_MOST_IDS = 100_000
# A step's lines are together but for what other threads do at the time.
_OPEN_STEPS = 3
# Lines that come also where nothing is dumped.
_NO_WORK = {"begin", "trouble", "stop", "seen", "step", "steps", "operator"}


@dataclass(frozen=True)
class Process:
    """One process's index, summed up.

    libraries   the libraries that were hooked, with their versions.
    tensors     inputs and outputs that it has a line of; ``files``: those with a file.
    steps       the numbers of the steps that something was dumped of, in order.
    kinds       how many lines there are of each other kind, by their ``event``.
    unreadable  inputs and outputs whose values could not be had, by the reason: how many, and the first of them.
    unwritten   how many inputs and outputs were memory to which nothing had been written yet.
    troubles    what went wrong, a sentence each; ``stopped``: why it dumped no further, or "".
    names, types   some of the operators that ran, where they were asked for by name; ``matched``: the names,
                beginnings and patterns that named one.
    ids         of the operators that ran in the steps that were dumped.
    begun       how many steps, dumped or not, began before it came to its end; None where it did not.
    broken_off  whether it ended, or was ended, in the middle of a step that was dumped.
    complete    whether the process came to its end.
    """

    pid: int
    folder: Path
    libraries: tuple[str, ...] = ()
    tensors: int = 0
    files: int = 0
    steps: tuple[int, ...] = ()
    kinds: Mapping[str, int] = field(default_factory=dict)
    unreadable: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    unwritten: int = 0
    troubles: tuple[str, ...] = ()
    stopped: str = ""
    names: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    matched: tuple[str, ...] = ()
    ids: frozenset[str] = frozenset()
    begun: int | None = None
    broken_off: bool = False
    complete: bool = False

    @property
    def caught(self) -> bool:
        """Whether anything of the program's work was dumped."""
        return bool(self.tensors or set(self.kinds) - _NO_WORK)


@dataclass(frozen=True)
class Step:
    """What one step of one model left: lines of single inputs and outputs, and those of operators (``event``).

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
    """The lines of a process's index that can be read. Raises FormatError when it cannot be opened."""
    try:
        yield from lines_in(folder / INDEX)
    except OSError as error:
        raise FormatError(f"cannot read {folder / INDEX}: {error.strerror or error}") from None


def read_process(folder: Path) -> Process:
    """A process's index, what can be read of it. Raises FormatError when it cannot be opened."""
    sums = _Sums()
    for line in lines_of(folder):
        sums.add(line)
    return sums.process(folder)


class _Sums:
    """What the lines of an index come to."""

    def __init__(self) -> None:
        self._libraries: dict[str, None] = {}
        self._kinds: defaultdict[str, int] = defaultdict(int)
        self._steps: set[int] = set()
        self._ids: set[str] = set()
        self._tensors = self._files = self._open_steps = 0
        self._begun: int | None = None
        self._complete = False
        self._unreadable: dict[str, tuple[int, str]] = {}
        self._unwritten = 0
        self._troubles: list[str] = []
        self._stopped = ""
        self._seen: Line = {}

    def add(self, line: Line) -> None:
        kind = str(line.get("event", ""))
        self._complete = line.get("complete") is True
        if "side" in line:
            self._tensors += 1
            self._files += line.get("file") is not None
            self._steps.add(step_of(line))
            self._unwritten += line.get("unwritten") is True
            if line.get("unreadable") is True:
                self._could_not_read(line)
        elif kind:
            self._kinds[kind] += 1
        self._event(kind, line)

    def _could_not_read(self, line: Line) -> None:
        why = str(line.get("why", ""))
        count, first = self._unreadable.get(why, (0, f"{line.get('op')}, {line.get('side')}put {line.get('slot')}"))
        if count or len(self._unreadable) < _MOST_TROUBLES:
            self._unreadable[why] = count + 1, first

    def _event(self, kind: str, line: Line) -> None:
        if kind == "begin":
            self._libraries[f"{line.get('library')} {line.get('version')}".strip()] = None
        elif kind == "trouble" and len(self._troubles) < _MOST_TROUBLES:
            self._troubles.append(str(line.get("text", "")))
        elif kind == "stop":
            self._stopped = self._stopped or str(line.get("text", "")) or "it stopped"
        elif kind == "operator" and len(self._ids) < _MOST_IDS:
            self._ids.add(str(line.get("id")))
        elif kind == "steps":
            self._begun = step_of({"step": line.get("ran")})
        elif kind in ("step", "ort_run", "ort_end"):
            self._open_steps += 1 if "inputs" in line or "feeds" in line else -1
        elif kind == "seen":
            self._seen = line

    def process(self, folder: Path) -> Process:
        names, types, matched = (tuple(map(str, self._seen.get(key) or ())) for key in ("names", "types", "matched"))
        return Process(
            pid=int(folder.name),
            folder=folder,
            libraries=tuple(self._libraries),
            tensors=self._tensors,
            files=self._files,
            steps=tuple(sorted(self._steps)),
            kinds=dict(self._kinds),
            unreadable=dict(self._unreadable),
            unwritten=self._unwritten,
            troubles=tuple(self._troubles),
            stopped=self._stopped,
            names=names,
            types=types,
            matched=matched,
            ids=frozenset(self._ids),
            begun=self._begun,
            broken_off=self._open_steps > 0,
            complete=self._complete,
        )


def steps_of(process: Process) -> Iterator[Step]:
    """The steps of a process, each model's in order; only a few are held at a time."""
    waiting: dict[str, dict[int, list[Line]]] = {}
    for line in lines_of(process.folder):
        if not ("side" in line or line.get("event") in ("operator", "step")):
            continue
        model, number = str(line.get("model") or ""), step_of(line)
        of_model = waiting.setdefault(model, {})
        of_model.setdefault(number, []).append(line)
        if len(of_model) > _OPEN_STEPS:
            oldest = next(iter(of_model))
            yield _step(model, oldest, of_model.pop(oldest))
    for model, of_model in waiting.items():
        for number, lines in of_model.items():
            yield _step(model, number, lines)


def _step(model: str, number: int, lines: list[Line]) -> Step:
    tensors = tuple(line for line in lines if "side" in line)
    operators = tuple(line for line in lines if line.get("event") == "operator")
    given = [line["outputs"] for line in lines if isinstance(line.get("outputs"), list)]
    outputs = tuple(value for value in given[0] if isinstance(value, int)) if given else None
    return Step(model, number, tensors, operators, outputs)


def step_of(line: Line) -> int:
    """The line's step; -1 for one that says none."""
    step = line.get("step")
    return step if isinstance(step, int) else -1
