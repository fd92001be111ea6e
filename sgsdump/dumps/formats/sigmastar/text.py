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
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.format import Format
from sgsdump.dumps.formats.sigmastar.record import (
    FLOAT32,
    header_of,
    infer_op_indexes,
    payload_of,
    record_of,
    stored_dtype,
)
from sgsdump.dumps.formats.sigmastar.record_header import (
    HEAD,
    Buffer,
    Header,
    format_header,
    format_size,
    holds_text,
    parse_header,
    starts_rows,
)
from sgsdump.dumps.formats.sigmastar.record_losses import lost
from sgsdump.errors import FormatError, OutputError, ValuesError
from sgsdump.files.atomic_write import replacing
from sgsdump.files.mapped import map_file
from sgsdump.tensors.dtypes import is_integer
from sgsdump.tensors.layout import NCHW, NHWC

PER_ROW = 16
CHUNK = 4096 * PER_ROW
_EMPTY_PLACE = re.compile(rb",\s*,")


class OddHeader(NamedTuple):
    """The header lines of the tensor ``name`` as they stood in the file, where no rule would give them back."""

    name: str
    lines: bytes


@dataclass(frozen=True)
class TextVariant:
    """How a string dump is written.

    style     ``sim``, ``framework`` or ``tflite``: the three kinds of record above.
    is_float  the head's flag; 0 in style ``sim`` only.
    shaped    header lines with shape and dims (where the shape is known).
    head      False for a file of one layer, which has no head line.
    blank     a blank line before the rows (style ``sim``).
    layout    of 4-D tensors: ``NHWC``, or ``NCHW`` in the dumpers' NCHW folder.
    odd       by record number, header lines that follow none of these rules.
    """

    style: str = "sim"
    is_float: bool = True
    shaped: bool = False
    head: bool = True
    blank: bool = True
    layout: str = NHWC
    odd: Mapping[int, OddHeader] = field(default_factory=dict)

    def of_part(self) -> TextVariant:
        """The variant for a dump of other records."""
        return replace(self, odd={})


SIM = TextVariant()
FRAMEWORK = TextVariant("framework", shaped=True)
LAYER = TextVariant("framework", shaped=True, head=False)
TFLITE = TextVariant("tflite", shaped=True)


class LeftOut(ValuesError):
    """The values are not in the file: the simulators leave int32 parameters out of string dumps."""


class Place(NamedTuple):
    """Where a record lies: byte offsets of its header, its body's start and end; the size line's N if there is one."""

    header: Header
    offset: int
    lines_end: int
    start: int
    end: int
    size: int | None
    style: str


def walk(data: Buffer, path: Path) -> Iterator[Place]:
    """The places of all records, in file order. Raises FormatError at the first that is damaged."""
    head = HEAD.match(data)
    offset, number = head.end() if head else 0, 0
    while offset < len(data) or not number:
        parsed = parse_header(data, offset)
        if parsed is None or (parsed[0].cut and not starts_rows(data, parsed[2])):
            raise FormatError(
                f"{path}: record {number} at byte {offset} has no whole header; "
                f"the file is cut off or damaged, dump it again"
            )
        header, size, start = parsed
        end = data.find(b"}", start)
        mark = data[end : end + 3] if end >= 0 else b""
        if mark != b"};\n" and mark[:2] != b"}\n":
            raise FormatError(
                f"{path}: record {number} {header.name!r} at byte {offset} has no end; "
                f"the file is cut off or damaged, dump it again"
            )
        style = "framework" if mark[:2] == b"}\n" else "sim" if size is None else "tflite"
        lines_end = start if size is None else data.rfind(b"//buffer", offset, start)
        yield Place(header, offset, lines_end, start, end, size, style)
        offset = end + (2 if style == "framework" else 3)
        number += 1


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
    return Dump(records, FORMAT.name, _variant(data, places, records, is_float, head is not None, layout), path)


def _loader(data: Buffer, place: Place, is_float: bool, path: Path) -> Callable[[], np.ndarray]:
    return partial(_floats if is_float else _integers, data, place, path)


def _floats(data: Buffer, place: Place, path: Path) -> np.ndarray:
    values = _numbers(data, place, path, FLOAT32)
    if place.size not in (None, values.nbytes):
        raise FormatError(
            f"{path}: tensor {place.header.name!r} at byte {place.offset} has {values.size} values, its header says "
            f"{place.size} bytes; the file is damaged, dump it again"
        )
    return values


def _integers(data: Buffer, place: Place, path: Path) -> np.ndarray:
    printed = _numbers(data, place, path, np.dtype(np.int64))
    dtype = stored_dtype(place.header, is_float=False)
    if not printed.size and place.header.shape is not None and not math.prod(place.header.shape):
        return np.empty(0, dtype)
    if not printed.size:
        raise LeftOut(
            f"{path}: the values of {place.header.name!r} are left out by the string dump; dump without dumpasstring"
        )
    if printed.min() < 0 or printed.max() > 255 or printed.size % dtype.itemsize:
        raise FormatError(
            f"{path}: tensor {place.header.name!r} at byte {place.offset} is not printed as the bytes of {dtype}; "
            f"the file is damaged, dump it again"
        )
    return printed.astype(np.uint8).view(dtype)


def _numbers(data: Buffer, place: Place, path: Path, dtype: np.dtype) -> np.ndarray:
    text = data[place.start : place.end].strip(b", \n")
    if not text:
        return np.empty(0, dtype)
    try:
        values = np.fromstring(text.decode("ascii"), dtype, sep=",")
        # numpy before 2.3 only warns where it stops, and then gives the last place a value all the same
        (int if is_integer(dtype) else float)(text.rpartition(b",")[2].replace(b"_", b"x"))
    except (ValueError, DeprecationWarning):
        values = np.empty(0, dtype)
    # numpy reads an empty place between commas as -1
    if values.size != text.count(b",") + 1 or _EMPTY_PLACE.search(text):
        raise FormatError(
            f"{path}: the values of {place.header.name!r} at byte {place.start} are not all numbers; "
            f"the file is damaged, dump it again"
        )
    if b"-nan" in text:
        values[[b"-nan" in printed for printed in text.split(b",")]] = -np.nan
    return values


def _variant(
    data: Buffer, places: list[Place], records: list[Record], is_float: bool, head: bool, layout: str
) -> TextVariant:
    shaped = any(place.header.shape is not None for place in places)
    filled = next((place for place in places if data[place.start : place.start + 2].strip(b"\n}")), places[0])
    blank = data[filled.start : filled.start + 1] == b"\n"
    odd = {}
    for number, (place, record) in enumerate(zip(places, records)):
        lines = data[place.offset : place.lines_end]
        if not place.header.plain and lines != format_header(header_of(record, shaped, is_float, layout)):
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
            _write_one(file, record, number, variant)
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


def _write_one(file: IO[bytes], record: Record, number: int, variant: TextVariant) -> None:
    odd = variant.odd.get(number)
    if odd is not None and odd.name == record.name:
        file.write(odd.lines)
    else:
        file.write(format_header(header_of(record, variant.shaped, variant.is_float, variant.layout)))
    payload = _payload(record, variant)
    if variant.style != "sim":
        file.write(format_size(payload.nbytes))
    if variant.style == "framework" or (variant.style == "sim" and variant.blank):
        file.write(b"\n")
    for start in range(0, payload.size, CHUNK):
        file.write(_rows(payload[start : start + CHUNK], signed_nan=variant.style == "sim"))
    if payload.size % PER_ROW and variant.style != "framework":
        file.write(b"\n")
    file.write({"sim": b"\n};\n", "framework": b"\n}\n", "tflite": b"};\n"}[variant.style])


def _payload(record: Record, variant: TextVariant) -> np.ndarray:
    """The float32 values to print, or the bytes; none where the file that was read leaves them out as well."""
    if variant.is_float:
        return payload_of(record, True, variant.layout)
    try:
        return payload_of(record, False, variant.layout).view(np.uint8)
    except LeftOut:
        return np.empty(0, np.uint8)


def _rows(values: np.ndarray, signed_nan: bool) -> bytes:
    """Rows of 16 values; the C printf of the simulators prints a NaN's sign, the dumpers' Python does not."""
    form = "%6d, " if values.dtype == np.uint8 else "%.6f, "
    full, rest = divmod(values.size, PER_ROW)
    rows = (form * PER_ROW + "\n") * full + form * rest
    if signed_nan and values.dtype != np.uint8 and np.any(np.isnan(values) & np.signbit(values)):
        rows = rows.replace("%.6f", "%s")
        printed = ["-nan" if v != v and s else f"{v:.6f}" for v, s in zip(values.tolist(), np.signbit(values))]
        return (rows % tuple(printed)).encode()
    return (rows % tuple(values.tolist())).encode()


FORMAT = Format("sigmastar_text", recognises, read, write, loses)
