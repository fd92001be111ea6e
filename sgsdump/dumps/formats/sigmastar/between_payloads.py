"""What stands between the payloads of a binary dump, read from the file: a page that is mapped for it costs the system
several times as much."""

from __future__ import annotations

import os
from typing import NamedTuple

from sgsdump.dumps.formats.sigmastar.record_header import Found, binary_ending, parse_header
from sgsdump.files.mapped import OpenFile

SIZE, LONGEST_ENDING = 1 << 10, 64  # bytes
LARGE = 1 << 14  # bytes of a payload behind which it is worth the call


class Between(NamedTuple):
    """Some bytes of a dump, from ``start`` on."""

    data: bytes
    start: int

    def header(self, offset: int) -> Found | None:
        """The header at ``offset``, with its size line; None where it is not here as a whole."""
        header, size, end = parse_header(self.data, offset - self.start) or (None, None, 0)
        return None if header is None or size is None or header.cut else (header, size, end + self.start)

    def ending(self, end: int, size: int) -> bytes | None:
        """What stands behind a payload; None where it is not here as a whole, or not legal."""
        is_here = end - self.start + LONGEST_ENDING <= len(self.data)
        return binary_ending(self.data, end - self.start, size) if is_here else None


def read_between(file: OpenFile, place: int) -> Between:
    """The bytes at a place of a file."""
    return Between(os.pread(file.descriptor, SIZE, place), place)
