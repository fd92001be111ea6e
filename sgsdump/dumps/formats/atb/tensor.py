"""Parser and writer of an ATB tensor file (``.bin``): a text header and a payload.

::

    $Version=1.0                     these three lines may be missing
    $Object.Count=<objects>          (ignored)
    $Object.Length=<bytes of all objects>
    <attribute>=<value>              format, dtype, dims (4,4; empty for a scalar); or data=…, max=…
    $Object.<name>=<offset>,<length> counted from the first byte after the header
    $End=1                           $END in an old fork
    <payload>

Lines end in LF. The rules follow the vendor's C++ reader. A header has at most 8000 lines. Each line is split at ``=``
into two non-empty parts (``dims`` may be empty). A repeated attribute, object or length is an error. Other ``$`` names
are only noted.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from sgsdump.dumps.dump import Record
from sgsdump.dumps.format import Lost
from sgsdump.dumps.formats.shared.ascend_types import (
    ACL_TYPES,
    CODINGS,
    RAW,
    Coding,
    acl_number_of,
    format_number,
    layout_of,
    loader,
)
from sgsdump.dumps.formats.shared.npy_file import in_shape
from sgsdump.errors import FormatError, ValuesError
from sgsdump.files.bounded_read import open_file, reading
from sgsdump.tensors.dtypes import carried, name_of, packed
from sgsdump.tensors.statistics import Statistics
from sgsdump.tensors.tensor import Tensor, TensorInfo

MOST_LINES = 8000
MOST_BYTES = 2**20
DATA = "data"
_MOST_RANK, _MOST_ELEMENTS = 32, 2**48
_MOST_NOTES = 3
_OBJECT = "$Object."
_COUNTED = re.compile(r"[0-9]{1,19}")
_SLICE = re.compile(r"([0-9]{1,19}),([0-9]{1,19})")
_FIRST_LINE = re.compile(rb"\$(Version|Object\.[^=\n]{1,64}|End|END)=[^=\n]+\n|[A-Za-z_][\w.]{0,63}=[^=\n]*\n")
_KNOWN = re.compile(rb"(?:^|\n)(?:\$Version|\$Object\.\w+|dtype|dims)=")
_ENDING = re.compile(rb"(?:^|\n)\$(?:End|END)=1(?:\n|$)")
_FIRST_BYTES = 4096
STATISTICS = ("max", "min", "mean", "l2norm")
# First bytes of an appended second tensor.
_AGAIN = b"$Version="
_MOST_DIGITS = 400


@dataclass(frozen=True)
class Header:
    """A header with unparsed values.

    objects  (offset, length) of each object, relative to ``end``.
    length   value of ``$Object.Length``; None if absent.
    end      offset of the payload in the file.
    notes    harmless irregularities.
    """

    attributes: Mapping[str, str]
    objects: Mapping[str, tuple[int, int]]
    length: int | None
    end: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Content:
    """Facts about the tensor of a file, and the source of its values.

    The source is one of: ``count`` elements at byte ``offset`` of the file; ``alias``, another file of the same dump;
    ``statistics`` only; none (``described``).

    shape  None if only the name of the element type is known; the elements are then raw bytes.
    notes  predicates of sentences that begin with the file's name.
    """

    path: Path
    shape: tuple[int, ...] | None
    coding: Coding
    layout: str | None
    count: int
    offset: int = 0
    alias: str = ""
    statistics: Statistics | None = None
    notes: tuple[str, ...] = ()
    described: bool = False

    def tensor(self, name: str, op_type: str = "", missing: str = "") -> Tensor:
        """Return the tensor under a name; ``missing`` is the reason why an alias has no values."""
        info = TensorInfo(name, self.shape, self.coding.dtype, self.layout, op_type=op_type)
        if missing or self.described:
            return Tensor.without_values(info, missing or "only its type and shape were dumped")
        if self.statistics is not None:
            return Tensor.of_statistics(info, self.statistics)
        return Tensor(info, loader(self.path, self.coding, self.count, self.offset))


def begins(head: bytes, whole: bool) -> bool:
    """Return whether bytes look like the start of an ATB file.

    They must be lines NAME=VALUE up to ``$End``, with a name that only ATB files have. If ``whole``, the bytes are the
    complete file and must contain an ending or a version.
    """
    if not _FIRST_LINE.match(head):
        return False
    ending = _ENDING.search(head)
    if ending is None and whole and not head.startswith(b"$Version="):
        return False
    return _KNOWN.search(head, 0, ending.start() if ending else len(head)) is not None


def parse(data: bytes) -> Header:
    """Parse the header at the start of ``data``, the whole file or its first MOST_BYTES bytes.

    Raises FormatError whose text is a predicate; the caller puts the file's name before it.
    """
    attributes: dict[str, str] = {}
    objects: dict[str, tuple[int, int]] = {}
    length: int | None = None
    notes: list[str] = []
    position = 0
    for number in range(1, MOST_LINES + 1):
        stop = data.find(b"\n", position)
        text = _decoded(data[position:] if stop < 0 else data[position:stop], number)
        if stop < 0 and text not in ("$End=1", "$END=1"):
            raise FormatError(f"is cut off in its header, line {number}: there is no $End=1")
        name, value = _halves(text, number)
        position = len(data) if stop < 0 else stop + 1
        if name in ("$End", "$END"):
            if value != "1":
                raise FormatError(f"has {text[:40]!r} in line {number} of its header, not $End=1")
            return Header(attributes, objects, length, position, tuple(notes))
        if name == f"{_OBJECT}Length":
            if length is not None:
                raise FormatError(f"repeats $Object.Length in line {number} of its header")
            length = int(_matched(_COUNTED, value, text, number, "a number of bytes")[0])
        elif name.startswith(_OBJECT) and name != f"{_OBJECT}Count":
            start, size = _matched(_SLICE, value, text, number, "OFFSET,LENGTH").groups()
            _add(objects, name.removeprefix(_OBJECT), (int(start), int(size)), "object", number)
        elif not name.startswith("$"):
            _add(attributes, name, value, "attribute", number)
        elif name not in ("$Version", f"{_OBJECT}Count") and len(notes) < _MOST_NOTES:
            notes.append(f"has the unknown header line {text[:60]!r}")
    raise FormatError(f"has no $End=1 in the first {MOST_LINES} lines")


def dims_of(header: Header) -> tuple[int, ...]:
    """Return the shape; () for an empty text. Raises FormatError if it is missing or impossible."""
    text = header.attributes.get("dims")
    if text is None:
        raise FormatError("has no dims in its header")
    parts = text.split(",") if text else []
    if len(parts) > _MOST_RANK or not all(map(_COUNTED.fullmatch, parts)):
        raise FormatError(f"has dims={text[:60]!r}, which is not a shape")
    dims = tuple(map(int, parts))
    if math.prod(size or 1 for size in dims) > _MOST_ELEMENTS:
        raise FormatError(f"has dims={text[:60]!r}, a shape too large for any memory")
    return dims


def number_in(header: Header, name: str) -> int | None:
    """Return the attribute ``format`` or ``dtype``; None if absent. Raises FormatError if it is not a number."""
    text = header.attributes.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"-?[0-9]{1,9}", text):
        raise FormatError(f"has {name}={text[:40]!r}, which is not a number")
    return int(text)


def header_bytes(
    format: int, dtype: int | None, dims: Sequence[int], size: int, statistics: Mapping[str, float] | None = None
) -> bytes:
    """Return the header of a tensor with ``size`` payload bytes, byte for byte as the vendor's probe writes it.

    With ``statistics``, return the whole file of a tensor that has only statistics: no object, no payload.
    """
    has_values = statistics is None
    lines = ["$Version=1.0", f"$Object.Count={int(has_values)}", f"$Object.Length={size}", f"format={format}"]
    lines += [] if dtype is None else [f"dtype={dtype}"]
    lines.append(f"dims={','.join(map(str, dims))}")
    lines += [f"{name}={value!r}" for name, value in (statistics or {}).items()]
    lines += [f"$Object.data=0,{size}"] if has_values else []
    return "".join(f"{line}\n" for line in [*lines, "$End=1"]).encode("ascii")


def recognised(path: Path) -> bool:
    """Return whether a file begins like an ATB tensor file."""
    try:
        with open_file(path) as file:
            head = file.read(_FIRST_BYTES)
    except OSError:
        return False
    return begins(head, len(head) < _FIRST_BYTES)


def examine(path: Path) -> Content:
    """Read the header of a file. Raises FormatError if it is damaged or declares more bytes than the file has."""
    with _read(path) as file:
        return _content(path, _header(file), os.fstat(file.fileno()).st_size, file)


def header_of(path: Path) -> Header:
    """Return the header of a file with unparsed values. Raises FormatError."""
    with _read(path) as file:
        return _header(file)


def lost(record: Record) -> Iterator[Lost]:
    """Yield the losses of a record's values in a file; see ``Format.loses``."""
    dtype, statistics = record.tensor.info.dtype, record.tensor.statistics
    if statistics is None:
        if acl_number_of(dtype) is None:
            yield Lost(record, f"is {name_of(dtype)}, for which ATB has no number", True)
    elif statistics == Statistics():
        yield Lost(record, "has no values", True)
    elif not _told(statistics):
        yield Lost(record, f"has statistics, none of them {', '.join(STATISTICS)}", True)
    elif replace(statistics, **dict.fromkeys(STATISTICS)) != Statistics():
        yield Lost(record, f"has statistics, of which only {', '.join(STATISTICS)} are kept")


def write(file: IO[bytes], record: Record) -> None:
    """Write one tensor like the vendor's probe, or its statistics if it has nothing else.

    Raises ValuesError for types without an ACL number, and for tensors without values and statistics.
    """
    tensor = record.tensor
    info = tensor.info
    for loss in lost(record):
        if loss.refused:
            raise ValuesError(f"tensor {info.name!r} {loss.what}")
    format, number = format_number(info.layout), acl_number_of(info.dtype)
    if tensor.statistics is not None:
        file.write(header_bytes(format, number, info.shape or (), 0, _told(tensor.statistics)))
        return
    assert number is not None
    array = in_shape(tensor)
    payload = _payload(array)
    file.write(header_bytes(format, number, array.shape, memoryview(payload).nbytes))
    file.write(payload)


def save(path: Path, record: Record) -> None:
    """Write one tensor to a new file. The caller handles OSError."""
    with open(path, "wb") as file:
        write(file, record)


@contextmanager
def _read(path: Path) -> Iterator[IO[bytes]]:
    """Open a file and prefix FormatErrors with its name."""
    with reading(path), open_file(path) as file:
        try:
            yield file
        except FormatError as error:
            raise FormatError(f"{path} {error}") from None


def _decoded(line: bytes, number: int) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise FormatError(f"has bytes that are not text in line {number} of its header") from None


def _halves(text: str, number: int) -> tuple[str, str]:
    parts = text.split("=")
    if len(parts) != 2 or not parts[0] or not (parts[1] or parts[0] == "dims"):
        raise FormatError(f"has {text[:40]!r} in line {number} of its header, which is not NAME=VALUE")
    return parts[0], parts[1]


def _add(taken: dict[str, Any], name: str, value: Any, kind: str, number: int) -> None:
    if name in taken:
        raise FormatError(f"repeats the {kind} {name[:40]!r} in line {number} of its header")
    taken[name] = value


def _matched(pattern: re.Pattern[str], value: str, text: str, number: int, meaning: str) -> re.Match[str]:
    match = pattern.fullmatch(value)
    if match is None:
        raise FormatError(f"has {text[:60]!r} in line {number} of its header, which is not {meaning}")
    return match


def _header(file: IO[bytes]) -> Header:
    data = file.read(_FIRST_BYTES)
    if b"\n$End=" not in data and b"\n$END=" not in data:
        data += file.read(MOST_BYTES - len(data))
    return parse(data)


def _content(path: Path, header: Header, size: int, file: IO[bytes]) -> Content:
    dims = dims_of(header)
    notes = list(header.notes)
    layout = layout_of(number_in(header, "format") or 0, len(dims)) if "format" in header.attributes else None
    alias = header.attributes.get(DATA, "")
    statistics = None if header.objects or alias else _statistics(header.attributes)
    coding = _coding(header, notes, needed=not statistics)
    count = math.prod(dims)
    if statistics or (alias and not header.objects):
        if size > header.end:
            notes.append(f"has {size - header.end} bytes after a header that declares no payload")
        return Content(path, dims, coding or RAW, layout, count, 0, alias, statistics, tuple(notes))
    if coding and not header.objects and header.length == 0 and size == header.end:
        return Content(path, dims, coding, layout, count, notes=tuple(notes), described=True)
    start, length = _object(header, size - header.end, notes)
    shape: tuple[int, ...] | None = dims
    if coding is None:
        coding, shape, count = RAW, None, min(length, size - header.end - start)
    needed = coding.size(count)
    if start + needed > size - header.end:
        there = max(0, size - header.end - start)
        raise FormatError(
            f"holds {there} bytes of values, but its shape {list(dims)} needs {needed} bytes. Check "
            "whether the file was cut off"
        )
    if length != needed:
        notes.append(f"declares {length} bytes, but its shape needs {needed}; {needed} bytes are read")
    end = header.end + start + (length if needed <= length <= size - header.end - start else needed)
    notes.extend(_trailing(file, end, size))
    return Content(path, shape, coding, layout, count, header.end + start, notes=tuple(notes))


def _coding(header: Header, notes: list[str], needed: bool) -> Coding | None:
    """Return the element coding; None if only the type's name is known. Raises FormatError for an unknown number."""
    number = number_in(header, "dtype")
    if number is None and not needed:
        notes.append("has no element type")
        return None
    if number is None:
        raise FormatError("has no dtype in its header")
    if number not in ACL_TYPES:
        raise FormatError(f"has dtype={number}, which is not a known element type")
    name, coding = ACL_TYPES[number]
    if coding is None:
        notes.append(f"holds elements of {name}, which are read as bytes")
    elif acl_number_of(coding.dtype) != number:
        notes.append(f"holds elements of {name}, decoded to {name_of(coding.dtype)}")
    return coding


def _statistics(attributes: Mapping[str, str]) -> Statistics | None:
    def figure(name: str) -> float | None:
        try:
            return float(attributes[name][:_MOST_DIGITS]) if name in attributes else None
        except ValueError:
            raise FormatError(f"has {name}={attributes[name][:40]!r}, which is not a number") from None

    if not any(name in attributes for name in STATISTICS):
        return None
    return Statistics(figure("min"), figure("max"), figure("mean"), figure("l2norm"))


def _object(header: Header, size: int, notes: list[str]) -> tuple[int, int]:
    """Return offset and length of the tensor's bytes after the header, as the file declares them."""
    if not header.objects:
        return 0, size
    name = DATA if DATA in header.objects else next(iter(header.objects))
    if len(header.objects) > 1:
        notes.append(f"holds {len(header.objects)} objects; only {name[:40]!r} is read")
    start, length = header.objects[name]
    if header.length is not None and start + length > header.length:
        notes.append(f"declares an object that ends at byte {start + length}, but has only {header.length} bytes")
    return start, length


def _trailing(file: IO[bytes], end: int, size: int) -> list[str]:
    """Return a note about trailing bytes, if there are any."""
    if size <= end:
        return []
    file.seek(end)
    if file.read(len(_AGAIN)) == _AGAIN:
        return ["holds several tensors; only the first is read"]
    return [f"has {size - end} trailing bytes"]


def _told(statistics: Statistics) -> dict[str, float]:
    return {name: value for name in STATISTICS if (value := getattr(statistics, name)) is not None}


def _payload(array: np.ndarray) -> bytes | memoryview:
    """Return the elements in the encoding of ``ascend_types``, without a copy if possible."""
    bits = CODINGS[name_of(array.dtype)].bits
    if bits == 1:
        return np.packbits(array.reshape(-1).astype(bool)).tobytes()
    if bits == 4:
        return packed(array)
    return np.ascontiguousarray(carried(array).reshape(-1)).view(np.uint8).data
