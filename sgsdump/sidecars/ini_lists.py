"""Lists in the SDK's INI files, a value for each input or output: names, known words, whole numbers, colours.

All raise ConfigError, naming file, line and key, for a list that is not one of these.
"""

from __future__ import annotations

import math
import re
from collections import Counter

from sgsdump.errors import ConfigError
from sgsdump.files.escaping import quoted
from sgsdump.sidecars.ini import Section, Value


def names_of(value: Value) -> list[str]:
    """Names, each once; a comma may end the list."""
    names = value.items()
    if names and not names[-1]:
        names.pop()
    if not names or "" in names:
        raise ConfigError(f"{value.where}: a name is empty in {quoted(value.text)}")
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise ConfigError(f"{value.where}: {twice[0]!r} stands in the list twice")
    return names


def words_of(section: Section, key: str, known: tuple[str, ...], count: int, kind: str = "input") -> list[str]:
    """One known word for each input or output; [] when the key is absent."""
    if key not in section:
        return []
    value = section[key]
    items = value.items()
    if len(items) == count + 1 and not items[-1]:
        items.pop()
    if len(items) != count:
        raise ConfigError(f"{value.where} has {len(items)} values for {count} {kind}s; give one for each, by commas")
    return [known_word(value, item, known) for item in items]


def known_word(value: Value, item: str, known: tuple[str, ...]) -> str:
    """``item`` if it is one of ``known``."""
    if item not in known:
        raise ConfigError(f"{value.where}: unknown value {quoted(item)}; choose one of: {', '.join(known)}")
    return item


def triples_of(value: Value | None, is_picture: list[bool], default: tuple[float, ...]) -> list[tuple[float, ...]]:
    """(r, g, b) for each input, () for RAWDATA. The file gives one for all, one per input or one per picture."""
    if value is None:
        return [default if picture else () for picture in is_picture]
    items = value.items()
    pictures = sum(is_picture)
    if not pictures and any(items):
        raise ConfigError(f"{value.where}: RAWDATA inputs take no mean and no std_value; remove the line")
    if len(items) == 1:
        items = [items[0] if picture else "" for picture in is_picture]
    elif len(items) == pictures != len(is_picture):
        rest = iter(items)
        items = [next(rest) if picture else "" for picture in is_picture]
    if len(items) != len(is_picture):
        raise ConfigError(
            f"{value.where} has {len(items)} values for {len(is_picture)} inputs; give one for each, by commas"
        )
    triples = []
    for item, picture in zip(items, is_picture):
        if not picture and item:
            raise ConfigError(
                f"{value.where}: {quoted(item)} is for a RAWDATA input, which takes no mean and no std_value"
            )
        triples.append(_triple(value, item) if picture else ())
    return triples


def _triple(value: Value, item: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(part) for part in item.split(":"))
    except ValueError:
        raise ConfigError(f"{value.where}: {quoted(item)} is not a number, nor red:green:blue") from None
    if not all(map(math.isfinite, numbers)):
        raise ConfigError(f"{value.where}: {quoted(item)} is not a finite number")
    if len(numbers) == 1:
        return numbers * 3
    if len(numbers) != 3:
        raise ConfigError(f"{value.where}: {quoted(item)} has {len(numbers)} numbers; give one, or red:green:blue")
    return numbers


def whole_numbers_of(value: Value | None, default: list[int]) -> list[int]:
    """A number above 0 for each input, or one for all; ``default`` when the key is absent."""
    if value is None:
        return default
    items = value.items()
    items = items * len(default) if len(items) == 1 else items
    if len(items) != len(default):
        raise ConfigError(
            f"{value.where} has {len(items)} values for {len(default)} inputs; give one for each, by commas"
        )
    for item in items:
        if not re.fullmatch(r"[1-9]\d{0,8}", item):
            raise ConfigError(f"{value.where}: {quoted(item)} is not a whole number above 0")
    return [int(item) for item in items]
