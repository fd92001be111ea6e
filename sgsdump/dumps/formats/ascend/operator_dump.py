"""Reading an operator dump file, as records: what its formats, one file each, and a folder of such files share.

Tensors are named ``{operator}:input:{number}`` and ``{operator}:output:{number}``, the same in every run. What is no
tensor of the graph (work spaces, L1 buffers, argument buffers) is a constant behind the inputs.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.formats.ascend import dump_proto, nano_header, overflow, proto_header
from sgsdump.dumps.formats.ascend.file_names import FileName
from sgsdump.dumps.formats.ascend.file_names import parse as parse_name
from sgsdump.dumps.formats.ascend.overflow import Culprit
from sgsdump.dumps.formats.ascend.slot import Slot, placed, tensor_of
from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import open_file
from sgsdump.tensors.tensor import Tensor

LENGTH = struct.Struct("<Q")
ReadHeader = Callable[[bytes, list[str]], tuple[str, list[Slot]]]


@dataclass(frozen=True)
class OperatorDump:
    """A file's header read. ``name`` is the operator's, as the header says it, else the file's name."""

    path: Path
    op_type: str
    name: str
    slots: tuple[Slot, ...]
    notes: tuple[str, ...]


def header_length(head: bytes) -> int:
    """The length of the header, which a file's first 8 bytes say; 0 where there are fewer."""
    return int(LENGTH.unpack_from(head)[0]) if len(head) >= LENGTH.size else 0


def read_operator(path: Path, called: FileName | None) -> OperatorDump:
    """The header of a dump file of either kind; ``called`` is what its name says, its former name if it was renamed.

    Raises FormatError when it is damaged, or promises more bytes than there are.
    """
    notes: list[str] = []
    try:
        header, size = _header(path)
        read_header: ReadHeader = proto_header.slots_of
        if nano_header.recognises(header):
            read_header = nano_header.slots_of
        name, slots = read_header(header, notes)
        placed_slots = tuple(placed(slots, LENGTH.size + len(header), size, notes))
    except FormatError as error:
        raise FormatError(f"cannot read {path}: {error}") from None
    except OSError as error:
        raise FormatError(f"cannot read {path}: {error.strerror}") from None
    name = name or (called.op_name if called else path.name)
    return OperatorDump(path, called.op_type if called else "", name, placed_slots, tuple(notes))


def open_operator(path: Path, format: str) -> Dump:
    """One file as a dump of its own. Raises FormatError."""
    called, notes = parse_name(path.name), []  # type: tuple[FileName | None, list[str]]
    operator = read_operator(path, called)
    name = called.name_of(operator.name) if called else operator.name
    records = list(records_of(operator, 0, name, notes))
    return Dump(records, format, None, path, notes)


def _not_known(culprits: Sequence[Culprit]) -> str:
    return ""


def records_of(
    dump: OperatorDump, op_index: int, name: str, notes: list[str], who: Callable[[Sequence[Culprit]], str] = _not_known
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
    for place, slot in enumerate(others, first):
        yield Record("in", place, op_index, dump.op_type, _tensor(dump, slot, name, "", notes), constant=True)
    for slot in (slot for slot in outputs if not slot.is_empty):
        tensor = _tensor(dump, slot, name, dump.op_type, notes)
        if overflow.is_status(tensor):
            notes.append(_overflow(tensor, who))
        yield Record("out", slot.number, op_index, dump.op_type, tensor)


def _tensor(dump: OperatorDump, slot: Slot, name: str, op_type: str, notes: list[str]) -> Tensor:
    return tensor_of(slot, dump.path, f"{name}:{slot.kind}:{slot.number}", op_type, notes)


def _overflow(tensor: Tensor, who: Callable[[Sequence[Culprit]], str]) -> str:
    """What the status says; a file's few hundred bytes are read for it."""
    try:
        status = overflow.status_of(tensor)
        return f"{tensor.info.name}: {overflow.summary(status)}{who(overflow.culprits(status))}"
    except FormatError as error:
        return str(error)


def _header(path: Path) -> tuple[bytes, int]:
    """The header's bytes and the file's size."""
    with open_file(path) as file:
        length, size = header_length(file.read(LENGTH.size)), file.seek(0, 2)
        if size <= LENGTH.size:
            raise FormatError(f"it has {size} bytes, an operator dump has more than {LENGTH.size}")
        if length > size - LENGTH.size:
            left = size - LENGTH.size
            raise FormatError(f"its header says {length} bytes, {left} are left in the file; was it cut off?")
        if not length:
            raise FormatError("it holds no tensor: its header is empty")
        if length > dump_proto.MOST_BYTES:
            raise FormatError(f"its header has {length} bytes, more than any operator's")
        file.seek(LENGTH.size)
        return file.read(length), size
