"""``DumpControl`` selects which tensors of a program are dumped.

The parsers in this module read the vendors' syntax for the fields of ``DumpControl``.

Command options, a vendor's JSON file or Python code set the fields of ``DumpControl``. The hooks read no settings other
than the fields of ``DumpControl``. sgsdump passes the ``DumpControl`` to the program's process as a flat JSON object
(``to_json``, ``from_json``), whose keys are ``FIELDS``.
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

# msit's sentence, verbatim. The hooks have a copy because they import nothing from this package.
DISK_FULL = "Disk space is not enough, it's must more than 2G, free size(MB) is:"
RANGE_LENGTH = 500
MOST_DIGITS = 4000
_ID = re.compile(r"[0-9]{1,9}(_[0-9]{1,9})*")
# The keys of control.json, in its order.
FIELDS = (
    *"enabled mode steps names prefixes patterns models ids children when content".split(),
    *"timing devices ranks seed links min_free max_bytes layout scene watched inside module with_source".split(),
)


@dataclass(frozen=True)
class Steps:
    """Inclusive ranges of step numbers, counted from 0. Without a range, every step is selected."""

    ranges: tuple[tuple[int, int], ...] = ()

    def __contains__(self, step: int) -> bool:
        return not self.ranges or any(first <= step <= last for first, last in self.ranges)


EVERY = Steps()


@dataclass(frozen=True)
class OperatorFilter:
    """Selection of operators.

    Attributes
    ----------
    names, prefixes, patterns : tuple of str
        Exact operator names; prefixes of operator types, case-insensitive; regular expressions for operator names. An
        operator is dumped if a name, prefix or pattern matches, or if all three tuples are empty.
    models : tuple of (str, tuple of str)
        Selection by graph: pairs of a graph name ("" for any graph) and the names of operators in this graph (empty for
        all).
    ids : tuple of str
        Operator ids within a step; empty for all. ``3_1`` is the child with index 1 of operator ``3``.
    children : bool
        True if the operators inside selected operators are dumped too.
    watched : tuple of str
        Operators whose outputs are dumped in the scene "watcher".
    inside : {"graph", "eager"}
        For a program with torch.compile: "graph" dumps the compiled graphs, "eager" runs and dumps the operators
        without compilation.
    module : str
        The only module to dump, with its submodules: path in the network (``layers.1``), or class name of a whole
        network.
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
        """True if operators are selected by name, type, graph or module."""
        return bool(self.names or self.prefixes or self.patterns or self.models or self.module)


MIN_FREE = 2 << 30  # msit's limit


@dataclass(frozen=True)
class Storage:
    """Storage of a dump.

    Attributes
    ----------
    links : {"none", "symlink", "hardlink", "index"}
        How payloads that occur more than once are stored.
    min_free : int
        Dumping stops if fewer bytes are free on the disk.
    max_bytes : int
        Size limit of the whole dump in bytes; 0 for no limit.
    layout : {"files", "rounds"}
        "files" writes the vendor's tree with one file per tensor. "rounds" writes two files for each round of a
        process.
    """

    links: Links = "none"
    min_free: int = field(default_factory=lambda: MIN_FREE)
    max_bytes: int = 0
    layout: Layout = "rounds"


@dataclass(frozen=True)
class DumpControl:
    """Selection of the tensors that a program dumps.

    Attributes
    ----------
    enabled : bool
        If False, the hooks are installed but dump nothing until a changed configuration enables them.
    mode : {"input", "output", "all"}
        Tensors of an operator to dump: inputs, outputs or both.
    steps : Steps
        Steps to dump, counted from 0. A step is one call of the outermost module or one run of the onnxruntime session.
    when : {"before", "after", "both", "inputs-before-outputs-after"}
        When tensors are read: before or after the operator runs.
    content : {"tensor", "stats", "description", "structure"}
        Content to store: values, statistics, shape and dtype ("description"), or only a line in the index
        ("structure").
    timing : bool
        True if the host time of each operator is recorded, for CPU profiling.
    devices, ranks : tuple of int
        Numbers of the devices and ranks to dump; empty for all.
    seed : int or None
        Seed of the random generators. If a seed is set, deterministic algorithms are enabled too.
    scene : {"", "overflow", "watcher"}
        "overflow" dumps only operators whose output holds NaN, Inf or the largest value of its type, with their inputs.
        "watcher" dumps the outputs of ``operators.watched`` when they are computed, and again after each operator of
        ``operators.names`` (default: after every operator).
    operators : OperatorFilter
        Selection of operators.
    storage : Storage
        Disk limits and layout.
    with_source : bool
        True if the dump keeps five lines of the program's code around each line that calls an operator. If a line
        calls operators several times, these five lines are kept once.

    Examples
    --------
    ::

        from sgsdump import DumpControl, capture

        with capture("dumps", DumpControl(mode="output", content="stats")):
            model(x)
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
    with_source: bool = False


_PART_OF = {
    field.name: part
    for part, record in (("operators", OperatorFilter), ("storage", Storage))
    for field in fields(record)  # type: ignore[arg-type]
}


def dump_control(**values: Any) -> DumpControl:
    """Return a ``DumpControl`` with the given values of fields in ``FIELDS``; other fields have their defaults."""
    return with_fields(DumpControl(), **values)


def with_fields(control: DumpControl, **values: Any) -> DumpControl:
    """Return a copy of the control with new values for some of the ``FIELDS``."""
    parts = {
        part: replace(getattr(control, part), **{name: values.pop(name) for name in names})
        for part in ("operators", "storage")
        if (names := [name for name in values if _PART_OF.get(name) == part])
    }
    return replace(control, **values, **parts)


def to_json(control: DumpControl) -> str:
    """Return the control as JSON. The hook in the program reads this JSON with the standard library only."""
    values = {name: getattr(getattr(control, _PART_OF.get(name, ""), control), name) for name in FIELDS}
    return json.dumps({**values, "steps": control.steps.ranges})


def from_json(text: str) -> DumpControl:
    """Read a control. Raises ConfigError for text that ``to_json`` did not write."""
    try:
        document = json.loads(text)
        if not isinstance(document, Mapping) or set(document) != set(FIELDS):
            raise ValueError("the keys of the JSON object do not match the fields of DumpControl")
        steps = Steps(tuple((int(first), int(last)) for first, last in document["steps"]))
        return dump_control(**{name: _frozen(value) for name, value in document.items()} | {"steps": steps})
    except (ValueError, TypeError) as error:
        raise ConfigError(f"invalid JSON of a DumpControl: {str(error)[:200]}") from None


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def read_steps(text: str) -> Steps:
    """Read TorchAir's dump_step, such as ``0|3-5|10``: steps and ranges of steps. Raises ConfigError."""
    ranges = []
    for part in text.split("|"):
        ends = [end.strip() for end in part.split("-")]
        if len(ends) > 2 or not all(end.isascii() and end.isdigit() for end in ends):
            raise ConfigError(f"dump_step {text[:80]!r}: {part.strip()[:40]!r} is not a step; expected e.g. 0|3-5|10")
        ranges.append((whole_number(ends[0]), whole_number(ends[-1])))
    return _ascending(ranges, f"dump_step {text[:80]!r}")


def read_ranges(text: str) -> Steps:
    """Read msit's execute range: ``all``, or pairs of first and last step: ``3,5,7,7`` means 3 to 5 and 7.

    Raises ConfigError for an invalid text and for a text of more than 500 characters.
    """
    if text.strip() == "all":
        return EVERY
    option = f"execute range {text[:80]!r}"
    if len(text) > RANGE_LENGTH:
        raise ConfigError(f"{option} has {len(text)} characters; at most {RANGE_LENGTH} are allowed")
    numbers = [number.strip() for number in text.split(",")]
    if len(numbers) % 2 or not all(number.isascii() and number.isdigit() for number in numbers):
        raise ConfigError(f"{option} is not a list of pairs; write 3,5,7,7 for steps 3 to 5 and step 7")
    return _ascending(list(zip(map(int, numbers[::2]), map(int, numbers[1::2]), strict=True)), option)


def whole_number(digits: str) -> int:
    """Return the integer that the first ``MOST_DIGITS`` digits represent.

    Further digits are ignored, because Python refuses to convert very long digit strings.
    """
    return int(digits.lstrip("0")[:MOST_DIGITS] or "0")


def _ascending(ranges: list[tuple[int, int]], option: str) -> Steps:
    for first, last in ranges:
        if first > last:
            raise ConfigError(f"{option}: {first} to {last} is a descending range; swap the numbers")
    return Steps(tuple(ranges))


def read_ids(text: str) -> tuple[str, ...]:
    """Read operator ids such as ``2, 3_1``.

    Each id is the number of an operator in a step; ``3_1`` is child 1 of operator 3. Raises ConfigError.
    """
    ids = _parts(text)
    for id in ids:
        if not _ID.fullmatch(id):
            raise ConfigError(f"{quoted(id)} is not an operation id; write ids such as 2,3_1")
    return ids


def read_devices(text: str, option: str = "device") -> tuple[int, ...]:
    """Read device numbers such as ``0,1``. Raises ConfigError."""
    numbers = _parts(text)
    for number in numbers:
        if not (number.isascii() and number.isdigit() and len(number) < 10):
            raise ConfigError(
                f"{option} {quoted(number)} is not a number; write whole numbers of 0 or more, for example 0,1"
            )
    return tuple(map(int, numbers))


def read_truth(text: str, option: str) -> bool:
    """Read ``true`` or ``false``, case-insensitive. Raises ConfigError."""
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ConfigError(f"{option} is {quoted(text)}; use true or false")
    return word == "true"


def read_names(texts: Iterable[str]) -> tuple[str, ...]:
    """Read names separated by commas. Raises ConfigError for an empty name."""
    parts = [part.strip() for text in texts for part in text.split(",")]
    if not all(parts):
        raise ConfigError(
            f"operator names {quoted(','.join(texts))} contain an empty name; write one comma between names: A,B"
        )
    return tuple(dict.fromkeys(parts))


def _parts(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part for part in (part.strip() for part in text.split(",")) if part))
