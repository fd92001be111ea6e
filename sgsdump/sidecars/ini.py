"""Parser for the SDK's INI dialect: ``[SECTION]``, ``key = value;``.

Several values, one per input, are separated by commas. A value ends at the first ``;`` outside quotes; the remainder is
a comment. Quotes are dropped. Lines that begin with ``;`` or ``#`` are comments. A list may continue over indented
lines until its ``;``. Keys are matched in lower case. Any other text raises ConfigError with file, line and key.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sgsdump.errors import ConfigError, hint
from sgsdump.files.bounded_read import decode, read_bytes
from sgsdump.files.escaping import quoted


@dataclass(frozen=True)
class Value:
    """Value of a key, without quotes and comment, and ``file:line: key`` for messages."""

    text: str
    where: str

    def items(self) -> list[str]:
        return [item.strip() for item in self.text.split(",")]


Section = dict[str, Value]
_PIECE = re.compile(r"""'[^']*'|"[^"]*"|[^;'"]+|['"]""")


class _Parts(NamedTuple):
    """A value that may continue on further lines."""

    texts: list[str]
    where: str


def read_sections(path: Path, keys: Mapping[str, Sequence[str]]) -> dict[str, Section]:
    """Return the sections of a file; ``keys`` lists the allowed sections and their keys.

    Raises ConfigError with file and line for unknown or repeated sections and keys, and for any other text.
    """
    text = decode(read_bytes(path, 1 << 20).removeprefix(b"\xef\xbb\xbf"), path)
    sections: dict[str, dict[str, _Parts]] = {}
    current: dict[str, _Parts] | None = None
    section = key = ""
    running_on = False
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{path}:{number}"
        bare = line.strip()
        if not bare or bare[0] in ";#":
            continue
        header = re.fullmatch(r"\[([^\]]*)\]\s*([;#].*)?", bare)
        if header:
            section = _new_section(header[1].strip(), sections, keys, where)
            current = sections[section] = {}
            running_on = False
        elif current is None:
            raise ConfigError(f"{where}: {quoted(bare)} is not in a section; begin with [{next(iter(keys))}]")
        elif running_on and line[0] in " \t" and "=" not in bare:
            more, running_on = _value(bare)
            current[key].texts.append(more)
        else:
            key, value, running_on = _pair(bare, where)
            if key not in keys[section]:
                raise ConfigError(f"{where}: unknown key {quoted(key)} in [{section}]{hint(key, list(keys[section]))}")
            if key in current:
                raise ConfigError(f"{where}: the key {key} occurs twice in [{section}]")
            current[key] = _Parts([value], f"{where}: {key}")
    return {
        name: {key: Value("".join(parts.texts), parts.where) for key, parts in values.items()}
        for name, values in sections.items()
    }


def _new_section(name: str, sections: Container[str], keys: Mapping[str, Sequence[str]], where: str) -> str:
    if name not in keys:
        raise ConfigError(f"{where}: unknown section [{name[:80]}]{hint(name, keys)}")
    if name in sections:
        raise ConfigError(f"{where}: the section [{name}] occurs twice")
    return name


def _pair(bare: str, where: str) -> tuple[str, str, bool]:
    key, equals, rest = bare.partition("=")
    if not equals:
        raise ConfigError(f"{where}: {quoted(bare)} is neither a [section] nor key = value")
    return key.strip().lower(), *_value(rest)


def _value(text: str) -> tuple[str, bool]:
    """Return the value without quotes and comment, and whether the next line may continue it."""
    end = 0
    while piece := _PIECE.match(text, end):  # a single pattern for all pieces takes a hundred bytes per quote
        end = piece.end()
    return re.sub(r"['\"]", "", text[:end]).strip(), end == len(text)


def names_of(value: Value) -> list[str]:
    """Return distinct names; a trailing comma is allowed."""
    names = value.items()
    if names and not names[-1]:
        names.pop()
    if not names or "" in names:
        raise ConfigError(f"{value.where}: a name is empty in {quoted(value.text)}")
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise ConfigError(f"{value.where}: {twice[0]!r} occurs twice in the list")
    return names


def words_of(section: Section, key: str, choices: tuple[str, ...], count: int, kind: str = "input") -> list[str]:
    """Return one of ``choices`` per input or output, or [] if the key is absent."""
    if key not in section:
        return []
    value = section[key]
    items = value.items()
    if len(items) == count + 1 and not items[-1]:
        items.pop()
    _check_count(value, items, count, kind)
    return [choice_of(value, item, choices) for item in items]


def choice_of(value: Value, item: str, choices: tuple[str, ...]) -> str:
    """Return ``item`` if it is one of ``choices``; raise ConfigError otherwise."""
    if item not in choices:
        raise ConfigError(f"{value.where}: unknown value {quoted(item)}; choose one of: {', '.join(choices)}")
    return item


def triples_of(value: Value | None, is_picture: list[bool], default: tuple[float, ...]) -> list[tuple[float, ...]]:
    """Return (r, g, b) per input, () for RAWDATA; the file gives one for all, one per input or one per image."""
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
    _check_count(value, items, len(is_picture))
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
        raise ConfigError(
            f"{value.where}: {quoted(item)} is neither a number nor three numbers red:green:blue"
        ) from None
    if not all(map(math.isfinite, numbers)):
        raise ConfigError(f"{value.where}: {quoted(item)} is not a finite number")
    if len(numbers) == 1:
        return numbers * 3
    if len(numbers) != 3:
        raise ConfigError(
            f"{value.where}: {quoted(item)} has {len(numbers)} numbers; give one number, or three as red:green:blue"
        )
    return numbers


def whole_numbers_of(value: Value | None, default: list[int]) -> list[int]:
    """Return a positive integer per input; the file gives one per input or one for all, the default if absent."""
    if value is None:
        return default
    items = value.items()
    items = items * len(default) if len(items) == 1 else items
    _check_count(value, items, len(default))
    for item in items:
        if not re.fullmatch(r"[1-9]\d{0,8}", item):
            raise ConfigError(f"{value.where}: {quoted(item)} is not a positive integer")
    return [int(item) for item in items]


def _check_count(value: Value, items: Sequence[str], count: int, kind: str = "input") -> None:
    if len(items) != count:
        raise ConfigError(
            f"{value.where} has {len(items)} values for {count} {kind}s; give one value per {kind}, separated by commas"
        )
