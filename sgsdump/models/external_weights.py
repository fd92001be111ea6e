"""An ONNX file read without its big weights, apart because it walks untrusted bytes: each weight stays where it is, as
external data whose file is the model's own.

Parsing a file copies every weight, and for a moment holds them twice; a caller that only runs the model reads a weight
when its turn comes. A ModelProto has its graph in field 7, a GraphProto its initializers in field 5, a TensorProto its
values in field 9 (raw_data). Everything but the bytes of raw_data is kept as it stands.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable
from pathlib import PureWindowsPath
from typing import TYPE_CHECKING

from sgsdump.files.mapped import let_bytes_go
from sgsdump.files.protobuf_wire import BYTES, fields, varint
from sgsdump.models.graph import SMALL_WEIGHT, dtype_of

if TYPE_CHECKING:
    import onnx

GRAPH, INITIALIZER, RAW_DATA = 7, 5, 9
# Fields of a weight besides its values.
FACTS = ("dims", "data_type", "name", "doc_string", "metadata_props")

Buffer = bytes | mmap.mmap


def can_be_named(location: str) -> bool:
    """Whether a file of this name may be given as the location of external data."""
    return not PureWindowsPath(location).anchor and "\\" not in location and location.isprintable()


def without_weights(data: Buffer, location: str) -> bytes:
    """The serialised model ``data``, its big weights as external data in the file ``location``, which holds ``data``.

    Raises WireError, and what protobuf raises for a weight that is not a message.
    """

    def tensor(start: int, end: int) -> bytes | None:
        return _as_external(data, start, end, location)

    def graph(start: int, end: int) -> bytes:
        return _replaced(data, start, end, INITIALIZER, tensor)

    return _replaced(data, 0, len(data), GRAPH, graph)


def _replaced(data: Buffer, start: int, end: int, number: int, change: Callable[[int, int], bytes | None]) -> bytes:
    """A message; ``change`` makes each field of this number anew from its begin and end, or keeps it by None."""
    parts, done = [], start
    for field in fields(data, start, end):
        value = change(field.value, field.end) if (field.number, field.wire_type) == (number, BYTES) else None
        if value is not None:
            parts += [data[done : field.start], varint(number << 3 | BYTES), varint(len(value)), value]
            done = field.end
    return b"".join((*parts, data[done:end]))


def _as_external(data: Buffer, start: int, end: int, location: str) -> bytes | None:
    """A weight that says where its values are instead of holding them; None if it is small or not plain."""
    if end - start <= SMALL_WEIGHT:
        return None
    raw = [field for field in fields(data, start, end) if (field.number, field.wire_type) == (RAW_DATA, BYTES)]
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
    if any(field.name not in FACTS for field, _ in tensor.ListFields()):
        return False
    dtype, count = dtype_of(tensor.data_type), math.prod(tensor.dims)
    return dtype is not None and count > SMALL_WEIGHT and dtype.isbuiltin == 1 and count * dtype.itemsize == size
