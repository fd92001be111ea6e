r"""Reader and writer of SigmaStar binary dumps, ``*_outtensor_dump.bin``, of simulators and framework dumpers.

::

    file    := "isFloat: " 0|1 "\n" record*
    record  := header size payload ending            header and size: see record_header.py
    payload := exactly N bytes, little-endian; float32 when isFloat is 1, else integers of the header's type
    ending  := "\n};\n"            last tensor of an operator's inputs or outputs      simulators
             | "\n};\n" size       every other tensor of the group (N repeated)        simulators
             | ""                                                                      ONNX and Caffe dumpers
             | "};\n"                                                                  TFLite dumper

The file has no index, count or checksum. The reader advances by N and never searches, because a payload may contain any
bytes. A file that was cut exactly at a record boundary reads as a shorter dump.

An integer dump of the older SDK may be padded. Its headers have no shape, so only sizes show the padding: with
eliminateGarbage off, all buffers are multiples of 64 bytes (docs/formats/sigmastar.md#padded-buffers). Without padding,
a model rarely has only such sizes. The reader adds a note if all sizes are multiples of 64 bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import ne
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.format import Format, Lost
from sgsdump.dumps.formats.sigmastar.record import (
    header_of,
    infer_op_indexes,
    lost,
    record_of,
    stored_dtype,
    values_of,
)
from sgsdump.dumps.formats.sigmastar.record_header import (
    END_NONE,
    END_SHORT,
    END_TFLITE,
    HEAD,
    Buffer,
    Found,
    Header,
    binary_ending,
    format_header,
    format_size,
    holds_text,
    parse_header,
)
from sgsdump.errors import FormatError, OutputError, SgsdumpError
from sgsdump.files.atomic_write import replacing
from sgsdump.files.mapped import OpenFile, kept_open, loader, map_file, opened, write_array
from sgsdump.tensors.dtypes import is_integer
from sgsdump.tensors.sdk_buffers import BUFFER_BYTES

SIZE, LONGEST_ENDING = 1 << 10, 64  # bytes
LARGE = 1 << 14  # after larger payloads, pread is faster than mapping a new page
_ASKED = 20
ENDINGS = {"group": END_SHORT, "short": END_SHORT, "none": END_NONE, "tflite": END_TFLITE}
Group = tuple[str, int]


class Between(NamedTuple):
    """Bytes between two payloads, from ``start``, read from the file.

    Mapping a page for these bytes costs several times as much as reading them.
    """

    data: bytes
    start: int

    def header(self, offset: int) -> Found | None:
        """Return the header and size line at ``offset``; None if the bytes do not contain them completely."""
        found = parse_header(self.data, offset - self.start)
        if found is None or found.size is None or found.header.cut:
            return None
        return found._replace(end=found.end + self.start)

    def ending(self, end: int, size: int) -> bytes | None:
        """Return the ending after a payload; None if it is incomplete or invalid."""
        is_here = end - self.start + LONGEST_ENDING <= len(self.data)
        return binary_ending(self.data, end - self.start, size) if is_here else None


class PaddingNote(str):
    """Note that a dump may be padded; a separate type, so that it can be removed when shapes become known."""


class RecordOverride(NamedTuple):
    """Original bytes of a record that the rules of a variant do not reproduce."""

    name: str
    size: int
    header: bytes
    ending: bytes


@dataclass(frozen=True)
class BinVariant:
    """Form of a binary dump.

    is_float  flag of the first line: all payloads are float32, or all are integers.
    shaped    header lines of the newer SDK, with shape and dims (if the shape is known).
    ending    ``group``: simulators; ``short``: always "\\n};\\n"; ``none``: ONNX and Caffe; ``tflite``.
    odd       original bytes of records that do not follow these rules, by record number.
    """

    is_float: bool = True
    shaped: bool = True
    ending: str = "group"
    odd: Mapping[int, RecordOverride] = field(default_factory=dict)

    def of_part(self) -> BinVariant:
        """Return the variant for a dump of other records."""
        return replace(self, odd={})


class RecordSpan(NamedTuple):
    """Position of a record: offsets of header and payload, size of the payload, ending; ``plain`` as in Found."""

    header: Header
    offset: int
    payload: int
    size: int
    ending: bytes
    plain: bool


SIM = BinVariant(shaped=False)
SIM_SHAPED = BinVariant()
FRAMEWORK = BinVariant(ending="none")
TFLITE = BinVariant(ending="tflite")


def padding_notes(records: Sequence[Record], sizes: Sequence[int]) -> list[str]:
    """Return a note if the dump may be padded; ``sizes`` are the payload sizes in bytes.

    This is assumed if all integer tensors without a shape are multiples of 64 bytes and one of the smallest ends in 0.
    """
    integers = [
        (size, record)
        for record, size in zip(records, sizes)
        if size and not record.constant and record.tensor.info.shape is None and is_integer(record.tensor.info.dtype)
    ]
    if not integers or any(size % BUFFER_BYTES for size, _ in integers):
        return []
    smallest = sorted(integers, key=lambda pair: pair[0])[:_ASKED]
    if not any(_ends_in_zero(record) for _, record in smallest):
        return []
    return [
        PaddingNote(
            f"values may include padding: {len(integers)} integer tensors have no shape and sizes in multiples of "
            f"{BUFFER_BYTES} "
            f"bytes, as with eliminateGarbage off; give --parse-net to add the shapes and remove the padding"
        )
    ]


def without_padding_notes(notes: Sequence[str]) -> list[str]:
    """Return the notes without padding notes, for a dump whose shapes are now known."""
    return [note for note in notes if not isinstance(note, PaddingNote)]


def walk(data: Buffer, path: Path, file: OpenFile | None = None) -> Iterator[RecordSpan]:
    """Yield the positions of all records of a mapped dump; ``file`` is the same file for faster reads.

    Raises FormatError at the first damaged record.
    """
    head = HEAD.match(data)
    if head is None:
        raise FormatError(f"{path} does not begin with 'isFloat: 0' or 'isFloat: 1'. Check that it is a SigmaStar dump")
    offset, total, number = head.end(), len(data), 0
    span: RecordSpan | None = None
    here: Between | None = None
    while offset < total:
        before = span
        found = (here and here.header(offset)) or parse_header(data, offset)
        if found is None or found.size is None:
            raise _trouble(path, number, "", offset, "has no complete header")
        header, payload, size = found.header, found.end, found.size
        end = payload + size
        if not payload <= end <= total:
            reason = f"declares {size} bytes, but {total - payload} are left in the file"
            raise _trouble(path, number, header.name, offset, reason)
        here = Between(os.pread(file.descriptor, SIZE, end), end) if file and size > LARGE else None
        ending = here.ending(end, size) if here else None
        ending = binary_ending(data, end, size) if ending is None else ending
        if ending is None or (not ending and header.io == "in"):
            raise _trouble(path, number, header.name, offset, f"does not end after its {size} bytes")
        span = RecordSpan(header, offset, payload, size, ending, found.plain)
        yield span
        offset = end + len(ending)
        if offset == total and (_continues(span) or (before and before.ending and not ending)):
            raise _trouble(
                path, number, header.name, span.offset, "is the last, but its ending announces another record"
            )
        number += 1
    if span is None:
        raise FormatError(f"{path} holds no tensor. Check that the run that wrote the file was not interrupted")


def recognises(path: Path, head: bytes) -> bool:
    return HEAD.match(head) is not None and not holds_text(map_file(path))


def read(path: Path) -> Dump:
    """Read a binary dump; payloads are read-only views of the mapped file. Raises FormatError for damage."""
    data = map_file(path)
    with kept_open():
        spans = list(walk(data, path, opened(np.frombuffer(data, np.uint8))))
    is_float = data[9:10] == b"1"
    indexes = infer_op_indexes([span.header for span in spans], [_continues(span) for span in spans])
    records: list[Record] = []
    for span, op_index in zip(spans, indexes):
        dtype = stored_dtype(span.header, is_float)
        count, rest = divmod(span.size, dtype.itemsize)
        if rest:
            reason = f"holds {span.size} bytes, not a whole number of {dtype}"
            raise _trouble(path, len(records), span.header.name, span.offset, reason)
        load = loader(data, dtype, count, span.payload)
        records.append(record_of(span.header, op_index, dtype, load))
    notes = padding_notes(records, [span.size for span in spans])
    return Dump(records, FORMAT.name, _variant(data, spans, records, is_float), path, notes)


def write(records: Iterable[Record], path: Path, variant: BinVariant | None) -> None:
    """Write records one at a time.

    ``variant`` None means header lines of the newer SDK and endings of the simulators; isFloat is 0 if the first tensor
    holds quantised integers, else 1. Raises ValuesError for a tensor that the variant cannot hold, OutputError if
    writing fails.
    """
    with replacing(Path(path)) as file:
        group: Group | None = None
        size = number = 0
        for record in records:
            variant = variant or _usual(record)
            if not number:
                file.write(b"isFloat: %d\n" % variant.is_float)
            if variant.ending == "group" and group is not None:
                # Only the next record shows whether the previous record was the last of its group.
                file.write(_ending(size, group == (record.io, record.op_index)))
            group, size = _write_one(file, record, number, variant)
            number += 1
            del record
        if not number:
            raise OutputError(f"cannot write {path}: there is no tensor to write")
        if group is not None:
            file.write(END_SHORT)


def loses(records: Sequence[Record], variant: BinVariant | None) -> Iterator[Lost]:
    """Yield the losses of a dump of this variant; see ``Format.loses``."""
    for record in records:
        variant = variant or _usual(record)
        yield from lost(record, variant.shaped, variant.is_float)
        if variant.ending == "none" and record.io == "in":
            yield Lost(record, "is an input, which the form of the ONNX and Caffe dumpers cannot hold", True)


def _ends_in_zero(record: Record) -> bool:
    try:
        return not np.ravel(record.tensor.raw())[-1:].any()
    except SgsdumpError:
        return False


def _trouble(path: Path, number: int, name: str, offset: int, what: str) -> FormatError:
    who = f"record {number} {name!r}" if name else f"record {number}"
    return FormatError(f"{path}: {who} at byte {offset} {what}. The file is cut off or damaged; dump it again")


def _continues(span: RecordSpan) -> bool:
    return len(span.ending) > len(END_SHORT)


def _variant(data: Buffer, spans: list[RecordSpan], records: list[Record], is_float: bool) -> BinVariant:
    """Return the rules that reproduce most of the file, and the original bytes of other records."""
    shaped = any(span.header.shape is not None for span in spans)
    groups = [(record.io, record.op_index) for record in records]
    grouped = [_ending(span.size, group == after) for span, group, after in zip(spans, groups, [*groups[1:], None])]
    endings = [span.ending for span in spans]
    choices = {name: grouped if name == "group" else [ending] * len(endings) for name, ending in ENDINGS.items()}
    best = min(choices, key=lambda name: sum(map(ne, endings, choices[name])))
    odd = {}
    for number, (span, record, ending) in enumerate(zip(spans, records, choices[best])):
        if span.plain and span.ending == ending:
            continue
        lines = data[span.offset : span.payload]
        written = format_header(header_of(record, shaped, is_float)) + format_size(span.size)
        if lines != written or span.ending != ending:
            odd[number] = RecordOverride(record.name, span.size, lines, span.ending)
    return BinVariant(is_float, shaped, best, odd)


def _ending(size: int, continues: bool) -> bytes:
    """Return the simulators' ending of a record; ``continues`` if the next record belongs to the same group."""
    return END_SHORT + format_size(size) if continues else END_SHORT


def _usual(first: Record) -> BinVariant:
    info = first.tensor.info
    return BinVariant(is_float=info.quant is None or not is_integer(info.dtype))


def _write_one(file: IO[bytes], record: Record, number: int, variant: BinVariant) -> tuple[Group | None, int]:
    """Write a record; return its group if the caller must write the ending, else None; and the payload's size."""
    if variant.ending == "none" and record.io == "in":
        raise OutputError(
            f"cannot write input {record.name!r}: the format of the SDK's ONNX and Caffe dumpers holds only outputs"
        )
    header = format_header(header_of(record, variant.shaped, variant.is_float))
    payload = values_of(record, variant.is_float)
    size = payload.nbytes
    odd = variant.odd.get(number)
    if odd is not None and (odd.name, odd.size) == (record.name, size):
        file.write(odd.header)
        write_array(file, payload)
        file.write(odd.ending)
        return None, size
    file.write(header + format_size(size))
    write_array(file, payload)
    if variant.ending == "group":
        return (record.io, record.op_index), size
    file.write(ENDINGS[variant.ending])
    return None, size


FORMAT = Format("sigmastar_bin", recognises, read, write, loses)
