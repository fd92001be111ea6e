r"""Reader and writer of SigmaStar string dumps: headers of a binary dump with printed values.

::

    file   := ["isFloat: " 0|1 "\n"] record*                     no isFloat line: the dumpers' files of single layers
    record := header ["\n"] rows "\n};\n"                        sim: no size line (the file's name still ends in .bin)
            | header size "\n" rows "\n}\n"                      framework: ONNX and Caffe; only full rows end in "\n"
            | header size rows "};\n"                            tflite
    rows   := 16 values "%.6f, " and "\n", as often as needed

N of the size line counts 4 bytes per value. With isFloat 0 (simulators only), the values are the *bytes* of the
payload, unsigned, ``%6d, ``, for any type. With eliminateGarbage on, the blank line before the rows is missing, and
int32 parameters have an empty body.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.format import Format, Lost
from sgsdump.dumps.formats.sigmastar.record import (
    header_of,
    infer_op_indexes,
    lost,
    payload_of,
    record_of,
    stored_dtype,
)
from sgsdump.dumps.formats.sigmastar.record_header import HEAD, Buffer, format_header, format_size, holds_text
from sgsdump.dumps.formats.sigmastar.text_values import LeftOut, TextSpan, floats, integers, walk
from sgsdump.errors import FormatError, OutputError
from sgsdump.files.atomic_write import replacing
from sgsdump.files.mapped import let_bytes_go, map_file
from sgsdump.tensors.dtypes import is_integer
from sgsdump.tensors.types import NCHW, NHWC

PER_ROW = 16
CHUNK = 4096 * PER_ROW


class HeaderOverride(NamedTuple):
    """Original header lines of the tensor ``name`` that the rules of a variant do not reproduce."""

    name: str
    lines: bytes


@dataclass(frozen=True)
class TextVariant:
    """Form of a string dump.

    style     ``sim``, ``framework`` or ``tflite``: kind of record, see the grammar.
    is_float  flag of the isFloat line; 0 only in style ``sim``.
    shaped    header lines with shape and dims (if the shape is known).
    head      False for a file of a single layer, which has no isFloat line.
    blank     a blank line precedes the rows (style ``sim``).
    layout    layout of 4-D tensors: ``NHWC``, or ``NCHW`` in the dumpers' NCHW folder.
    odd       original header lines that do not follow these rules, by record number.
    """

    style: str = "sim"
    is_float: bool = True
    shaped: bool = False
    head: bool = True
    blank: bool = True
    layout: str = NHWC
    odd: Mapping[int, HeaderOverride] = field(default_factory=dict)

    def of_part(self) -> TextVariant:
        """Return the variant for a dump of other records."""
        return replace(self, odd={})


SIM = TextVariant()
FRAMEWORK = TextVariant("framework", shaped=True)
LAYER = TextVariant("framework", shaped=True, head=False)
TFLITE = TextVariant("tflite", shaped=True)


def recognises(path: Path, head: bytes) -> bool:
    return (HEAD.match(head) is not None or head.startswith((b"//out ", b"//in "))) and holds_text(map_file(path))


def read(path: Path) -> Dump:
    """Read a string dump; values are parsed on request. Raises FormatError for damage."""
    data = map_file(path)
    head = HEAD.match(data)
    is_float = head is None or head[1] == b"1"
    layout = NCHW if head is None and path.resolve().parent.name == NCHW else NHWC
    spans = list(walk(data, path))
    for number, span in enumerate(spans):
        if span.style != spans[0].style:
            raise FormatError(
                f"{path}: record {number} {span.header.name!r} at byte {span.offset} has the "
                f"form {span.style!r}, "
                f"but the earlier records have the form {spans[0].style!r}. The file is damaged; dump it again"
            )
    indexes = infer_op_indexes([span.header for span in spans], [False] * len(spans))
    load = floats if is_float else integers
    records = [
        record_of(
            span.header, index, stored_dtype(span.header, is_float), partial(load, data.source, span, path), layout
        )
        for span, index in zip(spans, indexes)
    ]
    variant = _variant(data, spans, records, is_float, head is not None, layout)
    let_bytes_go(data, 0, len(data))
    return Dump(records, FORMAT.name, variant, path)


def write(records: Iterable[Record], path: Path, variant: TextVariant | None) -> None:
    """Write records one at a time; ``variant`` None means FRAMEWORK or, for quantised integers, SIM with shapes.

    Raises ValuesError for a tensor that the variant cannot hold, OutputError if writing fails.
    """
    with replacing(Path(path)) as file:
        number = 0
        for record in records:
            variant = variant or _usual(record)
            if not number and variant.head:
                file.write(b"isFloat: %d\n" % variant.is_float)
            _write_record(file, record, number, variant)
            number += 1
            del record
        if not number:
            raise OutputError(f"cannot write {path}: there is no tensor to write")


def loses(records: Sequence[Record], variant: TextVariant | None) -> Iterator[Lost]:
    """Yield the losses of a string dump of this variant; see ``Format.loses``."""
    for record in records:
        variant = variant or _usual(record)
        yield from lost(record, variant.shaped, variant.is_float, variant.layout)
        if variant.is_float:
            yield Lost(record, "is printed with six decimals")
        elif not variant.shaped and record.tensor.info.shape is not None and not math.prod(record.tensor.info.shape):
            yield Lost(record, "is empty and is read back as a tensor with missing values")


def _write_record(file: IO[bytes], record: Record, number: int, variant: TextVariant) -> None:
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
    """Return the float32 values or bytes to print; none if the file that was read has no values either."""
    if variant.is_float:
        return payload_of(record, True, variant.layout)
    try:
        return payload_of(record, False, variant.layout).view(np.uint8)
    except LeftOut:
        return np.empty(0, np.uint8)


def _rows(values: np.ndarray, signed_nan: bool) -> bytes:
    """Return rows of 16 values. The simulators (C printf) print the sign of NaN, the dumpers (Python) do not."""
    is_bytes, numbers = values.dtype == np.uint8, values.tolist()
    form = "%6d, " if is_bytes else "%.6f, "
    if signed_nan and not is_bytes and np.any(np.isnan(values) & np.signbit(values)):
        form = "%s, "
        numbers = ["-nan" if v != v and s else f"{v:.6f}" for v, s in zip(numbers, np.signbit(values))]
    full, rest = divmod(values.size, PER_ROW)
    return (((form * PER_ROW + "\n") * full + form * rest) % tuple(numbers)).encode()


def _variant(
    data: Buffer, spans: list[TextSpan], records: list[Record], is_float: bool, head: bool, layout: str
) -> TextVariant:
    shaped = any(span.header.shape is not None for span in spans)
    filled = next((span for span in spans if data[span.start : span.start + 2].strip(b"\n}")), spans[0])
    blank = data[filled.start : filled.start + 1] == b"\n"
    odd = {}
    for number, (span, record) in enumerate(zip(spans, records)):
        if span.plain:
            continue
        lines = data[span.offset : span.lines_end]
        if lines != format_header(header_of(record, shaped, is_float, layout)):
            odd[number] = HeaderOverride(record.name, lines)
    return TextVariant(spans[0].style, is_float, shaped, head, blank, layout, odd)


def _usual(first: Record) -> TextVariant:
    info = first.tensor.info
    is_float = info.quant is None or not is_integer(info.dtype)
    return FRAMEWORK if is_float else TextVariant(is_float=False, shaped=True)


FORMAT = Format("sigmastar_text", recognises, read, write, loses)
