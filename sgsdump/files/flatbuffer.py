"""FlatBuffers, for files that are walked without being parsed.

::

    file    := uint32 offset of the root table, four letters that say what it is, anything
    table   := int32 how far before it its vtable is, fields
    vtable  := uint16 own size, uint16 size of the table, uint16 offset of each field in the table (0: absent)
    vector  := uint32 count, values; a field of a vector, text or table holds the offset to it, from itself on

Little-endian. Every offset is checked before it is followed; nothing is copied but numbers and texts, of which a file
may give its size a few times over: any number of tables may point to one vector. Source:
https://flatbuffers.dev/internals.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator

import numpy as np

from sgsdump.errors import FormatError

Buffer = bytes | mmap.mmap
_TIMES, _ALWAYS = 8, 1 << 16


class _Bytes:
    """The file's bytes, and how many more may be copied of them."""

    __slots__ = ("data", "remaining")

    def __init__(self, data: Buffer):
        self.data = data
        self.remaining = _ALWAYS + _TIMES * len(data)

    def at(self, code: str, offset: int) -> int:
        if not 0 <= offset <= len(self.data) - struct.calcsize(code):
            raise FormatError(f"points to byte {offset} of {len(self.data)}")
        return struct.unpack_from(code, self.data, offset)[0]

    def charge(self, size: int) -> None:
        self.remaining -= size
        if self.remaining < 0:
            raise FormatError("gives the same bytes again and again")

    def copy(self, start: int, size: int) -> bytes:
        self.charge(size)
        return self.data[start : start + size]


class Table:
    """A table at an offset of ``data``. Every method raises FormatError, without the file's name, for an offset or a
    count that leads out of the data; ``field`` is the number that the schema gives it."""

    __slots__ = ("_bytes", "_fields", "_offset")

    def __init__(self, file: _Bytes, offset: int):
        self._bytes, self._offset = file, offset
        vtable = offset - file.at("<i", offset)
        size = file.at("<H", vtable)
        if size < 4 or size % 2 or vtable + size > len(file.data):
            raise FormatError(f"has a damaged table at byte {offset}")
        self._fields: tuple[int, ...] = struct.unpack_from(f"<{size // 2 - 2}H", file.data, vtable + 4)

    def number(self, field: int, code: str, default: int = 0) -> int:
        """A whole number; ``code`` as of ``struct``."""
        offset = self._offset_of(field)
        return default if offset is None else self._bytes.at(f"<{code}", offset)

    def text(self, field: int) -> str:
        """A text, "" where it is absent; bytes that are no UTF-8 are escaped."""
        start, count = self.extent(field, 1)
        return self._bytes.copy(start, count).decode("utf-8", "backslashreplace")

    def numbers(self, field: int, dtype: str) -> np.ndarray:
        """A vector of numbers, empty where it is absent; a copy."""
        kind = np.dtype(dtype).newbyteorder("<")
        start, count = self.extent(field, kind.itemsize)
        return np.frombuffer(self._bytes.copy(start, count * kind.itemsize), kind).astype(dtype)

    def table(self, field: int) -> Table | None:
        offset = self._offset_of(field)
        return None if offset is None else Table(self._bytes, self._target(offset))

    def tables(self, field: int) -> Iterator[Table]:
        """The tables of a vector."""
        start, count = self.extent(field, 4)
        self._bytes.charge(4 * count)
        for offset in range(start, start + 4 * count, 4):
            yield Table(self._bytes, self._target(offset))

    def extent(self, field: int, size: int) -> tuple[int, int]:
        """Where the values of a vector begin, each of ``size`` bytes, and how many there are."""
        offset = self._offset_of(field)
        if offset is None:
            return 0, 0
        start = self._target(offset)
        count = self._bytes.at("<I", start)
        if start + 4 + count * size > len(self._bytes.data):
            raise FormatError(f"has {count} values at byte {start}, more than the file holds")
        return start + 4, count

    def _offset_of(self, field: int) -> int | None:
        relative = self._fields[field] if field < len(self._fields) else 0
        return self._offset + relative if relative else None

    def _target(self, offset: int) -> int:
        return offset + self._bytes.at("<I", offset)


def root(data: Buffer) -> Table:
    """The root table. Raises FormatError."""
    file = _Bytes(data)
    return Table(file, file.at("<I", 0))
