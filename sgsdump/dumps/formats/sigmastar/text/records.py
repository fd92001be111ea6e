"""The records of a string dump: where they lie in the file (the grammar: ``text.py``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sgsdump.dumps.formats.sigmastar.record_header import HEAD, Buffer, Header, parse_header, starts_rows
from sgsdump.errors import FormatError
from sgsdump.files.mapped import let_bytes_go

_WINDOW = 8 << 20  # so much of the file is in memory at once


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
    held = offset
    while offset < len(data) or not number:
        parsed = parse_header(data, offset)
        if parsed is None or (parsed[0].cut and not starts_rows(data, parsed[2])):
            raise FormatError(
                f"{path}: record {number} at byte {offset} has no whole header; "
                f"the file is cut off or damaged, dump it again"
            )
        header, size, start = parsed
        end = _find(data, b"}", start)
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
        if offset - held > _WINDOW:
            let_bytes_go(data, held, offset)
            held = offset


def _find(data: Buffer, byte: bytes, start: int) -> int:
    """``data.find``, with no more than a window of a mapped file in memory."""
    for window in range(start, len(data), _WINDOW):
        place = data.find(byte, window, window + _WINDOW)
        if place >= 0:
            return place
        let_bytes_go(data, window, window + _WINDOW)
    return -1
