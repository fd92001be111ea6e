"""The SDK's INI dialect: ``[SECTION]``, ``key = value;``, several values separated by commas.

A value ends at the first ``;`` outside quotes (the rest is a comment), quotes are dropped, lines that begin with ``;``
or ``#`` are comments, and a list may run on over indented lines until its ``;``. Keys are matched in lower case.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sgsdump.errors import ConfigError
from sgsdump.files.bounded_read import decode, read_bytes
from sgsdump.files.escaping import quoted
from sgsdump.registry import hint


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


def read_sections(path: Path, known: Mapping[str, Sequence[str]]) -> dict[str, Section]:
    """The file's sections; ``known`` gives the keys that each may have.

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
            section = _new_section(header[1].strip(), sections, known, where)
            current = sections[section] = {}
            running_on = False
        elif current is None:
            raise ConfigError(f"{where}: {quoted(bare)} stands before any section; begin with [{next(iter(known))}]")
        elif running_on and line[0] in " \t" and "=" not in bare:
            more, running_on = _value(bare)
            current[key].texts.append(more)
        else:
            key, value, running_on = _pair(bare, where)
            if key not in known[section]:
                raise ConfigError(f"{where}: unknown key {quoted(key)} in [{section}]{hint(key, list(known[section]))}")
            if key in current:
                raise ConfigError(f"{where}: the key {key} stands in [{section}] twice")
            current[key] = _Parts([value], f"{where}: {key}")
    return {
        name: {key: Value("".join(parts.texts), parts.where) for key, parts in keys.items()}
        for name, keys in sections.items()
    }


def _new_section(name: str, sections: Container[str], known: Mapping[str, Sequence[str]], where: str) -> str:
    if name not in known:
        raise ConfigError(f"{where}: unknown section [{name[:80]}]{hint(name, known)}")
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
