"""Text by the cells it takes on a terminal: East Asian wide characters take two, combining marks none."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

_WIDE = ("W", "F")
_ON_TOP = ("Mn", "Me")
_JAMO = range(0x1160, 0x1200)  # vowels and finals, drawn into the syllable before them


def cells(text: str) -> int:
    """The cells a text takes; it holds no control characters (see ``shown``)."""
    return len(text) if text.isascii() else sum(map(_width, text))


def padded(text: str, width: int, right: bool = False) -> str:
    """The text and the blanks behind it, or before it, that fill ``width`` cells."""
    blanks = " " * (width - cells(text))
    return blanks + text if right else text + blanks


def middle_cut(text: str, width: int, mark: str = "…") -> str:
    """At most ``width`` cells of a text: its beginning and, as it tells most names apart, twice as much of its end."""
    if cells(text) <= width:
        return text
    room = max(width - len(mark), 0)
    head = _start(text, room // 3)
    return head + mark + _start(text[len(head) :][::-1], room - cells(head))[::-1]


def wrapped(line: str, width: int, mark: str = "…") -> Iterator[str]:
    """The line in several of at most ``width`` cells, broken at blanks; what is longer than a line loses its middle.
    Each begins with the blanks that the first one begins with, the further ones with two more."""
    indent = line[: len(line) - len(line.lstrip(" "))]
    current, words = indent, 0
    for word in line.split():
        gap = " " if words else ""
        if words and cells(current) + 1 + cells(word) > width:
            yield current
            current, words, gap = f"{indent}  "[: max(width - 1, 0)], 0, ""
        current += gap + middle_cut(word, max(width - cells(current + gap), 1), mark)
        words += 1
    yield current


def _start(text: str, room: int) -> str:
    """As many of the first characters as there is room for, none without the marks on top of it."""
    taken = 0
    for place, char in enumerate(text):
        taken += _width(char)
        if taken > room:
            return text[:place]
    return text


def _width(char: str) -> int:
    if unicodedata.category(char) in _ON_TOP or ord(char) in _JAMO:
        return 0
    return 2 if unicodedata.east_asian_width(char) in _WIDE else 1
