"""Reader and writer of the two files of a round, a run of a program's outermost module.

``{step}.round`` is the index. ``{step}.values`` holds the tensor values, if they were kept. Numbers are little-endian.

The index begins with 16 bytes: the magic ``SGSROUND``, the version (1) in 4 bytes, and 4 zero bytes. Frames follow up
to the end of the file::

    offset  bytes
    0       4       length of the text, from 1 to 2^26
    4       4       CRC-32 of the text (zlib)
    8               text: lines of JSON in UTF-8, each with a line feed

The first frame that is cut off or has a wrong checksum ends the index; all frames before it are valid. The file of
values begins with 64 bytes: the magic ``SGSVALUE``, the version (1) in 4 bytes, and zeros. Payloads follow, each at a
multiple of 64::

    0       8       size of the payload
    8       4       CRC-32 of the payload
    12      52      zeros
    64              elements in C order, in their carrier type (``tensors.dtypes``); zeros up to a multiple of 64

A process writes a payload before the frame that names it, so each named payload is complete. The checksum of a payload
is verified whenever its values are read.

The lines have the form of ``formats/shared/hooked.py``. Instead of a file per tensor, they have
``"payload": [file, offset, size]``: the file of values, the offset of the elements, and their size in bytes. The file
``0_4711/3`` means ``rounds/0_4711/3.values``; weights are stored once, in the round that used them first. The last line
``{"event": "round", "step": 3, …}`` summarises the round; without this line, the round is incomplete. ``save_dump``
writes a line ``{"record": …}`` (an entry of ``shared/manifest.py``) per record, with ``payload``, or with ``stats`` if
there are no values, and ``unwritten``.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import open_file, reading
from sgsdump.files.folder import leads_out
from sgsdump.files.mapped import Source, in_memory, kept_open, source_of, view, write_array
from sgsdump.tensors.dtypes import bits, carried, carrier, restored
from sgsdump.tensors.tensor import Tensor

MAGIC, VALUES_MAGIC = b"SGSROUND", b"SGSVALUE"
VERSION = 1
INDEX_ENDING, VALUES_ENDING = ".round", ".values"
ALIGNED = 64
MOST_TEXT = 1 << 26
HEAD = struct.Struct("<8sII")
FRAME = struct.Struct("<II")
PAYLOAD = struct.Struct("<QI")
_PIECE = 8 << 20


@dataclass
class Index:
    """Index of a round; after ``texts``, ``cut`` tells why the frames end before the file ends, else ""."""

    path: Path
    cut: str = ""

    def texts(self) -> Iterator[bytes]:
        """Yield the text of each complete frame. Raises FormatError if the file is not a readable index."""
        with reading(self.path), open_file(self.path) as file:
            self._check_head(file)
            offset = HEAD.size
            while True:
                head = file.read(FRAME.size)
                if not head:
                    return
                text = self._text(file, head)
                if text is None:
                    self.cut = f"the frame at byte {offset} is cut off or damaged; the rest of the file is left out"
                    return
                offset += FRAME.size + len(text)
                yield text

    def _check_head(self, file: IO[bytes]) -> None:
        head = file.read(HEAD.size)
        magic, version, _ = HEAD.unpack(head) if len(head) == HEAD.size else (b"", 0, 0)
        if magic != MAGIC:
            raise FormatError(f"{self.path} is cut off in its first {HEAD.size} bytes")
        if version != VERSION:
            raise FormatError(
                f"{self.path} has format version {version}, but sgsdump reads only version {VERSION}. Update sgsdump"
            )

    @staticmethod
    def _text(file: IO[bytes], head: bytes) -> bytes | None:
        if len(head) < FRAME.size:
            return None
        length, checksum = FRAME.unpack(head)
        if not 0 < length <= MOST_TEXT:
            return None
        text = file.read(length)
        return text if len(text) == length and zlib.crc32(text) == checksum else None


@dataclass(frozen=True)
class Payload:
    """Position of a tensor's elements: ``size`` bytes of a file of values from ``offset``."""

    source: Source
    offset: int
    size: int

    def missing(self) -> str:
        """Return the reason why the elements are missing, or ""."""
        if self.offset % ALIGNED or self.offset < 2 * ALIGNED:
            return f"the index is damaged: there are no values at byte {self.offset} of {_name(self.source)}"
        if self.offset + self.size > len(self.source):
            return f"{_name(self.source)} is cut off before the end of the values"
        return ""

    def loader(self, dtype: np.dtype, shape: tuple[int, ...] | None) -> Any:
        """Return a function that loads the values. The function raises FormatError if they are damaged."""
        return partial(_load, self, dtype, shape)


def values_file(folder: Path, file: str) -> Source | str:
    """Return the file of values by name below ``folder`` (which holds the processes), or the reason for its absence."""
    parts = file.split("/")
    if len(parts) != 2 or not all(part and part.replace("_", "").isalnum() for part in parts):
        return "the index is damaged: it names a file outside the folder"
    path = folder / f"{file}{VALUES_ENDING}"
    if not path.is_file():
        return f"{file}{VALUES_ENDING} is missing. Check that the dump was copied completely"
    if leads_out(path, folder):
        return f"{file}{VALUES_ENDING} is a link to a file outside the folder; sgsdump does not follow such links"
    return source_of(path)


def _load(payload: Payload, dtype: np.dtype, shape: tuple[int, ...] | None) -> np.ndarray:
    source, offset, size = payload.source, payload.offset, payload.size
    form = carrier(dtype)
    with kept_open():
        written, checksum = PAYLOAD.unpack(source.read(offset - ALIGNED, PAYLOAD.size).tobytes())
        if written != size:
            raise FormatError(f"{source.path} is damaged: the values at byte {offset} have the wrong size")
        found = 0
        for start in range(offset, offset + size, _PIECE):
            found = zlib.crc32(source.read(start, min(_PIECE, offset + size - start)).data, found)
        if found != checksum:
            raise FormatError(f"{source.path} is damaged: the values at byte {offset} have the wrong checksum")
        flat = view(source, form, size // form.itemsize, offset) if size else np.empty(0, form)
        array = restored(in_memory(flat) if bits(dtype) < 8 else flat, dtype)
    return array.reshape(shape) if shape is not None and math.prod(shape) == array.size else array


def _name(source: Source) -> str:
    return source.path.name if source.path else ""


class Writer:
    """Writer of the two files of a round for ``save_dump``; the hooks use ``programs/hook/sgsdump_rounds.py``."""

    def __init__(self, index: IO[bytes], values: IO[bytes]) -> None:
        self._index, self._values = index, values
        index.write(HEAD.pack(MAGIC, VERSION, 0))
        values.write(HEAD.pack(VALUES_MAGIC, VERSION, 0).ljust(ALIGNED, b"\0"))
        self._offset = ALIGNED

    def line(self, **fields: Any) -> None:
        text = json.dumps(fields).encode("ascii") + b"\n"
        self._index.write(FRAME.pack(len(text), zlib.crc32(text)) + text)

    def payload(self, tensor: Tensor) -> tuple[int, int]:
        """Write all stored values of a tensor; return their offset and size."""
        array = tensor.raw_view()
        is_as_it_lies = array.flags.c_contiguous and array.dtype.isnative
        array = np.asarray(carried(array if is_as_it_lies else in_memory(array)), order="C").reshape(-1)
        checksum = 0
        for start in range(0, array.size, _PIECE):
            checksum = zlib.crc32(in_memory(array[start : start + _PIECE]).view(np.uint8).data, checksum)
        self._values.write(PAYLOAD.pack(array.nbytes, checksum).ljust(ALIGNED, b"\0"))
        write_array(self._values, array)
        self._values.write(b"\0" * (-array.nbytes % ALIGNED))
        offset = self._offset + ALIGNED
        self._offset = offset + array.nbytes + -array.nbytes % ALIGNED
        return offset, array.nbytes
