"""``DumpControl``, which says what is dumped of a running program, filled from options, a vendor's JSON file or Python;
and the vendors' words for its fields.

The hooks read nothing else than this record, which crosses into the program's process as a flat JSON object
(``to_json``, ``from_json``) of the keys ``FIELDS``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from sgsdump.errors import ConfigError
from sgsdump.files.escaping import quoted

Mode = Literal["input", "output", "all"]
Content = Literal["tensor", "stats", "description", "structure"]
When = Literal["before", "after", "both", "inputs-before-outputs-after"]
Links = Literal["none", "symlink", "hardlink", "index"]
Inside = Literal["graph", "eager"]
Layout = Literal["files", "rounds"]

# msit's sentence, to the letter; the hooks, which import nothing, have it too.
DISK_FULL = "Disk space is not enough, it's must more than 2G, free size(MB) is:"
RANGE_LENGTH = 500
MOST_DIGITS = 4000
_ID = re.compile(r"[0-9]{1,9}(_[0-9]{1,9})*")
# The keys of control.json, in its order.
FIELDS = (
    *"enabled mode steps names prefixes patterns models ids children when content".split(),
    *"timing devices ranks seed links min_free max_bytes layout scene watched inside module".split(),
)


@dataclass(frozen=True)
class Steps:
    """Inclusive ranges of step numbers, from 0; no range at all stands for every step."""

    ranges: tuple[tuple[int, int], ...] = ()

    def __contains__(self, step: int) -> bool:
        return not self.ranges or any(first <= step <= last for first, last in self.ranges)


EVERY = Steps()


@dataclass(frozen=True)
class OperatorFilter:
    """Which operators are dumped.

    names, prefixes, patterns   exact names; beginnings of the operator's type, in any case; regular expressions on the
                                name. An operator is dumped where one of them names it, and where all are empty.
    models      one more way to be named: graphs (models) by name, "" for any, with the operators that are dumped of
                each, none for all.
    ids         operator ids as they count in a step (``2``, and ``3_1`` for the first child of 3), empty for all;
                ``children``: with the operators inside them.
    watched     the operators whose outputs the scene "watcher" dumps.
    module      only a module, by its path in the network (``layers.1``), and what is in it; or a network, by its class.
    inside      of a program that torch.compile made: its compiled graphs as they ran ("graph"), or the operators that
                it would run without it ("eager").
    """

    names: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    models: tuple[tuple[str, tuple[str, ...]], ...] = ()
    ids: tuple[str, ...] = ()
    children: bool = True
    watched: tuple[str, ...] = ()
    inside: Inside = "graph"
    module: str = ""

    @property
    def named(self) -> bool:
        """Whether operators are asked for by name or type, or by their module."""
        return bool(self.names or self.prefixes or self.patterns or self.models or self.module)


MIN_FREE = 2 << 30  # as msit


@dataclass(frozen=True)
class Storage:
    """links      how duplicate payloads are stored.
    min_free   bytes of free disk under which dumping stops; ``max_bytes``: of the dump as a whole, 0 for no limit.
    layout     "files": the vendor's tree, a file for each tensor; "rounds": two files for each round of a process.
    """

    links: Links = "none"
    min_free: int = field(default_factory=lambda: MIN_FREE)
    max_bytes: int = 0
    layout: Layout = "rounds"


@dataclass(frozen=True)
class DumpControl:
    """enabled     False: hooks stand ready and dump nothing (a live configuration may switch them on).
    mode        the side that is dumped: an operator's inputs, outputs, or both.
    steps       runs of the outermost module or of the session, from 0.
    when        the moment at which values are taken.
    content     full tensors, statistics only, or only what describes them (shape, dtype); "structure" has no file for a
                tensor at all, only its line in the index.
    timing      the time each operator takes on the host, for CPU profiling.
    devices, ranks   numbers to be dumped; empty for all.
    seed        None, or the number that random generators start from, with deterministic algorithms on.
    scene       "" or "overflow" (only operators whose output holds NaN, Inf or the largest values of their type, with
                their inputs) or "watcher": after each of ``operators.names`` (or every operator) and after themselves
                the outputs of ``operators.watched``.
    """

    enabled: bool = True
    mode: Mode = "all"
    steps: Steps = EVERY
    when: When = "inputs-before-outputs-after"
    content: Content = "tensor"
    timing: bool = False
    devices: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    seed: int | None = None
    scene: Literal["", "overflow", "watcher"] = ""
    operators: OperatorFilter = OperatorFilter()
    storage: Storage = field(default_factory=Storage)


_PART_OF = {
    field.name: part
    for part, record in (("operators", OperatorFilter), ("storage", Storage))
    for field in fields(record)  # type: ignore[arg-type]
}


def dump_control(**values: Any) -> DumpControl:
    """A control by the flat names of ``FIELDS``."""
    return with_fields(DumpControl(), **values)


def with_fields(control: DumpControl, **values: Any) -> DumpControl:
    """The control with other values of some of its ``FIELDS``."""
    parts = {
        part: replace(getattr(control, part), **{name: values.pop(name) for name in names})
        for part in ("operators", "storage")
        if (names := [name for name in values if _PART_OF.get(name) == part])
    }
    return replace(control, **values, **parts)


def to_json(control: DumpControl) -> str:
    """For the program's process, whose hook reads it with the standard library alone."""
    values = {name: getattr(getattr(control, _PART_OF.get(name, ""), control), name) for name in FIELDS}
    return json.dumps({**values, "steps": control.steps.ranges})


def from_json(text: str) -> DumpControl:
    """Raises ConfigError for anything that ``to_json`` did not write."""
    try:
        document = json.loads(text)
        if not isinstance(document, Mapping) or set(document) != set(FIELDS):
            raise ValueError("other keys than a DumpControl's")
        steps = Steps(tuple((int(first), int(last)) for first, last in document["steps"]))
        return dump_control(**{name: _frozen(value) for name, value in document.items()} | {"steps": steps})
    except (ValueError, TypeError) as error:
        raise ConfigError(f"a dump control is damaged: {str(error)[:200]}") from None


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def read_steps(text: str) -> Steps:
    """TorchAir's dump_step, ``0|3-5|10``: steps and ranges of steps. Raises ConfigError."""
    ranges = []
    for part in text.split("|"):
        ends = [end.strip() for end in part.split("-")]
        if len(ends) > 2 or not all(end.isascii() and end.isdigit() for end in ends):
            raise ConfigError(f"dump_step {text[:80]!r}: {part.strip()[:40]!r} is not a step; expected e.g. 0|3-5|10")
        ranges.append((whole_number(ends[0]), whole_number(ends[-1])))
    return _ascending(ranges, f"dump_step {text[:80]!r}")


def read_ranges(text: str) -> Steps:
    """msit's execute range, ``3,5,7,7``: pairs of first and last step; ``all`` for every step. At most 500 characters.
    Raises ConfigError."""
    if text.strip() == "all":
        return EVERY
    option = f"execute range {text[:80]!r}"
    if len(text) > RANGE_LENGTH:
        raise ConfigError(f"{option} has {len(text)} characters; at most {RANGE_LENGTH} are read")
    numbers = [number.strip() for number in text.split(",")]
    if len(numbers) % 2 or not all(number.isascii() and number.isdigit() for number in numbers):
        raise ConfigError(f"{option} is not pairs of step numbers, as in 3,5,7,7 for steps 3 to 5 and 7")
    return _ascending(list(zip(map(int, numbers[::2]), map(int, numbers[1::2]), strict=True)), option)


def whole_number(digits: str) -> int:
    """No step is beyond this many digits; Python refuses to read more than some thousand."""
    return int(digits.lstrip("0")[:MOST_DIGITS] or "0")


def _ascending(ranges: list[tuple[int, int]], option: str) -> Steps:
    for first, last in ranges:
        if first > last:
            raise ConfigError(f"{option}: {first} to {last} goes backwards")
    return Steps(tuple(ranges))


def read_ids(text: str) -> tuple[str, ...]:
    """``2, 3_1``: operators by their number in a step, children after ``_``. Raises ConfigError."""
    ids = _parts(text)
    for id in ids:
        if not _ID.fullmatch(id):
            raise ConfigError(f"{quoted(id)} is not an operation id; expected e.g. 2,3_1")
    return ids


def read_devices(text: str, option: str = "device") -> tuple[int, ...]:
    """``0,1``. Raises ConfigError."""
    numbers = _parts(text)
    for number in numbers:
        if not (number.isascii() and number.isdigit() and len(number) < 10):
            raise ConfigError(f"{option} {quoted(number)} is not a number; write numbers from 0, as in 0,1")
    return tuple(map(int, numbers))


def read_truth(text: str, option: str) -> bool:
    """``true`` or ``false`` in any case. Raises ConfigError."""
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ConfigError(f"{option} is {quoted(text)}; it must be true or false")
    return word == "true"


def read_names(texts: Iterable[str]) -> tuple[str, ...]:
    """Names with commas between. Raises ConfigError where one is empty."""
    parts = [part.strip() for text in texts for part in text.split(",")]
    if not all(parts):
        raise ConfigError(f"operator names {quoted(','.join(texts))} leave one out; write them as A,B")
    return tuple(dict.fromkeys(parts))


def _parts(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part for part in (part.strip() for part in text.split(",")) if part))
