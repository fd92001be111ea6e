"""The values of the pipeline's options as users write them: ``x=1x3x224x224``, ``x:x.npy,y:y.npy``, ``x 0 255``.

Tensor names may hold colons, commas and equal signs (``input:0``), so they are looked for among the model's own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from sgsdump.errors import ConfigError
from sgsdump.pipeline.selection import Place
from sgsdump.registry import hint


def shapes(words: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """``["x=1x3x8x8"]`` -> ``{"x": (1, 3, 8, 8)}``; commas do for the ``x``. Raises ConfigError."""
    by_name: dict[str, tuple[int, ...]] = {}
    for word in words:
        name, equals, sizes = word.rpartition("=")
        numbers = sizes.strip().lower().replace(",", "x").split("x")
        if not (equals and name and all(each.isdecimal() for each in numbers)):
            raise ConfigError(f"--shape {word}: write NAME=SIZExSIZE, such as input=1x3x224x224")
        if name in by_name:
            raise ConfigError(f"--shape gives the input {name!r} twice")
        by_name[name] = tuple(map(int, numbers))
    return by_name


def input_files(text: str, names: Collection[str]) -> dict[str, Path]:
    """``"x:a.npy,y:b.npy"`` -> the file of each input; ``names`` are the model's inputs.

    A part that begins with no input's name continues the file name before it. Raises ConfigError.
    """
    by_name: dict[str, str] = {}
    name = ""
    for part in text.split(","):
        own = max((each for each in names if part.startswith(f"{each}:")), key=len, default="")
        if own:
            if own in by_name:
                raise ConfigError(f"-i gives the input {own!r} twice")
            name, by_name[own] = own, part[len(own) + 1 :]
        elif name and ":" not in part:
            by_name[name] += f",{part}"
        else:
            unknown = part.rpartition(":")[0]
            if not unknown:
                raise ConfigError(f"-i {text}: write NAME:FILE.npy, with NAME one of: {', '.join(names)}")
            raise ConfigError(f"-i {part}: the model has no input {unknown!r}{hint(unknown, list(names))}")
    empty = [name for name, file in by_name.items() if not file]
    if empty:
        raise ConfigError(f"-i {text}: there is no file behind {empty[0]}:")
    return {name: Path(file) for name, file in by_name.items()}


def ranges(groups: Sequence[Sequence[str]], names: Collection[str]) -> dict[str, dict[str, float]]:
    """``[["0", "1"], ["x", "0", "255"]]`` -> low and high of each input named, and of all of ``names`` when none is.

    A range with a name goes before one without. Raises ConfigError.
    """
    by_name: dict[str, dict[str, float]] = {}
    for group in sorted(groups, key=len):
        *named, low, high = group if len(group) in (2, 3) else ("", "")
        limits = _number(low), _number(high)
        if not all(map(math.isfinite, limits)) or limits[0] > limits[1]:
            raise ConfigError(f"--range {' '.join(group)}: write LOW HIGH or NAME LOW HIGH, two numbers in order")
        if named and named[0] not in names:
            raise ConfigError(f"--range: the model has no input {named[0]!r}{hint(named[0], list(names))}")
        by_name |= {name: dict(zip(("low", "high"), limits)) for name in named or names}
    return by_name


def place(position: str | None, name: str | None, what: str) -> Place | None:
    """Where a range begins or ends: an index when ``position`` is a whole number, else a tensor's name.

    ``name`` is always a name, be it of digits only. Raises ConfigError when both are given.
    """
    if position is not None and name is not None:
        raise ConfigError(f"{what} is given as index and as name; give one of them")
    if name is not None:
        return name
    return int(position) if position is not None and re.fullmatch(r"-?\d+", position) else position


def _number(text: str) -> float:
    try:
        return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
    except ValueError:
        return math.nan
