"""Operators that were asked for by name and never ran, with the nearest of those that did."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence

from sgsdump.capture.control import DumpControl
from sgsdump.capture.process_index import Process

_SHOWN = 3


def unmatched(control: DumpControl, processes: Sequence[Process]) -> Iterator[str]:
    """A sentence for each name, beginning and pattern that no operator of any process answers to."""
    names = sorted({name for process in processes for name in process.names})
    types = sorted({kind for process in processes for kind in process.types})
    if not names and not types:
        return
    asked = dict.fromkeys([*control.names, *(name for _, layer in control.models for name in layer)])
    for name in asked:
        if name not in names:
            yield f"no operator {name!r} ran{_near(name, names)}"
    for prefix in control.prefixes:
        if not any(_begins(kind, prefix) for kind in types):
            yield f"no operator ran whose type begins with {prefix!r}{_near(prefix, [*types, *map(_short, types)])}"
    for pattern in control.patterns:
        if not any(re.search(pattern, name) for name in names):
            yield f"no operator ran whose name matches {pattern!r}"


def _begins(kind: str, prefix: str) -> bool:
    return any(text.lower().startswith(prefix.lower()) for text in (kind, _short(kind)))


def _short(kind: str) -> str:
    """``addmm`` of ``aten.addmm``."""
    return kind.partition(".")[2] or kind


def _near(name: str, names: Sequence[str]) -> str:
    lower = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), lower, _SHOWN, cutoff=0.5)
    return f"; near it are {', '.join(lower[found] for found in near)}" if near else ""
