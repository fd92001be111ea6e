"""Registries: tables from a short name to a ``module`` or ``module:attribute`` that is imported on request.

A table is plain data: listing it imports nothing heavy, and no module registers itself by being imported.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sgsdump.errors import ConfigError, hint


def imported(target: str) -> Any:
    """Import and return a ``module`` or ``module:attribute``."""
    module, _, attribute = target.partition(":")
    found = importlib.import_module(module)
    return getattr(found, attribute) if attribute else found


class Registry(Mapping[str, Any]):
    """Mapping whose values are imported on access.

    ``Registry("format", {"npz": "package.npz:FORMAT"})["npz"]`` imports the module and returns FORMAT.

    further  returns the members that installed plug-ins add. It is called only for a name that no own member has, and
             after the last own member.

    Raises ConfigError for an unknown name, with the nearest known names.
    """

    def __init__(self, kind: str, members: Mapping[str, str], further: Callable[[], Mapping[str, str]] = dict):
        self.kind = kind
        self._members = dict(members)
        self._further = further

    @property
    def own(self) -> Registry:
        """Registry of sgsdump's own members."""
        return Registry(self.kind, self._members)

    def __getitem__(self, name: str) -> Any:
        target = self._members.get(name) or self._further().get(name)
        if target is None:
            raise ConfigError(f"unknown {self.kind} {name!r}{hint(name, list(self))}")
        return imported(target)

    def __contains__(self, name: object) -> bool:
        return name in self._members or name in self._further()

    def __iter__(self) -> Iterator[str]:
        yield from self._members
        yield from (name for name in self._further() if name not in self._members)

    def __len__(self) -> int:
        return sum(1 for _ in self)
