"""Walker over protobuf's wire format for untrusted messages, without parsing them.

::

    message := field*
    field   := varint (number << 3 | wire type), then depending on the type 0: a varint, 1: 8 bytes, 5: 4 bytes,
               2: a varint length and that many bytes

Nothing is copied. Each step moves forward by at least one byte and never past the end. The deprecated groups (wire
types 3 and 4) are refused. Source: https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
LONGEST_VARINT = 10
Buffer = bytes | bytearray | memoryview | mmap.mmap


class WireError(ValueError):
    """Bytes that are not a protobuf message."""


class Field(NamedTuple):
    """A field: ``data[start:end]`` includes the key, ``data[value:end]`` excludes the key and the length of BYTES."""

    number: int
    wire_type: int
    start: int
    value: int
    end: int


def fields(data: Buffer, start: int = 0, end: int | None = None, cut: bool = False) -> Iterator[Field]:
    """Yield the top-level fields of the message ``data[start:end]``. Raises WireError.

    cut  the message continues after ``end``: its last field ends there, and a truncated number ends the walk
    """
    end = len(data) if end is None else end
    while start < end:
        try:
            key, value = data[start], start + 1
            if key > 127:
                key, value = read_varint(data, start, end)
            number, wire_type = key >> 3, key & 7
            if wire_type == BYTES and value < end and data[value] < 128:  # fast path: most lengths are short
                size, value = data[value], value + 1
            elif wire_type == BYTES:
                size, value = read_varint(data, value, end)
            elif wire_type == VARINT:
                size = read_varint(data, value, end)[1] - value
            elif wire_type in (FIXED64, FIXED32):
                size = 8 if wire_type == FIXED64 else 4
            else:
                raise WireError(f"no field begins at byte {start}")
        except _CutOff:
            if cut:
                return
            raise
        if not number:
            raise WireError(f"no field begins at byte {start}")
        after = value + size
        if after > end:
            if not cut:
                raise WireError(f"the field at byte {start} ends beyond its message")
            after = end
        yield Field(number, wire_type, start, value, after)
        start = after


def read_varint(data: Buffer, start: int, end: int) -> tuple[int, int]:
    """Return the number at ``start`` and its end; groups of seven bits, lowest first.

    Raises WireError if the number does not end before ``end``, or takes more than ten bytes.
    """
    number = 0
    for offset in range(start, min(end, start + LONGEST_VARINT)):
        byte = data[offset]
        number |= (byte & 127) << 7 * (offset - start)
        if byte < 128:
            return number, offset + 1
    raise (_CutOff if end < start + LONGEST_VARINT else WireError)(f"no number at byte {start}")


class _CutOff(WireError):
    """A truncated number."""


def varint(number: int) -> bytes:
    """Encode a number >= 0 for ``read_varint``."""
    groups = bytearray()
    while number > 127:
        groups.append(number & 127 | 128)
        number >>= 7
    groups.append(number)
    return bytes(groups)
