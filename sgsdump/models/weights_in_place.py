"""An ONNX file read without its big weights: each stays where it is, as external data whose file is the model's own.

Parsing a file copies every weight, and for a moment holds them twice. Who only runs the model reads a weight when its
turn comes. In protobuf's encoding (https://protobuf.dev/programming-guides/encoding)::

    ModelProto  := field*      7: graph
    GraphProto  := field*      5: initializer, a TensorProto
    TensorProto := field*      9: raw_data
    field       := varint (number << 3 | wire type), then by that type 0: a varint, 1: 8 bytes, 5: 4 bytes,
                   2: a varint and as many bytes

Everything but the bytes of raw_data is kept as it stands.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Iterator
from pathlib import PureWindowsPath
from typing import TYPE_CHECKING, NamedTuple

from sgsdump.files.mapped import let_bytes_go
from sgsdump.models.shape_inference import SMALL_WEIGHT

if TYPE_CHECKING:
    import onnx

GRAPH, INITIALIZER, RAW_DATA = 7, 5, 9
VARINT, EIGHT, SIZED, FOUR = 0, 1, 2, 5
LONGEST_VARINT = 10
# What a weight says besides its values.
FACTS = ("dims", "data_type", "name", "doc_string", "metadata_props")

Buffer = bytes | mmap.mmap
Change = Callable[[int, int], bytes | None]


class Damaged(ValueError):
    """Bytes that are no protobuf message."""


def can_be_named(location: str) -> bool:
    """Whether a file of this name may be given as the place of external data."""
    return not PureWindowsPath(location).anchor and "\\" not in location and location.isprintable()


def without_weights(data: Buffer, location: str) -> bytes:
    """The serialised model ``data``, its big weights as external data in the file ``location``, which holds ``data``.

    Raises Damaged, and what protobuf raises for a weight that is no message.
    """

    def tensor(start: int, end: int) -> bytes | None:
        return _in_place(data, start, end, location)

    def graph(start: int, end: int) -> bytes:
        return _changed(data, start, end, INITIALIZER, tensor)

    return _changed(data, 0, len(data), GRAPH, graph)


def _changed(data: Buffer, start: int, end: int, number: int, change: Change) -> bytes:
    """A message, its fields of this number as ``change`` makes them from where they begin and end; None keeps one."""
    parts, done = [], start
    for field in _fields(data, start, end):
        value = change(field.value, field.end) if field.number == number and field.sized else None
        if value is not None:
            parts += [data[done : field.start], _varint(number << 3 | SIZED), _varint(len(value)), value]
            done = field.end
    return b"".join((*parts, data[done:end]))


def _in_place(data: Buffer, start: int, end: int, location: str) -> bytes | None:
    """A weight with the place of its values instead of these; None for a small one, and for one that is not plain."""
    if end - start <= SMALL_WEIGHT:
        return None
    raw = [field for field in _fields(data, start, end) if field.number == RAW_DATA and field.sized]
    if len(raw) != 1:
        return None
    first, last = raw[0].value, raw[0].end
    import onnx

    tensor = onnx.TensorProto.FromString(data[start : raw[0].start] + data[last:end])
    if not _is_plain(tensor, last - first):
        return None
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, word in (("location", location), ("offset", str(first)), ("length", str(last - first))):
        tensor.external_data.add(key=key, value=word)
    let_bytes_go(data, first, last)
    return tensor.SerializeToString()


def _is_plain(tensor: onnx.TensorProto, size: int) -> bool:
    """Whether a weight without its raw data is a big array of numpy's own types that needs so many bytes."""
    import onnx

    if any(field.name not in FACTS for field, _ in tensor.ListFields()):
        return False
    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    except (KeyError, ValueError, TypeError):
        return False
    count = math.prod(tensor.dims)
    return count > SMALL_WEIGHT and dtype.isbuiltin == 1 and count * dtype.itemsize == size


class _Field(NamedTuple):
    """A field of a message: its number, whether it is sized (wire type 2), and where it, its value and its end are."""

    number: int
    sized: bool
    start: int
    value: int
    end: int


def _fields(data: Buffer, start: int, end: int) -> Iterator[_Field]:
    while start < end:
        key, value = _read_varint(data, start, end)
        number, kind = key >> 3, key & 7
        if kind == SIZED:
            size, value = _read_varint(data, value, end)
            after = value + size
        elif kind == VARINT:
            after = _read_varint(data, value, end)[1]
        elif kind in (EIGHT, FOUR):
            after = value + (8 if kind == EIGHT else 4)
        else:
            raise Damaged(f"no field begins at byte {start}")
        if after > end:
            raise Damaged(f"the field at byte {start} ends beyond what holds it")
        yield _Field(number, kind == SIZED, start, value, after)
        start = after


def _read_varint(data: Buffer, start: int, end: int) -> tuple[int, int]:
    """A number in groups of seven bits, the lowest first, and where it ends."""
    number = 0
    for place in range(start, min(end, start + LONGEST_VARINT)):
        byte = data[place]
        number |= (byte & 127) << 7 * (place - start)
        if byte < 128:
            return number, place + 1
    raise Damaged(f"no number at byte {start}")


def _varint(number: int) -> bytes:
    groups = bytearray()
    while number > 127:
        groups.append(number & 127 | 128)
        number >>= 7
    groups.append(number)
    return bytes(groups)
