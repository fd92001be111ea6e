"""Texts, numbers and tables as reports show them: invisible characters escaped, long names cut, numbers in few digits.

A text's width is in cells of a terminal: East Asian wide characters take two, combining marks none.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from sgsdump.files.escaping import csv_lines, escaped

# Besides what is invisible (control, format, surrogate, private, line and paragraph separators) nothing is changed.
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_LONG = 48  # of joined names
LONGEST_NAME = 72  # in a sentence
_WIDE = ("W", "F")
_ON_TOP = ("Mn", "Me")
_JAMO = range(0x1160, 0x1200)  # vowels and finals, drawn into the syllable before them


def shown(text: str) -> str:
    """A name as text that reads as it is: characters that are invisible or turn the direction of writing, and lone
    surrogates of names that are not UTF-8, as ``\\u202e`` and the like."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(char) if unicodedata.category(char) in _INVISIBLE else char for char in text)


def copied(text: str) -> str:
    """A text to copy, unchanged but for lone surrogates, which no page in UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode()


def number(value: float | None, digits: int = 6) -> str:
    """Six decimals, as in every report; nan, inf and -inf as these words, and small numbers in full."""
    if value is None:
        return ""
    if not math.isfinite(value):
        return str(value)
    if value and abs(value) < 10 ** (1 - digits):
        return f"{value:.3g}"
    return f"{value:.{digits}f}" if abs(value) < 1e6 else f"{value:.6g}"


def counted(number: int, noun: str) -> str:
    """``1 layer``, ``2 layers``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def percent(share: float) -> str:
    """A share in whole percents."""
    return f"{100 * share:.0f} %" if share >= 0.01 or share == 0 else "less than 1 %"


def unfused(name: str) -> str:
    """The first of the names that TFLite's converter joins by ``;`` where it makes one operator of several: that of the
    last of them, whose output the tensor is. Other names, and short ones, as they are."""
    first, *others = name.split(";")
    return f"{first};…" if first and others and all(others) and len(name) > _LONG else name


def shortened(name: str, longest: int = LONGEST_NAME) -> str:
    """A name of at most ``longest`` characters: without its middle, as the end tells most names apart."""
    name = unfused(name)
    if len(name) <= longest:
        return name
    head = longest // 3
    return f"{name[:head]}…{name[len(name) - (longest - head - 1) :]}"


def cells(text: str) -> int:
    """The cells a text takes; it must hold no control characters (see ``shown``)."""
    return len(text) if text.isascii() else sum(map(_width, text))


def padded(text: str, width: int, right: bool = False) -> str:
    """The text, filled with blanks to ``width`` cells after it, or before it where it stands ``right``."""
    blanks = " " * (width - cells(text))
    return blanks + text if right else text + blanks


def middle_cut(text: str, width: int, mark: str = "…") -> str:
    """At most ``width`` cells of a text: its beginning, and twice as much of its end."""
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


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _start(text: str, room: int) -> str:
    """As many of the first characters as there is room for, none without the marks on top of it."""
    used = 0
    for index, char in enumerate(text):
        used += _width(char)
        if used > room:
            return text[:index]
    return text


def _width(char: str) -> int:
    if unicodedata.category(char) in _ON_TOP or ord(char) in _JAMO:
        return 0
    return 2 if unicodedata.east_asian_width(char) in _WIDE else 1


def aligned(rows: Sequence[Sequence[str]], right: Container[int] = (), gap: str = "  ") -> list[str]:
    """A line for each row, its columns as wide as their longest cell; the columns ``right`` are flush right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        gap.join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """CSV with a line of titles. Missing cells are empty; texts that a spreadsheet would run begin with ``'``."""
    cells = ([row.get(column, "") for column in columns] for row in map(escaped, rows))
    return csv_lines(chain([columns], cells))
