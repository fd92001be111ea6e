"""File names made of tensor names: nothing in a name leaves the output folder, and no two tensors share a file."""

from __future__ import annotations

import hashlib
import os

NAME_BYTES = 240  # file systems end at 255; what is left takes a counter or a writer's ``.partial`` ending
UNSAFE = str.maketrans({**dict.fromkeys("/:*?<>|", "_"), **dict.fromkeys(map(chr, (*range(32), 127)), "_")})


def safe(name: str) -> str:
    """``name`` with what the SDK's dumpers replace (``/ : * ? < > |``), and control characters, as ``_``."""
    return name.translate(UNSAFE)


def fitting(name: str, ending: str, limit: int = NAME_BYTES) -> str:
    """``name + ending`` in at most ``limit`` bytes: a longer name is cut, eight digits of its hash keep it apart."""
    whole, room = os.fsencode(name), limit - len(os.fsencode(ending))
    if len(whole) <= room:
        return name + ending
    mark = "~" + hashlib.sha256(whole).hexdigest()[:8]
    return whole[: room - len(mark)].decode("utf-8", "ignore") + mark + ending


class Taken:
    """The file names given out so far in one folder."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._asked: dict[tuple[str, str], int] = {}

    def free(self, name: str, ending: str) -> str:
        """``name + ending``, shortened when too long; ``~2``, ``~3`` … before the ending when it was given before."""
        while True:
            number = self._asked[name, ending] = self._asked.get((name, ending), 0) + 1
            candidate = fitting(name, ending if number == 1 else f"~{number}{ending}")
            if candidate not in self._names:
                self._names.add(candidate)
                return candidate


def normalised(name: str) -> str:
    """The SDK's folder name of a tensor: up to the first white space, ``/`` to ``_``, ``:`` removed."""
    return (name.split(maxsplit=1) or [""])[0].replace("/", "_").replace(":", "")
