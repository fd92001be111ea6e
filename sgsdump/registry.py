"""A registry: a table from a short name to a ``module`` or ``module:attribute``, imported when asked for.

The table is plain data, so listing it imports nothing heavy, and there is no registration by import.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sgsdump.errors import ConfigError


class Registry(Mapping[str, Any]):
    """``Registry("format", {"npz": "package.npz:FORMAT"})["npz"]`` imports the module and returns FORMAT.

    Raises ConfigError for an unknown name, with the nearest known ones.
    """

    def __init__(self, kind: str, members: Mapping[str, str]):
        self.kind = kind
        self._members = dict(members)

    def __getitem__(self, name: str) -> Any:
        if name not in self._members:
            raise ConfigError(f"unknown {self.kind} {name!r}{hint(name, self._members)}")
        module, _, attribute = self._members[name].partition(":")
        imported = importlib.import_module(module)
        return getattr(imported, attribute) if attribute else imported

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


LONGEST = 200


def hint(name: str, known: Mapping[str, Any] | list[str]) -> str:
    """``; did you mean 'conv1'?`` for a near miss, the choices when they are few, else an empty string."""
    import difflib

    # difflib takes the product of both lengths
    name, short = name[:LONGEST], [n for n in known if len(n) <= LONGEST]
    near = difflib.get_close_matches(name, short, n=3, cutoff=0.6) or _alike(name, short)
    if near:
        return "; did you mean " + " or ".join(repr(n) for n in near) + "?"
    return f"; choose one of: {', '.join(known)}" if 0 < len(known) <= 12 else ""


def _alike(name: str, known: list[str]) -> list[str]:
    """At most three names that are near but for case, ``_`` and ``-``: the same, begun so, else of like letters."""
    import difflib

    letters = _letters(name)
    names = {_letters(n): n for n in reversed(known)}
    begun = [n for other, n in names.items() if len(letters) > 2 and other.startswith(letters)]
    near = [names[letters]] if letters in names else begun[::-1]
    return (near or [names[n] for n in difflib.get_close_matches(letters, names, n=3, cutoff=0.6)])[:3]


def _letters(name: str) -> str:
    return name.replace("_", "").replace("-", "").casefold()


def listed(names: Sequence[str], most: int = 3, shown: Callable[[str], str] = str) -> str:
    """``a, b, c and 4 more``: the first of many names, each as it is to be ``shown``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(shown, names[:most])) + more
