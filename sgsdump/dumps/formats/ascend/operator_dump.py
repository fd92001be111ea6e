r"""Reader and writer of the dump file of one operator on an Ascend device.

The file name is ``{op_type}.{op_name}.{task}.{stream}.{time}``; the content is::

    uint64 LE   length of the header
    header      protobuf message DumpData, or tags of a nano device (``headers.py``): types, shapes, sizes …
    payload     bytes of inputs, outputs, L1 buffers and work spaces, without padding, little-endian

* Element types and formats have GE numbers; types of nano devices have ACL numbers (``ascend_types.py``).
* Values stay in the device layout (``info.layout``). ``info.origin`` is the logical tensor, if the header names it.
* ``size`` may exceed the shape, because devices align buffers; the first elements form the tensor.
* If the header has no shape, the tensor has one dimension, as long as the payload.
* Bytes after the last tensor are ignored with a note: a file that was opened twice for appending holds two dumps.
* Overflow detection writes its status as an output of bytes (``overflow.py``).
* Types with undocumented encoding (string, int2, hifloat4 …) are read as raw bytes, with a note.

Tensor names are ``{operator}:input:{number}`` and ``{operator}:output:{number}``, equal in all runs. Work spaces, L1
buffers and argument buffers are not tensors of the graph; they are constants after the inputs.

Dumps cannot be saved in this format, but ``write_operator`` writes a file with the fields of a device's file. A scalar
has shape ``[1]``, as on devices. A file name that is too long is replaced and listed in ``mapping.csv``.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.format import Format
from sgsdump.dumps.formats.ascend import headers, overflow
from sgsdump.dumps.formats.ascend.file_names import MAPPING, FileName, parse
from sgsdump.dumps.formats.ascend.headers import Slot, is_nano, placed, tensor_of
from sgsdump.dumps.formats.ascend.overflow import Culprit
from sgsdump.dumps.formats.shared.ascend_types import ge_numbers
from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import open_file
from sgsdump.tensors.tensor import Tensor

LENGTH = struct.Struct("<Q")
VERSION = b"2.0"
ND = 2
MOST_NAME = 220
_NUMBERS = ge_numbers()


@dataclass(frozen=True)
class OperatorDump:
    """Parsed header of a file; ``name`` is the operator's name from the header, else from the file name."""

    path: Path
    op_type: str
    name: str
    slots: tuple[Slot, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Payload:
    """One input or output to write.

    dtype    element type, a name of ``sgsdump.tensors.dtypes``; other types are written as bytes.
    data     elements, little-endian, in C order.
    address  memory address in the program; tensors with equal addresses share memory.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes | memoryview
    address: int = 0


def recognises(path: Path, head: bytes) -> bool:
    """Recognise a file by its first header fields, or by its name, so that a damaged file is reported."""
    length, header = _header_length(head), head[LENGTH.size :]
    if is_nano(header):
        return False
    if 0 < length <= headers.MOST_BYTES and headers.begins_like_proto(header[:length]):
        return True
    return bool(head) and parse(path.name) is not None


def read(path: Path) -> Dump:
    """Read the tensors of one operator. Raises FormatError."""
    return _read_as(FORMAT.name, path)


def read_operator(path: Path, file_name: FileName | None) -> OperatorDump:
    """Read the header of a dump file; ``file_name`` is the parsed (original) file name.

    Raises FormatError if the header is damaged or declares more bytes than the file has.
    """
    notes: list[str] = []
    try:
        header, size = _header(path)
        name, slots = headers.slots_of(header, notes)
        placed_slots = tuple(placed(slots, LENGTH.size + len(header), size, notes))
    except (FormatError, OSError) as error:
        raise FormatError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    name = name or (file_name.op_name if file_name else path.name)
    return OperatorDump(path, file_name.op_type if file_name else "", name, placed_slots, tuple(notes))


def records_of(
    dump: OperatorDump,
    op_index: int,
    name: str,
    notes: list[str],
    who: Callable[[Sequence[Culprit]], str] = lambda culprits: "",
) -> Iterator[Record]:
    """Yield the records of a file: inputs, then outputs.

    name   prefix of the tensor names.
    notes  receives the file's notes.
    who    returns the end of a note that names the operators of an overflow status.

    An input or output without type, shape and bytes was not dumped and has no record; the others keep their numbers.
    """
    notes += [f"{dump.path.name}: {note}" for note in dump.notes]
    inputs = [slot for slot in dump.slots if slot.of_graph and slot.kind == "input"]
    others = [slot for slot in dump.slots if not slot.of_graph]
    outputs = [slot for slot in dump.slots if slot.of_graph and slot.kind == "output"]
    first = 1 + max((slot.number for slot in inputs), default=-1)
    for slot in (slot for slot in inputs if not slot.is_empty):
        yield Record("in", slot.number, op_index, dump.op_type, _tensor(dump, slot, name, "", notes))
    for number, slot in enumerate(others, first):
        yield Record("in", number, op_index, dump.op_type, _tensor(dump, slot, name, "", notes), constant=True)
    for slot in (slot for slot in outputs if not slot.is_empty):
        tensor = _tensor(dump, slot, name, dump.op_type, notes)
        if overflow.is_status(tensor):
            notes.append(_overflow(tensor, who))
        yield Record("out", slot.number, op_index, dump.op_type, tensor)


def has_type(dtype: str) -> bool:
    """Return whether operator dumps have a number for the element type; other types are written as bytes."""
    return dtype in _NUMBERS


def write_operator(
    path: Path, op_name: str, inputs: Sequence[Payload | None], outputs: Sequence[Payload | None], time: int
) -> Path:
    """Write a dump file atomically and return its path; a name that is too long is replaced. Raises OSError.

    path     a name of ``file_names.file_name`` in an existing folder.
    inputs   inputs by number; None skips a number.
    outputs  outputs by number; None skips a number.
    time     microseconds since 1970.
    """
    dump = headers.messages()["DumpData"](version=VERSION, dump_time=time, op_name=op_name.encode())
    for payload in inputs:
        _describe(dump.input.add(), payload)
    for payload in outputs:
        _describe(dump.output.add(), payload)
    header = dump.SerializeToString()
    return write_whole(
        path, [LENGTH.pack(len(header)), header, *(payload.data for payload in (*inputs, *outputs) if payload)]
    )


def write_whole(path: Path, parts: Sequence[bytes | memoryview]) -> Path:
    """Write bytes to a temporary file and rename it; return the path like ``write_operator``. Raises OSError."""
    path = _fitting(path)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with open(unfinished, "wb") as file:
            for part in parts:
                file.write(part)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    return path


def _read_as(format: str, path: Path) -> Dump:
    """Read a single file as a dump."""
    notes: list[str] = []
    file_name = parse(path.name)
    operator = read_operator(path, file_name)
    name = file_name.name_of(operator.name) if file_name else operator.name
    return Dump(list(records_of(operator, 0, name, notes)), format, None, path, notes)


def _header_length(head: bytes) -> int:
    """Return the length of the header from a file's first 8 bytes; 0 if there are fewer."""
    return int(LENGTH.unpack_from(head)[0]) if len(head) >= LENGTH.size else 0


def _tensor(dump: OperatorDump, slot: Slot, name: str, op_type: str, notes: list[str]) -> Tensor:
    return tensor_of(slot, dump.path, f"{name}:{slot.kind}:{slot.number}", op_type, notes)


def _overflow(tensor: Tensor, who: Callable[[Sequence[Culprit]], str]) -> str:
    """Return the text of an overflow status. This reads a few hundred bytes of the file."""
    try:
        status = overflow.status_of(tensor)
        text = f"{overflow.summary(status)}{who(overflow.culprits(status))}"
        return overflow.StatusNote.of(tensor.info.name, text)
    except FormatError as error:
        return str(error)


def _header(path: Path) -> tuple[bytes, int]:
    """Return the bytes of the header and the size of the file."""
    with open_file(path) as file:
        length, size = _header_length(file.read(LENGTH.size)), file.seek(0, 2)
        if size <= LENGTH.size:
            raise FormatError(f"it has {size} bytes, but an operator dump has more than {LENGTH.size} bytes")
        if length > size - LENGTH.size:
            remaining = size - LENGTH.size
            raise FormatError(
                f"its header needs {length} bytes, but only {remaining} bytes are left. Check whether the "
                "file was cut off"
            )
        if not length:
            raise FormatError("it holds no tensor: its header is empty")
        if length > headers.MOST_BYTES:
            raise FormatError(f"its header has {length} bytes, more than the limit of {headers.MOST_BYTES}")
        file.seek(LENGTH.size)
        return file.read(length), size


def _describe(message: Any, payload: Payload | None) -> None:
    if payload is None:
        return
    shape = payload.shape or (1,)
    if payload.dtype in _NUMBERS:
        message.data_type = _NUMBERS[payload.dtype]
    else:
        shape = (len(payload.data),)
    message.format = ND
    message.shape.dim.extend(shape)
    message.original_shape.dim.extend(shape)
    message.size, message.address = len(payload.data), payload.address


def _fitting(path: Path) -> Path:
    """Return the path, or a path with a short name that replaces it in the folder's ``mapping.csv``."""
    name = os.fsencode(path.name)
    if len(name) <= MOST_NAME:
        return path
    number = int(hashlib.sha256(name).hexdigest()[:15], 16)
    short = path.with_name(f"{number}{path.suffix if path.suffix == '.csv' else ''}")
    with open(path.with_name(MAPPING), "a", encoding="utf-8") as file:
        file.write(f"{short.name},{path.name}\n")
    return short


FORMAT = Format("ascend_dump", recognises, read, own_inputs=True)
NANO = Format(
    "ascend_nano", lambda path, head: is_nano(head[LENGTH.size :]), partial(_read_as, "ascend_nano"), own_inputs=True
)
