r"""The dump file of one operator on an Ascend device, ``{op_type}.{op_name}.{task}.{stream}.{time}``.

::

    uint64 LE   length of the header
    header      protobuf message DumpData, or a nano device's tags (``headers.py``): tensors' types, shapes, sizes …
    payload     the inputs' bytes, then the outputs', L1 buffers', work spaces', without padding, little-endian

* Element types and formats have GE's numbers, a nano device's types ACL's (``ascend_types.py``). Values stay in the
  device's layout, which ``info.layout`` names; ``info.origin`` is the logical tensor, where the header tells it.
* ``size`` may be more than the shape needs (devices align): the first elements are the tensor.
* A header without a shape means one dimension, as long as the payload.
* What follows the last tensor is ignored and noted: a file opened twice for appending holds two dumps.
* Overflow detection writes its status as an output of bytes; ``overflow.py`` reads it.
* Types whose encoding is not documented (string, int2, hifloat4 …) are kept as bytes, with a note.

Tensors are named ``{operator}:input:{number}`` and ``{operator}:output:{number}``, the same in every run. Work spaces,
L1 buffers and argument buffers, which are not tensors of the graph, are constants after the inputs.

As a dump such a file is read only; ``write_operator`` writes one with the fields that a device's files have. A scalar
is one element (shape ``[1]``), as devices write it. A file's name that is too long for the disk is replaced, and listed
in ``mapping.csv``.
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
    """A file's header read. ``name`` is the operator's, as the header says it, else the file's name."""

    path: Path
    op_type: str
    name: str
    slots: tuple[Slot, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Payload:
    """One input or output to write.

    dtype    its elements' type by the name that ``sgsdump.tensors.dtypes`` gives it; any other is written as bytes.
    data     the elements, little-endian, in C order.
    address  where it lies in the memory of the program: two tensors of one address share it.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes | memoryview
    address: int = 0


def recognises(path: Path, head: bytes) -> bool:
    """By the header's first fields, or by a name that only operator dumps have, so that damage is reported."""
    length, header = _header_length(head), head[LENGTH.size :]
    if is_nano(header):
        return False
    if 0 < length <= headers.MOST_BYTES and headers.begins_like_proto(header[:length]):
        return True
    return bool(head) and parse(path.name) is not None


def read(path: Path) -> Dump:
    """The tensors of one operator. Raises FormatError."""
    return _read_as(FORMAT.name, path)


def read_operator(path: Path, file_name: FileName | None) -> OperatorDump:
    """The header of a dump file of either kind; ``file_name`` is its name read, its former one if it was renamed.

    Raises FormatError when it is damaged, or promises more bytes than there are.
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
    """The records of a file: inputs, then outputs. ``name`` begins its tensors' names; ``notes`` gets the file's.

    who  says which operators an overflow status accuses, as the end of a note.

    An input or output without type, shape and bytes was not dumped: it has no record; the others keep their numbers.
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
    """Whether operator dumps have a number for this type; one without is written as its bytes."""
    return dtype in _NUMBERS


def write_operator(
    path: Path, op_name: str, inputs: Sequence[Payload | None], outputs: Sequence[Payload | None], time: int
) -> Path:
    """Write a dump file beside its place and rename it, so that it is there whole or not at all.

    path    in a folder that is there, named by ``file_names.file_name``.
    inputs  by their numbers; None leaves one out and keeps its number. So with ``outputs``.
    time    in microseconds since 1970.

    Returns where it is: another name in the same folder where the path's is too long. Raises OSError.
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
    """Write the bytes beside a file's place and rename it. Returns as ``write_operator`` does. Raises OSError."""
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
    """One file as a dump of its own."""
    notes: list[str] = []
    file_name = parse(path.name)
    operator = read_operator(path, file_name)
    name = file_name.name_of(operator.name) if file_name else operator.name
    return Dump(list(records_of(operator, 0, name, notes)), format, None, path, notes)


def _header_length(head: bytes) -> int:
    """The length of the header, which a file's first 8 bytes say; 0 where there are fewer."""
    return int(LENGTH.unpack_from(head)[0]) if len(head) >= LENGTH.size else 0


def _tensor(dump: OperatorDump, slot: Slot, name: str, op_type: str, notes: list[str]) -> Tensor:
    return tensor_of(slot, dump.path, f"{name}:{slot.kind}:{slot.number}", op_type, notes)


def _overflow(tensor: Tensor, who: Callable[[Sequence[Culprit]], str]) -> str:
    """The status in words; a file's few hundred bytes are read for it."""
    try:
        status = overflow.status_of(tensor)
        text = f"{overflow.summary(status)}{who(overflow.culprits(status))}"
        return overflow.StatusNote.of(tensor.info.name, text)
    except FormatError as error:
        return str(error)


def _header(path: Path) -> tuple[bytes, int]:
    """The header's bytes and the file's size."""
    with open_file(path) as file:
        length, size = _header_length(file.read(LENGTH.size)), file.seek(0, 2)
        if size <= LENGTH.size:
            raise FormatError(f"it has {size} bytes, an operator dump has more than {LENGTH.size}")
        if length > size - LENGTH.size:
            remaining = size - LENGTH.size
            raise FormatError(f"its header says {length} bytes, {remaining} are left in the file; was it cut off?")
        if not length:
            raise FormatError("it holds no tensor: its header is empty")
        if length > headers.MOST_BYTES:
            raise FormatError(f"its header has {length} bytes, more than any operator's")
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
    """The path, or one whose name is short enough and stands for it in the folder's ``mapping.csv``."""
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
