"""What writing a dump in a format would lose, known before anything is written and without reading a value."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sgsdump.dumps.dump import Record
from sgsdump.dumps.formats import FORMATS

NAMES = 3


def losses(records: Sequence[Record], format: str, variant: Any = None) -> list[str]:
    """A line for each thing that the format would lose or refuse, with the number of tensors affected and the names of
    the first few: ``2 tensors are float16, kept as float32: 'conv1', 'conv2'``. Empty: everything comes back equal.

    Raises ConfigError for an unknown format.
    """
    affected: defaultdict[str, list[str]] = defaultdict(list)
    for record, what in FORMATS[format].loses(records, variant):
        affected[what].append(record.name)
    return [_line(what, names) for what, names in affected.items()]


def _line(what: str, names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:NAMES])) + (", …" if len(names) > NAMES else "")
    return f"{len(names)} {'tensor' if len(names) == 1 else 'tensors'} {_plural(what, len(names))}: {shown}"


def _plural(what: str, count: int) -> str:
    """``is float16`` as it follows a number of tensors."""
    verb, _, rest = what.partition(" ")
    many = {"is": "are", "has": "have", "loses": "lose"}.get(verb, verb)
    return what if count == 1 else f"{many} {rest}"
