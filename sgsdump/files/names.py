"""File names derived from tensor and input names: always inside the output folder, never shared by two results."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

NAME_BYTES = 240  # file systems allow 255; the rest is for a counter or a writer's ``.partial`` ending
# On Windows, \ leaves the folder and " is not allowed in a name.
_MORE = '\\"' if os.name == "nt" else ""
UNSAFE = str.maketrans({**dict.fromkeys(f"/:*?<>|{_MORE}", "_"), **dict.fromkeys(map(chr, (*range(32), 127)), "_")})
_NO_WORD = re.compile(r"\W", re.ASCII)
# Windows removes these characters from the end of a name.
_END = re.compile(r"[. ]+$")
# Device names of Windows, reserved with any ending.
_DEVICE = re.compile(r"(con|prn|aux|nul|(com|lpt)[1-9])(?=\.|$)", re.IGNORECASE)
# Conv1 and conv1 are the same file.
IGNORES_CASE = sys.platform in ("win32", "darwin")


def safe(name: str) -> str:
    """Replace characters in ``name`` with ``_``: those that the SDK's dumpers replace, and control characters."""
    return name.translate(UNSAFE)


def fitting(name: str, ending: str, limit: int = NAME_BYTES) -> str:
    """Return ``name + ending`` in at most ``limit`` bytes; a longer name is cut and gets eight digits of its hash."""
    whole, room = os.fsencode(name), limit - len(os.fsencode(ending))
    if len(whole) <= room:
        return name + ending
    import hashlib

    mark = "~" + hashlib.sha256(whole).hexdigest()[:8]
    return whole[: room - len(mark)].decode("utf-8", "ignore") + mark + ending


class Taken:
    """File names used so far in one folder; if ``ignores_case``, no two names differ only by case."""

    def __init__(self, ignores_case: bool = IGNORES_CASE) -> None:
        self._ignores_case = ignores_case
        self._names: set[str] = set()
        self._counts: dict[tuple[str, str], int] = {}

    def free(self, name: str, ending: str) -> str:
        """Return ``name + ending``, shortened if too long, with ``~2``, ``~3`` … before the ending if already used."""
        while True:
            number = self._counts[name, ending] = self._counts.get((name, ending), 0) + 1
            candidate = fitting(name, ending if number == 1 else f"~{number}{ending}")
            key = candidate.casefold() if self._ignores_case else candidate
            if key not in self._names:
                self._names.add(key)
                return candidate


def normalised(name: str) -> str:
    """Return the SDK's folder name of a tensor: up to the first white space, ``/`` replaced by ``_``, ``:`` removed."""
    return (name.split(maxsplit=1) or [""])[0].replace("/", "_").replace(":", "")


def word(name: str) -> str:
    """Return a name in letters, digits and ``_``, as some tools require: ``_net_conv_0`` for ``/net/conv.0``."""
    return _NO_WORD.sub("_", name)


def file_stem(name: str) -> str:
    """Return ``name`` as part of a file name for any system, such as ``conv1_Relu_0`` for ``conv1/Relu:0``.

    A manifest beside the files records the tensors' own names.
    """
    stem = safe(_encodable(name).replace("\\", "_").replace('"', "_"))
    stem = _END.sub(lambda end: "_" * len(end[0]), stem)
    return _DEVICE.sub(r"\1_", stem, 1) if _DEVICE.match(stem) else stem or "unnamed"


def label(name: str) -> str:
    """Return ``name`` as a safe key in an archive.

    Control characters are replaced, and ``..`` is replaced because it would leave the folder when the archive is
    unpacked.
    """
    kept = "".join(character if character.isprintable() else "_" for character in _encodable(name))
    return "/".join("__" if part == ".." else part for part in kept.replace("\\", "_").split("/")) or "unnamed"


def output_paths(output: Path, files: Sequence[str]) -> list[Path]:
    """Return the path of each input's dump: ``output`` for one input, otherwise distinct paths with input names."""
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
    """Insert a name in a path: ``out_cat.bin`` for ``out.bin``."""
    return output.with_name(f"{output.stem}_{name}{output.suffix}")


def _encodable(name: str) -> str:
    """Replace lone surrogates, which represent bytes that are not UTF-8."""
    return name.encode("utf-8", "replace").decode("utf-8")
