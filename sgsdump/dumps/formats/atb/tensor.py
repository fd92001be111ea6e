"""One ATB tensor file: what its header and size say is in it (``examine``), and writing one (``write``)."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np

from sgsdump.dumps.formats.arrays.npy_file import in_shape
from sgsdump.dumps.formats.ascend.types.acl_types import DATA_TYPES, format_number, number_of
from sgsdump.dumps.formats.ascend.types.coding import CODINGS, RAW, Coding, loader
from sgsdump.dumps.formats.ascend.types.ge_types import layout_of
from sgsdump.dumps.formats.atb.header import (
    DATA,
    MOST_BYTES,
    Header,
    begins,
    dims_of,
    header_bytes,
    number_in,
    parse,
    statistics_bytes,
)
from sgsdump.errors import FormatError, ValuesError
from sgsdump.files.bounded_read import open_file
from sgsdump.tensors.dtypes import carried, name_of, packed
from sgsdump.tensors.statistics import Statistics
from sgsdump.tensors.tensor import Tensor, TensorInfo

_FIRST_BYTES = 4096
STATISTICS = ("max", "min", "mean", "l2norm")
# What an appended second tensor begins with.
_AGAIN = b"$Version="
_MOST_DIGITS = 400
REFUSED = "writing is refused"


@dataclass(frozen=True)
class Content:
    """A file read: the facts of its tensor, and either where ``count`` elements lie (``offset`` from the file's first
    byte), or ``alias``, the file of the same dump that has them, or ``statistics`` alone, or nothing: ``described``.

    shape is None when the elements' type is known by name only; they are bytes then. ``notes`` are the ends of
    sentences that begin with the file's name.
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
        """The tensor under a name; ``missing`` is why it has no values, an alias that leads nowhere."""
        info = TensorInfo(name, self.shape, self.coding.dtype, self.layout, op_type=op_type)
        if missing or self.described:
            return Tensor.without_values(info, missing or "only its type and shape were dumped")
        if self.statistics is not None:
            return Tensor.of_statistics(info, self.statistics)
        return Tensor(info, loader(self.path, self.coding, self.count, self.offset))


def recognised(path: Path) -> bool:
    """Whether a file begins as an ATB tensor file."""
    try:
        with open_file(path) as file:
            head = file.read(_FIRST_BYTES)
    except OSError:
        return False
    return begins(head, len(head) < _FIRST_BYTES)


def examine(path: Path) -> Content:
    """Read the header of a file. Raises FormatError when it is damaged or promises more than the file holds."""
    try:
        with open_file(path) as file:
            return _content(path, _header(file), os.fstat(file.fileno()).st_size, file)
    except OSError as error:
        raise FormatError(f"cannot read {path}: {error.strerror or error}") from None
    except FormatError as error:
        raise FormatError(f"{path} {error}") from None


def header_of(path: Path) -> Header:
    """What the header of a file says, unread. Raises FormatError."""
    try:
        with open_file(path) as file:
            return _header(file)
    except OSError as error:
        raise FormatError(f"cannot read {path}: {error.strerror or error}") from None
    except FormatError as error:
        raise FormatError(f"{path} {error}") from None


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
            notes.append(f"has {size - header.end} bytes behind a header that announces none")
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
        raise FormatError(f"holds {there} bytes of values, its shape {list(dims)} needs {needed}; was it cut off?")
    if length != needed:
        notes.append(f"says its tensor has {length} bytes, its shape needs {needed}: these are read")
    end = header.end + start + (length if needed <= length <= size - header.end - start else needed)
    notes.extend(_behind(file, end, size))
    return Content(path, shape, coding, layout, count, header.end + start, notes=tuple(notes))


def _coding(header: Header, notes: list[str], needed: bool) -> Coding | None:
    """How the elements lie; None where only the type's name is known. Raises FormatError for an unknown number."""
    number = number_in(header, "dtype")
    if number is None and not needed:
        notes.append("names no type of elements")
        return None
    if number is None:
        raise FormatError("has no dtype in its header")
    if number not in DATA_TYPES:
        raise FormatError(f"has dtype={number}, which is no known type of elements")
    name, coding = DATA_TYPES[number]
    if coding is None:
        notes.append(f"holds elements of {name}, which are read as bytes")
    elif number_of(coding.dtype) != number:
        notes.append(f"holds elements of {name}, read as the {name_of(coding.dtype)} they mean")
    return coding


def _statistics(attributes: Mapping[str, str]) -> Statistics | None:
    def figure(name: str) -> float | None:
        try:
            return float(attributes[name][:_MOST_DIGITS]) if name in attributes else None
        except ValueError:
            raise FormatError(f"has {name}={attributes[name][:40]!r}, which is no number") from None

    if not any(name in attributes for name in STATISTICS):
        return None
    return Statistics(figure("min"), figure("max"), figure("mean"), figure("l2norm"))


def _object(header: Header, left: int, notes: list[str]) -> tuple[int, int]:
    """Offset and length of the tensor's bytes behind the header, as the file says."""
    if not header.objects:
        return 0, left
    name = DATA if DATA in header.objects else next(iter(header.objects))
    if len(header.objects) > 1:
        notes.append(f"holds {len(header.objects)} objects: only {name[:40]!r} is read")
    start, length = header.objects[name]
    if header.length is not None and start + length > header.length:
        notes.append(f"says its object ends at byte {start + length} of {header.length}")
    return start, length


def _behind(file: IO[bytes], end: int, size: int) -> list[str]:
    """What to say of bytes behind the tensor."""
    if size <= end:
        return []
    file.seek(end)
    if file.read(len(_AGAIN)) == _AGAIN:
        return ["was written more than once: its first tensor is read"]
    return [f"has {size - end} bytes behind its tensor"]


def lost(tensor: Tensor) -> Iterator[str]:
    """What a file cannot hold of a tensor's values, as the ends of "the tensor …"; see ``Format.loses``."""
    dtype, statistics = tensor.info.dtype, tensor.statistics
    if statistics is None:
        if number_of(dtype) is None:
            yield f"is {name_of(dtype)}, for which ATB has no number: {REFUSED}"
    elif statistics == Statistics():
        yield f"has no values: {REFUSED}"
    elif not _told(statistics):
        yield f"has statistics, none of them {', '.join(STATISTICS)}: {REFUSED}"
    elif replace(statistics, **dict.fromkeys(STATISTICS)) != Statistics():
        yield f"has statistics, of which only {', '.join(STATISTICS)} are kept"


def write(file: IO[bytes], tensor: Tensor) -> None:
    """Write one tensor as the vendor's probe does; its statistics where it has nothing else.

    Raises ValuesError for types that ATB has no number for, and where there are neither values nor statistics.
    """
    for what in lost(tensor):
        if what.endswith(REFUSED):
            raise ValuesError(f"tensor {tensor.info.name!r} {what.removesuffix(f': {REFUSED}')}")
    info = tensor.info
    format, number = format_number(info.layout), number_of(info.dtype)
    if tensor.statistics is not None:
        file.write(statistics_bytes(format, number, info.shape or (), _told(tensor.statistics)))
        return
    assert number is not None
    array = in_shape(tensor)
    payload = _payload(array)
    file.write(header_bytes(format, number, array.shape, memoryview(payload).nbytes))
    file.write(payload)


def save(path: Path, tensor: Tensor) -> None:
    """``write`` to a new file; OSError is the caller's, who writes the folder around it."""
    with open(path, "wb") as file:
        write(file, tensor)


def _told(statistics: Statistics) -> dict[str, float]:
    known = {name: getattr(statistics, name) for name in STATISTICS}
    return {name: value for name, value in known.items() if value is not None}


def _payload(array: np.ndarray) -> bytes | memoryview:
    """The elements as ``ascend.types.coding`` reads them, not copied where they are in that form already."""
    bits = CODINGS[name_of(array.dtype)].bits
    if bits == 1:
        return np.packbits(array.reshape(-1).astype(bool)).tobytes()
    if bits == 4:
        return packed(array)
    return np.ascontiguousarray(carried(array).reshape(-1)).view(np.uint8).data
