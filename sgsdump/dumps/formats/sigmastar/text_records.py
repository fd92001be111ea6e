"""The records of a string dump: where they lie in the file, and the values in them (the grammar: ``text``)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sgsdump.dumps.formats.sigmastar.record import FLOAT32, stored_dtype
from sgsdump.dumps.formats.sigmastar.record_header import HEAD, Buffer, Header, parse_header, starts_rows
from sgsdump.errors import FormatError, ValuesError
from sgsdump.tensors.dtypes import is_integer

_EMPTY_PLACE = re.compile(rb",\s*,")


class LeftOut(ValuesError):
    """The values are not in the file: the simulators leave int32 parameters out of string dumps."""


class Place(NamedTuple):
    """Where a record lies: byte offsets of its header, its body's start and end; the size line's N if there is one."""

    header: Header
    offset: int
    lines_end: int
    start: int
    end: int
    size: int | None
    style: str


def walk(data: Buffer, path: Path) -> Iterator[Place]:
    """The places of all records, in file order. Raises FormatError at the first that is damaged."""
    head = HEAD.match(data)
    offset, number = head.end() if head else 0, 0
    while offset < len(data) or not number:
        parsed = parse_header(data, offset)
        if parsed is None or (parsed[0].cut and not starts_rows(data, parsed[2])):
            raise FormatError(
                f"{path}: record {number} at byte {offset} has no whole header; "
                f"the file is cut off or damaged, dump it again"
            )
        header, size, start = parsed
        end = data.find(b"}", start)
        mark = data[end : end + 3] if end >= 0 else b""
        if mark != b"};\n" and mark[:2] != b"}\n":
            raise FormatError(
                f"{path}: record {number} {header.name!r} at byte {offset} has no end; "
                f"the file is cut off or damaged, dump it again"
            )
        style = "framework" if mark[:2] == b"}\n" else "sim" if size is None else "tflite"
        lines_end = start if size is None else data.rfind(b"//buffer", offset, start)
        yield Place(header, offset, lines_end, start, end, size, style)
        offset = end + (2 if style == "framework" else 3)
        number += 1


def floats(data: Buffer, place: Place, path: Path) -> np.ndarray:
    values = _numbers(data, place, path, FLOAT32)
    if place.size not in (None, values.nbytes):
        raise FormatError(
            f"{path}: tensor {place.header.name!r} at byte {place.offset} has {values.size} values, its header says "
            f"{place.size} bytes; the file is damaged, dump it again"
        )
    return values


def integers(data: Buffer, place: Place, path: Path) -> np.ndarray:
    printed = _numbers(data, place, path, np.dtype(np.int64))
    dtype = stored_dtype(place.header, is_float=False)
    if not printed.size and place.header.shape is not None and not math.prod(place.header.shape):
        return np.empty(0, dtype)
    if not printed.size:
        raise LeftOut(
            f"{path}: the values of {place.header.name!r} are left out by the string dump; dump without dumpasstring"
        )
    if printed.min() < 0 or printed.max() > 255 or printed.size % dtype.itemsize:
        raise FormatError(
            f"{path}: tensor {place.header.name!r} at byte {place.offset} is not printed as the bytes of {dtype}; "
            f"the file is damaged, dump it again"
        )
    return printed.astype(np.uint8).view(dtype)


def _numbers(data: Buffer, place: Place, path: Path, dtype: np.dtype) -> np.ndarray:
    text = data[place.start : place.end].strip(b", \n")
    if not text:
        return np.empty(0, dtype)
    try:
        values = np.fromstring(text.decode("ascii"), dtype, sep=",")
        # numpy before 2.3 only warns where it stops, and then gives the last place a value all the same
        (int if is_integer(dtype) else float)(text.rpartition(b",")[2].replace(b"_", b"x"))
    except (ValueError, DeprecationWarning):
        values = np.empty(0, dtype)
    # numpy reads an empty place between commas as -1
    if values.size != text.count(b",") + 1 or _EMPTY_PLACE.search(text):
        raise FormatError(
            f"{path}: the values of {place.header.name!r} at byte {place.start} are not all numbers; "
            f"the file is damaged, dump it again"
        )
    if b"-nan" in text:
        values[[b"-nan" in printed for printed in text.split(b",")]] = -np.nan
    return values
