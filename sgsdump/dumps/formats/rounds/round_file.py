"""The two files of a round, a run of a program's outermost module: its index, ``{step}.round``, and the values of its
tensors, ``{step}.values``, which is there when values were kept. Numbers are little-endian.

The index begins with 16 bytes, the magic ``SGSROUND``, the version (1) in 4 bytes and 4 that are zero. Frames follow
one another to its end::

    offset  bytes
    0       4       the length of the text, from 1 to 2^26
    4       4       CRC-32 of the text, as zlib has it
    8               the text: lines of JSON in UTF-8, each with its line feed

A frame is there as a whole or not at all: the first that is cut off or has another checksum ends the index, and all
that stands before it counts. The values' file begins with 64 bytes, the magic ``SGSVALUE``, the version (1) in 4 bytes
and zeros. Payloads follow, each at a multiple of 64::

    0       8       the size of the payload
    8       4       CRC-32 of it
    12      52      zeros
    64              the elements, in C order, in the type that carries them (``tensors.dtypes``); then zeros up to a
                    multiple of 64

A process writes a payload before the frame that names it, so what the index names is whole. The checksum of a payload
is compared whenever its values are asked for.

The lines are those of ``formats/shared/hooked.py``, but for the files of single tensors: the description of values has
``"payload": [file, offset, size]`` instead, the values' file by its path beside or above the index (``0_4711/3`` is
``rounds/0_4711/3.values``: weights are kept once, in the round that met them first), the offset of the elements and
their bytes. The last line is ``{"event": "round", "step": 3, …}``, the sum of what was written; without it the round is
not whole. What ``save_dump`` writes has a line for each record, ``{"record": …}`` (an entry of ``shared/manifest.py``)
with its ``payload``, or ``stats`` where it has no values, and ``unwritten``.
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
    """The frames of an index, read one after another by ``texts``; then ``cut`` says why they end before the file
    does, "" where they do not."""

    path: Path
    cut: str = ""

    def texts(self) -> Iterator[bytes]:
        """The text of each whole frame. Raises FormatError where the file is no index, or cannot be read."""
        with reading(self.path), open_file(self.path) as file:
            self._check_head(file)
            offset = HEAD.size
            while True:
                head = file.read(FRAME.size)
                if not head:
                    return
                text = self._text(file, head)
                if text is None:
                    self.cut = f"the frame at byte {offset} is cut off or damaged; what follows is left out"
                    return
                offset += FRAME.size + len(text)
                yield text

    def _check_head(self, file: IO[bytes]) -> None:
        head = file.read(HEAD.size)
        magic, version, _ = HEAD.unpack(head) if len(head) == HEAD.size else (b"", 0, 0)
        if magic != MAGIC:
            raise FormatError(f"{self.path} is cut off in its first {HEAD.size} bytes")
        if version != VERSION:
            raise FormatError(f"{self.path} is of version {version}, this sgsdump reads {VERSION}; update it")

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
    """Where the elements of a tensor lie: ``size`` bytes of a values' file from ``offset`` on."""

    source: Source
    offset: int
    size: int

    def missing(self) -> str:
        """Why the elements are not there; "" where they are."""
        if self.offset % ALIGNED or self.offset < 2 * ALIGNED:
            return f"the index is damaged: no values lie at byte {self.offset} of {_name(self.source)}"
        if self.offset + self.size > len(self.source):
            return f"{_name(self.source)} is cut off before their end"
        return ""

    def loader(self, dtype: np.dtype, shape: tuple[int, ...] | None) -> Any:
        """A function that gives the values. It raises FormatError where they are not those that were written."""
        return partial(_load, self, dtype, shape)


def values_file(folder: Path, file: str) -> Source | str:
    """The values' file of a name, ``folder`` being the one above those of the processes; or why there is none."""
    parts = file.split("/")
    if len(parts) != 2 or not all(part and part.replace("_", "").isalnum() for part in parts):
        return "the index is damaged: it names a file elsewhere"
    path = folder / f"{file}{VALUES_ENDING}"
    if not path.is_file():
        return f"{file}{VALUES_ENDING} is missing; was the dump copied whole?"
    if leads_out(path, folder):
        return f"{file}{VALUES_ENDING} is a link that leads out of the folder; it is not followed"
    return source_of(path)


def _load(payload: Payload, dtype: np.dtype, shape: tuple[int, ...] | None) -> np.ndarray:
    source, offset, size = payload.source, payload.offset, payload.size
    form = carrier(dtype)
    with kept_open():
        written, checksum = PAYLOAD.unpack(source.read(offset - ALIGNED, PAYLOAD.size).tobytes())
        if written != size:
            raise FormatError(f"{source.path} is damaged: the values at byte {offset} have another size")
        found = 0
        for start in range(offset, offset + size, _PIECE):
            found = zlib.crc32(source.read(start, min(_PIECE, offset + size - start)).data, found)
        if found != checksum:
            raise FormatError(f"{source.path} is damaged: the values at byte {offset} have another checksum")
        flat = view(source, form, size // form.itemsize, offset) if size else np.empty(0, form)
        array = restored(in_memory(flat) if bits(dtype) < 8 else flat, dtype)
    return array.reshape(shape) if shape is not None and math.prod(shape) == array.size else array


def _name(source: Source) -> str:
    return source.path.name if source.path else ""


class Writer:
    """Writes the two files of a round, as the hooks do (``programs/hook/sgsdump_rounds.py``), for ``save_dump``."""

    def __init__(self, index: IO[bytes], values: IO[bytes]) -> None:
        self._index, self._values = index, values
        index.write(HEAD.pack(MAGIC, VERSION, 0))
        values.write(HEAD.pack(VALUES_MAGIC, VERSION, 0).ljust(ALIGNED, b"\0"))
        self._offset = ALIGNED

    def line(self, **fields: Any) -> None:
        text = json.dumps(fields).encode("ascii") + b"\n"
        self._index.write(FRAME.pack(len(text), zlib.crc32(text)) + text)

    def payload(self, tensor: Tensor) -> tuple[int, int]:
        """Write all stored values of a tensor; their offset and size."""
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
