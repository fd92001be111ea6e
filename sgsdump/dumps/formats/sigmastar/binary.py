r"""The SigmaStar binary dump, ``*_outtensor_dump.bin``: what simulators and framework dumpers write.

::

    file    := "isFloat: " 0|1 "\n" record*
    record  := header size payload ending            header and size: see sgsdump.dumps.formats.sigmastar.record_header
    payload := exactly N bytes, little-endian; float32 when isFloat is 1, else integers of the header's type
    ending  := "\n};\n"            last tensor of an operator's inputs or outputs      simulators
             | "\n};\n" size       every other tensor of the group (N repeated)        simulators
             | ""                                                                      ONNX and Caffe dumpers
             | "};\n"                                                                  TFLite dumper

There is no index, no count, no checksum: a reader walks by N and never searches, as a payload may hold any bytes.
The end of a file is a record boundary like any other, so a file cut exactly there reads as a shorter dump.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import ne
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.format import Format
from sgsdump.dumps.formats.sigmastar.between_payloads import LARGE, Between, read_between
from sgsdump.dumps.formats.sigmastar.padding_signs import padding_notes
from sgsdump.dumps.formats.sigmastar.record import header_of, infer_op_indexes, record_of, stored_dtype, values_of
from sgsdump.dumps.formats.sigmastar.record_header import (
    END_NONE,
    END_SHORT,
    END_TFLITE,
    HEAD,
    Buffer,
    Header,
    binary_ending,
    format_header,
    format_size,
    holds_text,
    parse_header,
)
from sgsdump.dumps.formats.sigmastar.record_losses import REFUSED, lost
from sgsdump.errors import FormatError, OutputError
from sgsdump.files.atomic_write import replacing
from sgsdump.files.mapped import OpenFile, kept_open, loader, map_file, opened, write_array
from sgsdump.tensors.dtypes import is_integer

ENDINGS = {"group": END_SHORT, "short": END_SHORT, "none": END_NONE, "tflite": END_TFLITE}

Group = tuple[str, int]


class Odd(NamedTuple):
    """A record's own bytes, where a variant's rules would not give them back."""

    name: str
    size: int
    header: bytes
    ending: bytes


@dataclass(frozen=True)
class BinVariant:
    """How a binary dump is written.

    is_float  the head's flag: all payloads float32, or all raw integers.
    shaped    header lines of the newer SDK, with shape and dims (where the shape is known).
    ending    ``group``: the simulators'; ``short``: "\\n};\\n" always; ``none``: ONNX and Caffe; ``tflite``.
    odd       by record number, bytes that follow none of these rules.
    """

    is_float: bool = True
    shaped: bool = True
    ending: str = "group"
    odd: Mapping[int, Odd] = field(default_factory=dict)

    def of_part(self) -> BinVariant:
        """The variant for a dump of other records."""
        return replace(self, odd={})


SIM = BinVariant(shaped=False)
SIM_SHAPED = BinVariant()
FRAMEWORK = BinVariant(ending="none")
TFLITE = BinVariant(ending="tflite")


class Place(NamedTuple):
    """Where a record lies: byte offsets of its header and its payload, the payload's size, its ending."""

    header: Header
    offset: int
    payload: int
    size: int
    ending: bytes


def walk(data: Buffer, path: Path, file: OpenFile | None = None) -> Iterator[Place]:
    """The places of all records of a mapped dump, in file order, read from ``file`` where it is open. Raises
    FormatError at the first that is damaged."""
    head = HEAD.match(data)
    if head is None:
        raise FormatError(f"{path} does not begin with 'isFloat: 0' or 'isFloat: 1'; is it a SigmaStar dump?")
    offset, total, number = head.end(), len(data), 0
    place: Place | None = None
    here: Between | None = None
    while offset < total:
        before = place
        header, size, payload = (here and here.header(offset)) or parse_header(data, offset) or (None, None, 0)
        if header is None or size is None:
            raise _trouble(path, number, "", offset, "has no whole header")
        end = payload + size
        if not payload <= end <= total:
            reason = f"says it holds {size} bytes, {total - payload} are left in the file"
            raise _trouble(path, number, header.name, offset, reason)
        here = read_between(file, end) if file and size > LARGE else None
        ending = here.ending(end, size) if here else None
        ending = binary_ending(data, end, size) if ending is None else ending
        if ending is None or (not ending and header.io == "in"):
            raise _trouble(path, number, header.name, offset, f"does not end after its {size} bytes")
        place = Place(header, offset, payload, size, ending)
        yield place
        offset = end + len(ending)
        if offset == total and (_continues(place) or (before and before.ending and not ending)):
            raise _trouble(path, number, header.name, place.offset, "is the last one though its ending promises more")
        number += 1
    if place is None:
        raise FormatError(f"{path} holds no tensor; was the run that wrote it cut off?")


def _trouble(path: Path, number: int, name: str, offset: int, what: str) -> FormatError:
    who = f"record {number} {name!r}" if name else f"record {number}"
    return FormatError(f"{path}: {who} at byte {offset} {what}; the file is cut off or damaged, dump it again")


def _continues(place: Place) -> bool:
    return len(place.ending) > len(END_SHORT)


def recognises(path: Path, head: bytes) -> bool:
    return HEAD.match(head) is not None and not holds_text(map_file(path))


def read(path: Path) -> Dump:
    """A dump whose payloads are read-only views of the mapped file. Raises FormatError for a damaged file."""
    data = map_file(path)
    with kept_open():
        places = list(walk(data, path, opened(np.frombuffer(data, np.uint8))))
    is_float = data[9:10] == b"1"
    indexes = infer_op_indexes([place.header for place in places], [_continues(place) for place in places])
    records: list[Record] = []
    for place, op_index in zip(places, indexes):
        dtype = stored_dtype(place.header, is_float)
        count, rest = divmod(place.size, dtype.itemsize)
        if rest:
            reason = f"holds {place.size} bytes, not a whole number of {dtype}"
            raise _trouble(path, len(records), place.header.name, place.offset, reason)
        load = loader(data, dtype, count, place.payload)
        records.append(record_of(place.header, op_index, dtype, load))
    notes = padding_notes(records, [place.size for place in places])
    return Dump(records, FORMAT.name, _variant(data, places, records, is_float), path, notes)


def _variant(data: Buffer, places: list[Place], records: list[Record], is_float: bool) -> BinVariant:
    """The rules that give most of this file back, and the bytes of the records that follow no rule."""
    shaped = any(place.header.shape is not None for place in places)
    groups = [(record.io, record.op_index) for record in records]
    grouped = [_ending(place.size, group == after) for place, group, after in zip(places, groups, [*groups[1:], None])]
    endings = [place.ending for place in places]
    choices = {name: grouped if name == "group" else [ending] * len(endings) for name, ending in ENDINGS.items()}
    best = min(choices, key=lambda name: sum(map(ne, endings, choices[name])))
    odd = {}
    for number, (place, record, ending) in enumerate(zip(places, records, choices[best])):
        if place.header.plain and place.ending == ending:
            continue
        lines = data[place.offset : place.payload]
        written = format_header(header_of(record, shaped, is_float)) + format_size(place.size)
        if lines != written or place.ending != ending:
            odd[number] = Odd(record.name, place.size, lines, place.ending)
    return BinVariant(is_float, shaped, best, odd)


def _ending(size: int, continues: bool) -> bytes:
    """The simulators' ending of a record of ``size`` bytes; ``continues`` when the next one is of its group."""
    return END_SHORT + format_size(size) if continues else END_SHORT


def write(records: Iterable[Record], path: Path, variant: BinVariant | None) -> None:
    """Write records one at a time. ``variant`` None: newer header lines, simulators' endings, isFloat by the first
    tensor (0 when that holds quantised integers).

    Raises ValuesError for a tensor that the variant cannot hold, OutputError when the disk refuses.
    """
    with replacing(Path(path)) as file:
        group: Group | None = None
        size = number = 0
        for record in records:
            variant = variant or _usual(record)
            if not number:
                file.write(b"isFloat: %d\n" % variant.is_float)
            if variant.ending == "group" and group is not None:
                # Whether a record is the last of its group shows only when the next one is here.
                file.write(_ending(size, group == (record.io, record.op_index)))
            group, size = _write_one(file, record, number, variant)
            number += 1
            del record
        if not number:
            raise OutputError(f"cannot write {path}: there is no tensor to write")
        if group is not None:
            file.write(END_SHORT)


def _usual(first: Record) -> BinVariant:
    info = first.tensor.info
    return BinVariant(is_float=info.quant is None or not is_integer(info.dtype))


def loses(records: Sequence[Record], variant: BinVariant | None) -> Iterator[tuple[Record, str]]:
    """What a dump of this variant cannot hold; see ``Format.loses``."""
    for record in records:
        variant = variant or _usual(record)
        yield from ((record, what) for what in lost(record, variant.shaped, variant.is_float))
        if variant.ending == "none" and record.io == "in":
            yield record, f"is an input, which the ONNX and Caffe dumpers' form has no place for: {REFUSED}"


def _write_one(file: IO[bytes], record: Record, number: int, variant: BinVariant) -> tuple[Group | None, int]:
    """Write a record but for a ``group`` ending, which is the caller's; returns its group, None when it has its end."""
    if variant.ending == "none" and record.io == "in":
        raise OutputError(
            f"cannot write input {record.name!r}: a dump in the ONNX and Caffe dumpers' form holds outputs only"
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
