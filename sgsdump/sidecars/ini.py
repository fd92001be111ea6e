"""The SDK's INI dialect: ``[SECTION]``, ``key = value;``.

Several values, one for each input, are separated by commas. A value ends at the first ``;`` outside quotes (the rest is
a comment), quotes are dropped, lines that begin with ``;`` or ``#`` are comments, and a list may run on over indented
lines until its ``;``. Keys are matched in lower case. Everything else raises ConfigError that names file, line and key.
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
    """One key of the file: its text without quotes and comment, and ``file:line: key`` for messages."""

    text: str
    where: str

    def items(self) -> list[str]:
        return [item.strip() for item in self.text.split(",")]


Section = dict[str, Value]
_PIECE = re.compile(r"""'[^']*'|"[^"]*"|[^;'"]+|['"]""")


class _Parts(NamedTuple):
    """A value that may run on over further lines."""

    texts: list[str]
    where: str


def read_sections(path: Path, keys: Mapping[str, Sequence[str]]) -> dict[str, Section]:
    """The file's sections; ``keys`` names them and the keys that each may have.

    Raises ConfigError with file and line for unknown or repeated sections and keys, and lines that are neither.
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
            raise ConfigError(f"{where}: {quoted(bare)} stands before any section; begin with [{next(iter(keys))}]")
        elif running_on and line[0] in " \t" and "=" not in bare:
            more, running_on = _value(bare)
            current[key].texts.append(more)
        else:
            key, value, running_on = _pair(bare, where)
            if key not in keys[section]:
                raise ConfigError(f"{where}: unknown key {quoted(key)} in [{section}]{hint(key, list(keys[section]))}")
            if key in current:
                raise ConfigError(f"{where}: the key {key} stands in [{section}] twice")
            current[key] = _Parts([value], f"{where}: {key}")
    return {
        name: {key: Value("".join(parts.texts), parts.where) for key, parts in values.items()}
        for name, values in sections.items()
    }


def _new_section(name: str, sections: Container[str], keys: Mapping[str, Sequence[str]], where: str) -> str:
    if name not in keys:
        raise ConfigError(f"{where}: unknown section [{name[:80]}]{hint(name, keys)}")
    if name in sections:
        raise ConfigError(f"{where}: the section [{name}] stands in the file twice")
    return name


def _pair(bare: str, where: str) -> tuple[str, str, bool]:
    key, equals, rest = bare.partition("=")
    if not equals:
        raise ConfigError(f"{where}: {quoted(bare)} is neither a [section] nor key = value")
    return key.strip().lower(), *_value(rest)


def _value(text: str) -> tuple[str, bool]:
    """The value without quotes and comment, and whether the next line may run on."""
    end = 0
    while piece := _PIECE.match(text, end):  # one pattern for all of them takes a hundred bytes for each quote
        end = piece.end()
    return re.sub(r"['\"]", "", text[:end]).strip(), end == len(text)


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


def words_of(section: Section, key: str, choices: tuple[str, ...], count: int, kind: str = "input") -> list[str]:
    """One of ``choices`` for each input or output; [] when the key is absent."""
    if key not in section:
        return []
    value = section[key]
    items = value.items()
    if len(items) == count + 1 and not items[-1]:
        items.pop()
    _check_count(value, items, count, kind)
    return [choice_of(value, item, choices) for item in items]


def choice_of(value: Value, item: str, choices: tuple[str, ...]) -> str:
    """``item`` if it is one of ``choices``."""
    if item not in choices:
        raise ConfigError(f"{value.where}: unknown value {quoted(item)}; choose one of: {', '.join(choices)}")
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
    _check_count(value, items, len(default))
    for item in items:
        if not re.fullmatch(r"[1-9]\d{0,8}", item):
            raise ConfigError(f"{value.where}: {quoted(item)} is not a whole number above 0")
    return [int(item) for item in items]


def _check_count(value: Value, items: Sequence[str], count: int, kind: str = "input") -> None:
    if len(items) != count:
        raise ConfigError(f"{value.where} has {len(items)} values for {count} {kind}s; give one for each, by commas")
