"""The index of each process of a hooked program, ``processes/{pid}/index.jsonl``, line by line and summed up.

A process that was killed has an index without ``{"complete": true}``, its last line perhaps cut off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sgsdump.dumps.formats.shared.hooked import Line, lines_in
from sgsdump.errors import FormatError
from sgsdump.files.folder import in_order

PROCESSES, INDEX = "processes", "index.jsonl"
_MOST_TROUBLES = 100
_MOST_IDS = 100_000
# A step's lines are together but for what other threads do at the time.
_OPEN_STEPS = 3
# Lines that come also where nothing is dumped.
_NO_WORK = {"begin", "trouble", "stop", "seen", "step", "steps", "operator", "graph"}


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
    complete    whether the process came to its end.
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
    """The lines of a process's index that can be read. Raises FormatError when it cannot be opened."""
    try:
        yield from lines_in(folder / INDEX)
    except OSError as error:
        raise FormatError(f"cannot read {folder / INDEX}: {error.strerror or error}") from None


def read_process(folder: Path) -> Process:
    """A process's index, what can be read of it. Raises FormatError when it cannot be opened."""
    libraries: dict[str, None] = {}
    kinds: Counter[str] = Counter()
    steps: set[int] = set()
    ids: set[str] = set()
    unreadable: dict[str, tuple[int, str]] = {}
    troubles: list[str] = []
    tensors = files = unwritten = open_steps = 0
    stopped, begun, complete = "", None, False
    asked_for: Line = {}
    for line in lines_of(folder):
        kind = str(line.get("event", ""))
        complete = line.get("complete") is True
        if "side" in line:
            tensors += 1
            files += line.get("file") is not None
            steps.add(step_of(line))
            unwritten += line.get("unwritten") is True
            if line.get("unreadable") is True:
                _count_unreadable(unreadable, line)
        elif kind:
            kinds[kind] += 1
        if kind == "begin":
            libraries[f"{line.get('library')} {line.get('version')}".strip()] = None
        elif kind == "trouble" and len(troubles) < _MOST_TROUBLES:
            troubles.append(str(line.get("text", "")))
        elif kind == "stop":
            stopped = stopped or str(line.get("text", "")) or "it stopped"
        elif kind == "operator" and len(ids) < _MOST_IDS:
            ids.add(str(line.get("id")))
        elif kind == "steps":
            begun = step_of({"step": line.get("ran")})
        elif kind in ("step", "ort_run", "ort_end"):
            open_steps += 1 if "inputs" in line or "feeds" in line else -1
        elif kind == "seen":
            asked_for = line
    names, types, matched = (frozenset(map(str, asked_for.get(key) or ())) for key in ("names", "types", "matched"))
    return Process(
        pid=int(folder.name),
        folder=folder,
        libraries=tuple(libraries),
        steps=tuple(sorted(steps)),
        kinds=dict(kinds),
        counts=TensorCounts(tensors, files, unreadable, unwritten),
        operators=OperatorNames(names, types, matched, frozenset(ids)),
        troubles=tuple(troubles),
        stopped=stopped,
        begun=begun,
        broken_off=open_steps > 0,
        complete=complete,
    )


def _count_unreadable(unreadable: dict[str, tuple[int, str]], line: Line) -> None:
    why = str(line.get("why", ""))
    count, first = unreadable.get(why, (0, f"{line.get('op')}, {line.get('side')}put {line.get('slot')}"))
    if count or len(unreadable) < _MOST_TROUBLES:
        unreadable[why] = count + 1, first


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
    returned = next((line["outputs"] for line in lines if isinstance(line.get("outputs"), list)), None)
    outputs = None if returned is None else tuple(value for value in returned if isinstance(value, int))
    return Step(model, number, tensors, operators, outputs)


def step_of(line: Line) -> int:
    """The line's step; -1 for one that says none."""
    step = line.get("step")
    return step if isinstance(step, int) else -1
