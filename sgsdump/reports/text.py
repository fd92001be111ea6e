"""Formatting of text, numbers and tables for reports: escaping, shortening, rounding and aligning.

The width of a text is counted in terminal cells: East Asian wide characters take two cells, combining marks none.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from sgsdump.files.escaping import csv_lines, escaped

# Categories of characters to escape: control, format, surrogate, private use, unassigned, line and paragraph separator.
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_LONG = 48  # length of joined names from which only the first name is shown
LONGEST_NAME = 72  # length of a name in a sentence
_WIDE = ("W", "F")
_ON_TOP = ("Mn", "Me")
_JAMO = range(0x1160, 0x1200)  # vowels and final consonants, which combine with the syllable before them


def shown(text: str) -> str:
    """Return a text with invisible characters, direction marks and lone surrogates as escapes such as ``\\u202e``.

    Lone surrogates come from names that are not UTF-8.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(char) if unicodedata.category(char) in _INVISIBLE else char for char in text)


def copied(text: str) -> str:
    """Return a text for copying, without lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()


def number(value: float | None, digits: int = 6) -> str:
    """Return a number with six decimals, small and large ones with significant digits; nan, inf and -inf as words."""
    if value is None:
        return ""
    if not math.isfinite(value):
        return str(value)
    if value and abs(value) < 10 ** (1 - digits):
        return f"{value:.3g}"
    return f"{value:.{digits}f}" if abs(value) < 1e6 else f"{value:.6g}"


def counted(number: int, noun: str) -> str:
    """Return ``1 layer``, ``2 layers``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def percent(share: float) -> str:
    """Return a share in whole percent."""
    return f"{100 * share:.0f} %" if share >= 0.01 or share == 0 else "less than 1 %"


def unfused(name: str) -> str:
    """Return the first of several names joined by ``;``; other names and short names unchanged.

    TFLite's converter joins the names of fused operators. The first name is that of the last operator, whose output the
    tensor is.
    """
    first, *others = name.split(";")
    return f"{first};…" if first and others and all(others) and len(name) > _LONG else name


def shortened(name: str, longest: int = LONGEST_NAME) -> str:
    """Return a name of at most ``longest`` characters, without its middle; the ends of names differ most."""
    name = unfused(name)
    if len(name) <= longest:
        return name
    head = longest // 3
    return f"{name[:head]}…{name[len(name) - (longest - head - 1) :]}"


def cells(text: str) -> int:
    """Return the number of cells of a text without control characters (see ``shown``)."""
    return len(text) if text.isascii() else sum(map(_width, text))


def padded(text: str, width: int, right: bool = False) -> str:
    """Return the text padded with blanks to ``width`` cells; with ``right``, the blanks come first."""
    blanks = " " * (width - cells(text))
    return blanks + text if right else text + blanks


def middle_cut(text: str, width: int, mark: str = "…") -> str:
    """Return at most ``width`` cells of a text: its beginning, and twice as much of its end."""
    if cells(text) <= width:
        return text
    room = max(width - len(mark), 0)
    head = _start(text, room // 3)
    return head + mark + _start(text[len(head) :][::-1], room - cells(head))[::-1]


def wrapped(line: str, width: int, mark: str = "…") -> Iterator[str]:
    """Yield the line in parts of at most ``width`` cells, broken at blanks.

    A word longer than a line loses its middle. All parts keep the indent of the line; further parts have two blanks
    more.
    """
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
    """Return the first characters that fit, each with its combining marks."""
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
    """Return one line per row, with aligned columns; the columns ``right`` are aligned right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        gap.join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """Return CSV with a header line. Missing cells are empty; ``'`` precedes text that a spreadsheet could execute."""
    cells = ([row.get(column, "") for column in columns] for row in map(escaped, rows))
    return csv_lines(chain([columns], cells))
