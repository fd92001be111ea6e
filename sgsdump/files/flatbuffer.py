"""FlatBuffer reader that checks every offset and does not parse the whole file.

::

    file    := uint32 offset of the root table, four letters of the file type, anything
    table   := int32 distance back to the table's vtable, fields
    vtable  := uint16 own size, uint16 size of the table, uint16 offset of each field in the table (0: absent)
    vector  := uint32 count, values; a field of a vector, text or table holds its offset relative to the field

Numbers are little-endian. Only numbers and texts are copied. The total copied is limited to a small multiple of the
file size, because any number of tables may point to one vector. Source: https://flatbuffers.dev/internals.
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
    """The file's bytes and the number of bytes that may still be copied."""

    __slots__ = ("data", "remaining")

    def __init__(self, data: Buffer):
        self.data = data
        self.remaining = _ALWAYS + _TIMES * len(data)

    def at(self, code: str, offset: int) -> int:
        if not 0 <= offset <= len(self.data) - struct.calcsize(code):
            raise FormatError(f"points to byte {offset}, but ends after {len(self.data)} bytes")
        return struct.unpack_from(code, self.data, offset)[0]

    def charge(self, size: int) -> None:
        self.remaining -= size
        if self.remaining < 0:
            raise FormatError("refers to the same bytes too many times")

    def copy(self, start: int, size: int) -> bytes:
        self.charge(size)
        return self.data[start : start + size]


class Table:
    """A table at an offset of ``data``.

    Methods raise FormatError, without the file's name, for an offset or count beyond the data. ``field`` is the number
    of a field in the schema.
    """

    __slots__ = ("_bytes", "_fields", "_offset")

    def __init__(self, file: _Bytes, offset: int):
        self._bytes, self._offset = file, offset
        vtable = offset - file.at("<i", offset)
        size = file.at("<H", vtable)
        if size < 4 or size % 2 or vtable + size > len(file.data):
            raise FormatError(f"has a damaged table at byte {offset}")
        self._fields: tuple[int, ...] = struct.unpack_from(f"<{size // 2 - 2}H", file.data, vtable + 4)

    def number(self, field: int, code: str, default: int = 0) -> int:
        """Return an integer; ``code`` is a format of ``struct``."""
        offset = self._offset_of(field)
        return default if offset is None else self._bytes.at(f"<{code}", offset)

    def text(self, field: int) -> str:
        """Return a text, or "" if absent; bytes that are not UTF-8 are escaped."""
        start, count = self.extent(field, 1)
        return self._bytes.copy(start, count).decode("utf-8", "backslashreplace")

    def numbers(self, field: int, dtype: str) -> np.ndarray:
        """Return a copy of a vector of numbers, empty if absent."""
        kind = np.dtype(dtype).newbyteorder("<")
        start, count = self.extent(field, kind.itemsize)
        return np.frombuffer(self._bytes.copy(start, count * kind.itemsize), kind).astype(dtype)

    def table(self, field: int) -> Table | None:
        offset = self._offset_of(field)
        return None if offset is None else Table(self._bytes, self._target(offset))

    def tables(self, field: int) -> Iterator[Table]:
        """Yield the tables of a vector."""
        start, count = self.extent(field, 4)
        self._bytes.charge(4 * count)
        for offset in range(start, start + 4 * count, 4):
            yield Table(self._bytes, self._target(offset))

    def extent(self, field: int, size: int) -> tuple[int, int]:
        """Return the start and the number of the values of a vector, each of ``size`` bytes."""
        offset = self._offset_of(field)
        if offset is None:
            return 0, 0
        start = self._target(offset)
        count = self._bytes.at("<I", start)
        if start + 4 + count * size > len(self._bytes.data):
            raise FormatError(f"declares {count} values at byte {start}, more than the file holds")
        return start + 4, count

    def _offset_of(self, field: int) -> int | None:
        relative = self._fields[field] if field < len(self._fields) else 0
        return self._offset + relative if relative else None

    def _target(self, offset: int) -> int:
        return offset + self._bytes.at("<I", offset)


def root(data: Buffer) -> Table:
    """Return the root table. Raises FormatError."""
    file = _Bytes(data)
    return Table(file, file.at("<I", 0))
