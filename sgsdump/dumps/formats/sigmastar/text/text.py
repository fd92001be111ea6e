r"""The SigmaStar string dump: a binary dump's headers with printed values, of simulators and framework dumpers.

::

    file   := ["isFloat: " 0|1 "\n"] record*                     no head: the dumpers' files of one layer each
    record := header ["\n"] rows "\n};\n"                        sim: no size line (the file's name still ends in .bin)
            | header size "\n" rows "\n}\n"                      framework: ONNX and Caffe; only full rows end in "\n"
            | header size rows "};\n"                            tflite
    rows   := 16 values "%.6f, " and "\n", as often as needed

N of the size line is 4 bytes per value. With isFloat 0 (simulators only) the values are the payload's *bytes*,
unsigned, ``%6d, ``, whatever the type; with eliminateGarbage on the blank line before the rows is missing and int32
parameters are left out: their body is empty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.format import Format
from sgsdump.dumps.formats.sigmastar.record import header_of, infer_op_indexes, record_of, stored_dtype
from sgsdump.dumps.formats.sigmastar.record_header import HEAD, Buffer, format_header, holds_text
from sgsdump.dumps.formats.sigmastar.record_losses import lost
from sgsdump.dumps.formats.sigmastar.text.records import Place, walk
from sgsdump.dumps.formats.sigmastar.text.rows import write_record
from sgsdump.dumps.formats.sigmastar.text.values import floats, integers
from sgsdump.dumps.formats.sigmastar.text.variant import FRAMEWORK, OddHeader, TextVariant
from sgsdump.errors import FormatError, OutputError
from sgsdump.files.atomic_write import replacing
from sgsdump.files.mapped import let_bytes_go, map_file
from sgsdump.tensors.dtypes import is_integer
from sgsdump.tensors.types import NCHW, NHWC


def recognises(path: Path, head: bytes) -> bool:
    return (HEAD.match(head) is not None or head.startswith((b"//out ", b"//in "))) and holds_text(map_file(path))


def read(path: Path) -> Dump:
    """A dump whose values are parsed when asked for. Raises FormatError for a damaged file."""
    data = map_file(path)
    head = HEAD.match(data)
    is_float = head is None or head[1] == b"1"
    layout = NCHW if head is None and path.resolve().parent.name == NCHW else NHWC
    places = list(walk(data, path))
    for number, place in enumerate(places):
        if place.style != places[0].style:
            raise FormatError(
                f"{path}: record {number} {place.header.name!r} at byte {place.offset} ends as a {place.style} record, "
                f"those before it as {places[0].style}; the file is damaged, dump it again"
            )
    indexes = infer_op_indexes([place.header for place in places], [False] * len(places))
    records = [
        record_of(
            place.header, index, stored_dtype(place.header, is_float), _loader(data, place, is_float, path), layout
        )
        for place, index in zip(places, indexes)
    ]
    variant = _variant(data, places, records, is_float, head is not None, layout)
    let_bytes_go(data, 0, len(data))
    return Dump(records, FORMAT.name, variant, path)


def _loader(data: Buffer, place: Place, is_float: bool, path: Path) -> Callable[[], np.ndarray]:
    return partial(floats if is_float else integers, data, place, path)


def _variant(
    data: Buffer, places: list[Place], records: list[Record], is_float: bool, head: bool, layout: str
) -> TextVariant:
    shaped = any(place.header.shape is not None for place in places)
    filled = next((place for place in places if data[place.start : place.start + 2].strip(b"\n}")), places[0])
    blank = data[filled.start : filled.start + 1] == b"\n"
    odd = {}
    for number, (place, record) in enumerate(zip(places, records)):
        if place.header.plain:
            continue
        lines = data[place.offset : place.lines_end]
        if lines != format_header(header_of(record, shaped, is_float, layout)):
            odd[number] = OddHeader(record.name, lines)
    return TextVariant(places[0].style, is_float, shaped, head, blank, layout, odd)


def write(records: Iterable[Record], path: Path, variant: TextVariant | None) -> None:
    """Write records one at a time. ``variant`` None: FRAMEWORK, or for quantised integers SIM with shapes.

    Raises ValuesError for a tensor that the variant cannot hold, OutputError when the disk refuses.
    """
    with replacing(Path(path)) as file:
        number = 0
        for record in records:
            variant = variant or _usual(record)
            if not number and variant.head:
                file.write(b"isFloat: %d\n" % variant.is_float)
            write_record(file, record, number, variant)
            number += 1
            del record
        if not number:
            raise OutputError(f"cannot write {path}: there is no tensor to write")


def _usual(first: Record) -> TextVariant:
    info = first.tensor.info
    is_float = info.quant is None or not is_integer(info.dtype)
    return FRAMEWORK if is_float else TextVariant(is_float=False, shaped=True)


def loses(records: Sequence[Record], variant: TextVariant | None) -> Iterator[tuple[Record, str]]:
    """What a string dump of this variant cannot hold; see ``Format.loses``."""
    for record in records:
        variant = variant or _usual(record)
        yield from ((record, what) for what in lost(record, variant.shaped, variant.is_float, variant.layout))
        if variant.is_float:
            yield record, "is printed with six decimals"
        elif not variant.shaped and record.tensor.info.shape is not None and not math.prod(record.tensor.info.shape):
            yield record, "is empty, read as one whose values the dump leaves out"


FORMAT = Format("sigmastar_text", recognises, read, write, loses)
