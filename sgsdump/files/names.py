"""File names made of names of tensors and inputs: none leaves the output folder, and no two results share a file."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

NAME_BYTES = 240  # file systems end at 255; the rest takes a counter or a writer's ``.partial`` ending
# Windows leaves the folder by the one, and takes no name with the other.
_MORE = '\\"' if os.name == "nt" else ""
UNSAFE = str.maketrans({**dict.fromkeys(f"/:*?<>|{_MORE}", "_"), **dict.fromkeys(map(chr, (*range(32), 127)), "_")})
_NO_WORD = re.compile(r"\W", re.ASCII)
# What Windows takes off the end of a name.
_END = re.compile(r"[. ]+$")
# Devices of Windows, with any ending.
_DEVICE = re.compile(r"(con|prn|aux|nul|(com|lpt)[1-9])(?=\.|$)", re.IGNORECASE)
# Conv1 and conv1 are one file.
IGNORES_CASE = sys.platform in ("win32", "darwin")


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
    """The file names given out so far in one folder; where ``ignores_case`` none differs from another by case alone."""

    def __init__(self, ignores_case: bool = IGNORES_CASE) -> None:
        self._ignores_case = ignores_case
        self._names: set[str] = set()
        self._counts: dict[tuple[str, str], int] = {}

    def free(self, name: str, ending: str) -> str:
        """``name + ending``, shortened when too long; ``~2``, ``~3`` … before the ending when it was given before."""
        while True:
            number = self._counts[name, ending] = self._counts.get((name, ending), 0) + 1
            candidate = fitting(name, ending if number == 1 else f"~{number}{ending}")
            key = candidate.casefold() if self._ignores_case else candidate
            if key not in self._names:
                self._names.add(key)
                return candidate


def normalised(name: str) -> str:
    """The SDK's folder name of a tensor: up to the first white space, ``/`` to ``_``, ``:`` removed."""
    return (name.split(maxsplit=1) or [""])[0].replace("/", "_").replace(":", "")


def word(name: str) -> str:
    """A name as tools write it that allow letters, digits and ``_`` only: ``_net_conv_0`` for ``/net/conv.0``."""
    return _NO_WORD.sub("_", name)


def file_stem(name: str) -> str:
    """``name`` as part of a file's name on any system, ``conv1_Relu_0`` for ``conv1/Relu:0``; a manifest beside the
    files has the tensors' own names."""
    stem = safe(_encodable(name).replace("\\", "_").replace('"', "_"))
    stem = _END.sub(lambda end: "_" * len(end[0]), stem)
    return _DEVICE.sub(r"\1_", stem, 1) if _DEVICE.match(stem) else stem or "unnamed"


def label(name: str) -> str:
    """``name`` as a key in an archive, as much of it kept as is safe: no control characters, and no ``..`` that would
    lead whoever unpacks it out of the folder."""
    kept = "".join(character if character.isprintable() else "_" for character in _encodable(name))
    return "/".join("__" if part == ".." else part for part in kept.replace("\\", "_").split("/")) or "unnamed"


def output_paths(output: Path, files: Sequence[str]) -> list[Path]:
    """Where each input's dump goes: ``output`` for one; with the input's name put in for several, all different."""
    if len(files) == 1:
        return [output]
    paths: list[Path] = []
    for file in files:
        path, number = named(output, Path(file).stem), 1
        while path in paths:
            number += 1
            path = named(output, f"{Path(file).stem}_{number}")
        paths.append(path)
    return paths


def named(output: Path, name: str) -> Path:
    """``out.bin`` with a name put in: ``out_cat.bin``."""
    return output.with_name(f"{output.stem}_{name}{output.suffix}")


def _encodable(name: str) -> str:
    """Without lone surrogates, which stand for bytes that are not UTF-8."""
    return name.encode("utf-8", "replace").decode("utf-8")
