"""Access to members of a zip archive in a mapped file, without unpacking more than requested."""

from __future__ import annotations

import mmap
import struct
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import open_file
from sgsdump.files.mapped import Source

MAGIC = b"PK\x03\x04"
_LOCAL = struct.Struct("<4s22xHH")
_CHUNK, _PIECE = 2**18, 2**20
# Deflate expands a byte to at most 1032. A large member with a ratio over _ODD_RATIO counts as a decompression bomb.
_MOST_RATIO, _LARGE, _ODD_RATIO = 1032, 2**28, 200


class Member(NamedTuple):
    """Position of a member: offset and size of its packed bytes, unpacked size, compression and CRC-32."""

    name: str
    offset: int
    packed: int
    size: int
    deflated: bool
    crc: int


def members(data: mmap.mmap, path: Path) -> list[Member]:
    """Return the files of an archive in order.

    Raises FormatError for a damaged archive, a decompression bomb, and members that are encrypted or packed by another
    method than deflate.
    """
    try:
        with open_file(path) as file, zipfile.ZipFile(file) as archive:
            infos = [info for info in archive.infolist() if not info.filename.endswith("/")]
    except Exception as error:
        # For a hostile directory, zipfile may raise any exception.
        raise FormatError(f"{path} is a damaged zip archive ({' '.join(str(error).split())[:100]})") from None
    return [_member(data, info, path) for info in infos]


def _member(data: mmap.mmap, info: zipfile.ZipInfo, path: Path) -> Member:
    who = f"{path}: member {info.filename[:80]!r}"
    if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise FormatError(
            f"{who} is encrypted, or compressed with a method other than deflate. Unpack the archive first"
        )
    head = data[info.header_offset : info.header_offset + _LOCAL.size] if info.header_offset >= 0 else b""
    if len(head) < _LOCAL.size or not head.startswith(MAGIC):
        raise FormatError(f"{who} is not at the position that the archive declares; the file is cut off or damaged")
    _, name, extra = _LOCAL.unpack(head)
    offset = info.header_offset + _LOCAL.size + name + extra
    deflated = info.compress_type == zipfile.ZIP_DEFLATED
    if offset + info.compress_size > len(data) or (not deflated and info.file_size != info.compress_size):
        raise FormatError(
            f"{who} extends beyond the end of the file, or declares two different sizes; the file is cut off or damaged"
        )
    ratio = info.file_size / max(1, info.compress_size)
    if ratio > _MOST_RATIO or (info.file_size > _LARGE and ratio > _ODD_RATIO):
        raise FormatError(
            f"{who} declares that {info.compress_size} bytes unpack to {info.file_size} bytes, as in "
            "a decompression bomb. If you trust the archive, unpack it yourself"
        )
    return Member(info.filename, offset, info.compress_size, info.file_size, deflated, info.CRC)


def start_of(data: mmap.mmap, member: Member, size: int) -> bytes:
    """Return the first ``size`` bytes of a member, or all if it has fewer. Raises FormatError for damage."""
    if not member.deflated:
        return data[member.offset : member.offset + min(size, member.size)]
    packed = data[member.offset : member.offset + min(member.packed, size + 1024)]
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, min(size, member.size))
    except zlib.error as error:
        raise FormatError(f"member {member.name[:80]!r} is damaged: {error}") from None


def content(data: mmap.mmap | Source, member: Member, limit: int, where: str, usual: str) -> bytes:
    """Return a whole member. If it exceeds ``limit``, raise FormatError "WHERE has 12 bytes, more than USUAL"."""
    if member.size > limit:
        raise FormatError(f"{where} has {member.size} bytes, more than {usual}")
    return unpack(data, member).tobytes() if member.deflated else data[member.offset : member.offset + member.size]


def unpack(data: mmap.mmap | Source, member: Member) -> np.ndarray:
    """Return all bytes of a deflated member. Raises FormatError if size or checksum differ."""
    unpacked, filled = np.empty(member.size, np.uint8), 0
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    crc, offset, end = 0, member.offset, member.offset + member.packed
    pending = b""
    try:
        while not inflate.eof and (pending or offset < end):
            if not pending:
                pending = data[offset : min(end, offset + _CHUNK)]
                offset += len(pending)
            part = inflate.decompress(pending, _CHUNK)
            pending = inflate.unconsumed_tail
            if filled + len(part) > member.size:
                raise FormatError(f"member {member.name[:80]!r} unpacks to more than its declared {member.size} bytes")
            unpacked[filled : filled + len(part)] = np.frombuffer(part, np.uint8)
            crc, filled = zlib.crc32(part, crc), filled + len(part)
    except zlib.error as error:
        raise FormatError(f"member {member.name[:80]!r} is damaged: {error}") from None
    if filled != member.size or crc != member.crc:
        raise FormatError(f"member {member.name[:80]!r} is damaged: its checksum or size does not match")
    return unpacked


def check(source: Source, member: Member) -> None:
    """Check the CRC-32 of a stored member piece by piece. Raises FormatError."""
    crc, end = 0, member.offset + member.size
    for start in range(member.offset, end, _PIECE):
        crc = zlib.crc32(source.read(start, min(_PIECE, end - start)).data, crc)
    if crc != member.crc:
        raise FormatError(f"member {member.name[:80]!r} is damaged: its content does not match its checksum")
