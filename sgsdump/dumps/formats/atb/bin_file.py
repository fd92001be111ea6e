"""One tensor of Ascend's ATB (Ascend Transformer Boost) as msit and msprobe dump it: a ``.bin`` file of a text header
and the payload (``sgsdump.dumps.formats.atb.header``), little-endian, in C order of ``dims``.

Read are all forms met so far: the plain one; no ``$Version``, or ``$END``; statistics without payload; an alias, whose
values are those of another file of the same dump, where that lies in the dump's folders; a length that counts elements
instead of bytes (the shape counts); several tensors appended to each other, of which the first is taken. What is
odd stands in the dump's notes. A shape that needs more bytes than are there is refused, and so is a type of unknown
number; of undocumented types the bytes are given.

The file names no tensor and no operator: the tensor is called as the file, without ``.bin``, an output of operator 0.
Written are the bytes that the vendor's probe writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.format import HEAD_BYTES, Format, Lost
from sgsdump.dumps.formats.ascend.types.acl_types import format_number
from sgsdump.dumps.formats.ascend.types.ge_types import layout_of
from sgsdump.dumps.formats.atb import header, tensor
from sgsdump.dumps.formats.atb.alias_alone import followed_alone
from sgsdump.errors import OutputError
from sgsdump.files.atomic_write import replacing

ENDING = ".bin"


def recognises(path: Path, head: bytes) -> bool:
    return header.begins(head, len(head) < HEAD_BYTES)


def read(path: Path) -> Dump:
    """A dump of one tensor, its values read when asked for. Raises FormatError."""
    content, missing = tensor.examine(path), ""
    notes = [f"{path.name} {note}" for note in content.notes]
    if content.alias:
        content, missing = followed_alone(path, content)
        notes.extend([f"{path.name} has no values: {missing}"] if missing else [])
    record = Record("out", 0, 0, "", content.tensor(path.name.removesuffix(ENDING), missing=missing))
    return Dump([record], FORMAT.name, None, path, notes)


def write(records: Iterable[Record], path: Path, variant: Any = None) -> None:
    """Write the one tensor there is. Raises OutputError for none or several, ValuesError for types without a number."""
    stream = iter(records)
    with replacing(Path(path)) as file:
        record = next(stream, None)
        if record is None:
            raise OutputError(f"cannot write {path}: there is no tensor to write")
        tensor.write(file, record.tensor)
        del record
        if next(stream, None) is not None:
            raise OutputError(f"cannot write {path}: a .bin file holds one tensor; select one, or write an atb_tree")


def loses(records: Sequence[Record], variant: Any = None) -> Iterator[Lost]:
    for number, record in enumerate(records):
        info = record.tensor.info
        if number:
            yield record, f"is not the first, and a .bin file holds one: {tensor.REFUSED}"
        for what in tensor.lost(record.tensor):
            yield record, what
        yield record, "has a name, which becomes the file's"
        if (record.io, record.slot, record.op_index, record.op_type, record.constant) != ("out", 0, 0, "", False):
            yield record, "has a place in its model, which is left out"
        if info.quant is not None:
            yield record, "has a scale, which is left out"
        if info.shape is None:
            yield record, "has no shape, kept as flat"
        rank = 1 if info.shape is None else len(info.shape)
        if layout_of(format_number(info.layout), rank) != info.layout:
            yield record, f"has layout {info.layout}, which is left out"
        if info.op_type:
            yield record, "has an operator type, which is left out"
        if info.origin is not None:
            yield record, "has an original shape, which is left out"


FORMAT = Format("atb_bin", recognises, read, write, loses)
