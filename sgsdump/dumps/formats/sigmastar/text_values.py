"""Fast parser of the records and printed values of SigmaStar string dumps.

``text_dump.py`` specifies the grammar. Values are parsed piece by piece with array operations.

Values are printed with ``%.6f, `` or ``%6d, ``. A value with six decimals is an integer N divided by 10**6. With up to
nine digits before the point, N is below 2**53. N and 10**6 are then exact in float64, and the division rounds once, so
the result equals ``strtod``. Eight digits are converted at once by arithmetic on eight bytes as one integer. A piece of
text starts after a comma and ends before a comma. numpy parses pieces in any other form (nan, inf, longer numbers,
other spaces).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sgsdump.dumps.formats.sigmastar.record import FLOAT32, stored_dtype
from sgsdump.dumps.formats.sigmastar.record_header import HEAD, Buffer, Header, parse_header, starts_rows
from sgsdump.errors import FormatError, ValuesError
from sgsdump.files.mapped import Source, kept_open, let_bytes_go
from sgsdump.tensors.dtypes import is_integer

_WINDOW = 8 << 20  # bytes of the file in memory at once
_PADDING = bytes(16)
_COMMA, _NEWLINE, _SPACE, _MINUS = b",\n -"
_DECIMALS, _MOST_DIGITS, _WIDTH = 6, 9, 6
_WORD = np.dtype("<u8")
PIECE = 1 << 18  # its arrays fit into the cache of a core
_BLANK = b", \n"
_EMPTY_PLACE = re.compile(rb",\s*,|^\s*,|,\s*$")
_INT64 = np.dtype(np.int64)


class TextSpan(NamedTuple):
    """Position of a record: offsets of the header and of the body's start and end; N of the size line, if present."""

    header: Header
    offset: int
    lines_end: int
    start: int
    end: int
    size: int | None
    style: str
    plain: bool


class LeftOut(ValuesError):
    """Values are missing in the file: the simulators omit int32 parameters in string dumps."""


def walk(data: Buffer, path: Path) -> Iterator[TextSpan]:
    """Yield the positions of all records in file order. Raises FormatError at the first damaged record."""
    head = HEAD.match(data)
    offset, number = head.end() if head else 0, 0
    held = offset
    while offset < len(data) or not number:
        found = parse_header(data, offset)
        if found is None or (found.header.cut and not starts_rows(data, found.end)):
            raise FormatError(
                f"{path}: record {number} at byte {offset} has no complete header. "
                f"The file is cut off or damaged; dump it again"
            )
        header, size, start, plain = found
        end = _find(data, b"}", start)
        mark = data[end : end + 3] if end >= 0 else b""
        if mark != b"};\n" and mark[:2] != b"}\n":
            raise FormatError(
                f"{path}: record {number} {header.name!r} at byte {offset} has no end. "
                f"The file is cut off or damaged; dump it again"
            )
        style = "framework" if mark[:2] == b"}\n" else "sim" if size is None else "tflite"
        lines_end = start if size is None else data.rfind(b"//buffer", offset, start)
        yield TextSpan(header, offset, lines_end, start, end, size, style, plain)
        offset = end + (2 if style == "framework" else 3)
        number += 1
        if offset - held > _WINDOW:
            let_bytes_go(data, held, offset)
            held = offset


def fixed_floats(text: bytes) -> np.ndarray | None:
    """Return the float32 values of `` 1.500000, -0.250000, …``; None for any other text."""
    bounds = _bounds(text)
    if bounds is None:
        return None
    buffer, starts, ends = bounds
    negative = buffer[starts] == _MINUS
    before = ends - starts - (_DECIMALS + 1) - negative
    if before.min() < 1 or before.max() > _MOST_DIGITS:
        return None
    words = np.ndarray(buffer.size - 7, _WORD, buffer, strides=(1,))  # the eight bytes at any offset
    digits = words[ends - 8] ^ _word(b"0.000000")
    wrong = _not_digits(digits) | (digits & _word(b"\0\xff\0\0\0\0\0\0"))
    number = _number(digits)  # the last digit before the point, 0 for the point, six after it
    number -= (digits & _word(b"\xff")) * np.uint64(9 * 10**6)
    longer = np.flatnonzero(before > 1)
    if longer.size:
        digits = words[ends[longer] - 16] ^ _word(b"0" * 8)
        digits >>= (8 * (9 - before[longer])).astype(_WORD)
        digits <<= (8 * (9 - before[longer])).astype(_WORD)
        wrong[longer] |= _not_digits(digits)
        number[longer] += _number(digits) * np.uint64(10**7)
    if wrong.any():
        return None
    values = number.astype(np.float64)
    values /= 10**_DECIMALS
    np.negative(values, out=values, where=negative)
    return values.astype(np.float32)


def fixed_bytes(text: bytes) -> np.ndarray | None:
    """Return the uint8 values of ``      0,    255, …``; None for any other text."""
    bounds = _bounds(text)
    if bounds is None:
        return None
    buffer, starts, ends = bounds
    if (ends - starts != _WIDTH).any():
        return None
    hundreds, tens, ones = (buffer[ends - digit] for digit in (3, 2, 1))
    blank = np.logical_and.reduce([buffer[ends - digit] == _SPACE for digit in (6, 5, 4)])
    right = blank & _is_digit(ones) & (_is_digit(tens) | ((tens == _SPACE) & (hundreds == _SPACE)))
    right &= _is_digit(hundreds) | (hundreds == _SPACE)
    # The low bits of a space are 0. numpy before 2 keeps uint8 in products with small numbers, hence int16.
    values = (hundreds & 15).astype(np.int16) * 100 + (tens & 15) * 10 + (ones & 15)
    return values.astype(np.uint8) if right.all() and values.max() <= 255 else None


def floats(data: Buffer | Source, span: TextSpan, path: Path) -> np.ndarray:
    values = _values(data, span, path, FLOAT32)
    if span.size not in (None, values.nbytes):
        raise FormatError(
            f"{path}: tensor {span.header.name!r} at byte {span.offset} has {values.size} values, but its header "
            f"declares {span.size} bytes. The file is damaged; dump it again"
        )
    return values


def integers(data: Buffer | Source, span: TextSpan, path: Path) -> np.ndarray:
    dtype = stored_dtype(span.header, is_float=False)
    printed = _values(data, span, path, np.dtype(np.uint8))
    if not printed.size and span.header.shape is not None and not math.prod(span.header.shape):
        return np.empty(0, dtype)
    if not printed.size:
        raise LeftOut(f"{path}: the string dump has no values of {span.header.name!r}. Dump again without dumpasstring")
    if printed.size % dtype.itemsize:
        raise _no_bytes(span, path)
    return printed.view(dtype)


def _find(data: Buffer, byte: bytes, start: int) -> int:
    """Find a byte like ``data.find``, with at most one window of the mapped file in memory."""
    for window in range(start, len(data), _WINDOW):
        offset = data.find(byte, window, window + _WINDOW)
        if offset >= 0:
            return offset
        let_bytes_go(data, window, window + _WINDOW)
    return -1


def _bounds(text: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return the padded text, the start of each value and the position of its comma.

    Return None if values are separated by anything other than a comma, a space and an optional newline.
    """
    buffer = np.frombuffer(b"".join((_PADDING, b",", text, b",", _PADDING)), np.uint8)
    commas = np.flatnonzero(buffer == _COMMA)
    ends = commas[1:]
    starts = commas[:-1] + 2
    if (buffer[starts - 1] != _SPACE).any():
        return None
    starts += buffer[starts] == _NEWLINE
    return buffer, starts, ends


def _word(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(text, "little"))


def _not_digits(digits: np.ndarray) -> np.ndarray:
    """Return a nonzero number where one of the eight bytes (XORed with ``0``) is not a digit."""
    wrong = digits + _word(b"\x76" * 8)  # beyond 9 the highest bit is set
    wrong |= digits
    wrong &= _word(b"\x80" * 8)
    return wrong


def _number(digits: np.ndarray) -> np.ndarray:
    """Return the number of eight decimal digits, one per byte, the first digit in the lowest byte."""
    for factor, shift, kept in (
        (10, 8, b"\xff\0" * 4),
        (100, 16, b"\xff\xff\0\0" * 2),
        (10000, 32, b"\xff\xff\xff\xff\0\0\0\0"),
    ):
        lower = digits >> np.uint64(shift)
        digits = digits * np.uint64(factor)
        digits += lower
        digits &= _word(kept)
    return digits


def _is_digit(byte: np.ndarray) -> np.ndarray:
    return byte - np.uint8(48) <= 9


def _no_bytes(span: TextSpan, path: Path) -> FormatError:
    return FormatError(
        f"{path}: tensor {span.header.name!r} at byte {span.offset} is not printed as bytes of "
        f"{stored_dtype(span.header, is_float=False)}. The file is damaged; dump it again"
    )


def _values(data: Buffer | Source, span: TextSpan, path: Path, dtype: np.dtype) -> np.ndarray:
    """Return the printed values as float32 or bytes."""
    with kept_open():
        return _read_values(data, span, path, dtype)


def _read_values(data: Buffer | Source, span: TextSpan, path: Path, dtype: np.dtype) -> np.ndarray:
    end = _end(data, span)
    if end == span.start:
        return np.empty(0, dtype)
    values = np.empty(1 + sum(text.count(b",") for text in _windows(data, span.start, end)), dtype)
    done = 0
    quick = fixed_bytes if is_integer(dtype) else fixed_floats
    for text in _pieces(data, span.start, end):
        part = _numbers(text, quick, _INT64 if is_integer(dtype) else dtype)
        if part is None:
            raise FormatError(
                f"{path}: the values of {span.header.name!r} at byte {span.start} are not all numbers. "
                f"The file is damaged; dump it again"
            )
        if part.dtype == _INT64 and (part.min() < 0 or part.max() > 255):
            raise _no_bytes(span, path)
        values[done : done + part.size] = part
        done += part.size
    return values


def _end(data: Buffer | Source, span: TextSpan) -> int:
    """Return the end of the last value."""
    end = span.end
    while end > span.start:
        text = data[max(span.start, end - PIECE) : end]
        end -= len(text) - len(text.rstrip(_BLANK))
        if text.strip(_BLANK):
            break
    return end


def _windows(data: Buffer | Source, start: int, end: int) -> Iterator[bytes]:
    for offset in range(start, end, PIECE):
        yield data[offset : min(offset + PIECE, end)]
        let_bytes_go(data, offset, min(offset + PIECE, end))


def _pieces(data: Buffer | Source, start: int, end: int) -> Iterator[bytes]:
    """Yield pieces of text between commas; the first piece gets a leading space like the others."""
    before = b" "
    while start < end:
        text = data[start : min(start + PIECE, end)]
        cut = len(text) if start + len(text) == end else text.rfind(b",")
        yield before + text[:cut] if cut >= 0 else b""  # no valid value is as long as a piece
        cut = max(cut, 0)
        let_bytes_go(data, start, start + cut)
        start += cut + 1
        before = b""


def _numbers(text: bytes, quick: Callable[[bytes], np.ndarray | None], dtype: np.dtype) -> np.ndarray | None:
    """Return the values of a piece of text; None if it contains anything but numbers."""
    values = quick(text)
    if values is not None:
        return values
    try:
        values = np.fromstring(text.decode("ascii"), dtype, sep=",")
        # numpy before 2.3 only warns at text that is not a number and still returns a value for the last place
        (int if is_integer(dtype) else float)(text.rpartition(b",")[2].replace(b"_", b"x"))
    except (ValueError, DeprecationWarning):
        return None
    # numpy reads an empty place between commas as -1.
    if values.size != text.count(b",") + 1 or _EMPTY_PLACE.search(text):
        return None
    if b"-nan" in text:
        values[[b"-nan" in printed for printed in text.split(b",")]] = -np.nan
    return values
