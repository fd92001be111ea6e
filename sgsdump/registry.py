"""A registry: a table from a short name to a ``module`` or ``module:attribute``, imported when asked for.

The table is plain data, so listing it imports nothing heavy, and there is no registration by import.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from sgsdump.errors import ConfigError, hint


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
