"""Reader of caffemodel files: learned parameters of every layer, by layer name.

The file is memory-mapped and only its outermost fields are walked. A layer is parsed when its weights are requested, so
opening a network never holds the whole file several times. Source of the fields: Caffe's public caffe.proto.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sgsdump.errors import ModelError
from sgsdump.files.bounded_read import open_file, reading
from sgsdump.files.protobuf_wire import BYTES, WireError, fields
from sgsdump.models.caffe.schema import messages

PROTOBUF_LIMIT = 2**31 - 1
FLOAT16 = 2


class Form(NamedTuple):
    """Encoding of a layer in one of the two forms of a caffemodel: message, and fields of name and blobs."""

    message: str
    name: int
    blobs: int


FORMS = {2: Form("WeightsV1", 4, 6), 100: Form("WeightsLayer", 1, 7)}


@dataclass(frozen=True, eq=False)
class Blob:
    """Parameters of a layer.

    shape   as in the file, None if missing
    values  flat float32
    plain   whether the file stores the values in the field ``data``, not as doubles or NVCaffe's half precision
    """

    shape: tuple[int, ...] | None
    values: np.ndarray
    plain: bool = True


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights of a caffemodel; ``layers``: name -> bytes of the layer in the file, and their form."""

    path: Path
    layers: Mapping[str, tuple[memoryview, Form]]

    def blobs(self, name: str) -> tuple[Blob, ...] | None:
        """Return the blobs of a layer in file order, or None if the file lacks the layer. Raises ModelError."""
        from google.protobuf.message import DecodeError

        if name not in self.layers:
            return None
        data, form = self.layers[name]
        where = f"{self.path}: layer {name!r}"
        try:
            message = messages()[form.message].FromString(bytes(data))
        except DecodeError:
            raise ModelError(f"{where} is damaged") from None
        return tuple(_blob(blob, where) for blob in message.blobs)

    def are_plain(self, name: str) -> bool:
        """Return whether the SDK's converter reads a layer's blobs: all are in the field ``data``."""
        return all(blob.plain for blob in self.blobs(name) or ())


def read_weights(path: Path) -> Weights:
    """Open a caffemodel of either form (V1 ``layers`` or ``layer``). Raises ModelError."""
    data = _mapped(path)
    layers: dict[str, tuple[memoryview, Form]] = {}
    try:
        for number, layer in _parts(data):
            if number in FORMS:
                name = next((value for field, value in _parts(layer) if field == FORMS[number].name), b"")
                # As in Caffe, the first layer of a name counts.
                layers.setdefault(bytes(name).decode("utf-8", "replace"), (layer, FORMS[number]))
    except WireError:
        layers = {}
    if not layers:
        raise ModelError(f"{path} {_what_it_is(bytes(data[:4096]))}")
    return Weights(path, layers)


def _mapped(path: Path) -> memoryview:
    with reading(path, ModelError):
        if not path.exists():
            raise ModelError(f"no such weight file: {path}")
        size = path.stat().st_size
        if size > PROTOBUF_LIMIT:
            raise ModelError(f"{path} has {size} bytes, more than the 2 GiB limit of a caffemodel")
        if not size:
            raise ModelError(f"{path} is empty; download it again")
        with open_file(path) as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _parts(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Return the fields of a message that hold bytes, as (number, bytes). Raises WireError."""
    return ((field.number, data[field.value : field.end]) for field in fields(data) if field.wire_type == BYTES)


def _what_it_is(head: bytes) -> str:
    if head.startswith(b"\x89HDF\r\n"):
        return "is a caffemodel in HDF5 form; save it as .caffemodel (snapshot_format: BINARYPROTO)"
    if not any(byte < 9 or 13 < byte < 32 for byte in head):
        return "is text, not a caffemodel; give the .caffemodel with --weight-file and the .prototxt as the model"
    return "is not a caffemodel, or is truncated or damaged"


def _blob(message: Any, where: str) -> Blob:
    values = _values(message, where)
    if message.HasField("shape"):
        shape: tuple[int, ...] | None = tuple(message.shape.dim)
    elif any(message.HasField(name) for name in ("num", "channels", "height", "width")):
        shape = (message.num, message.channels, message.height, message.width)
    else:
        shape = None
    if shape is not None and math.prod(shape) != values.size:
        raise ModelError(
            f"{where}: a blob has shape {list(shape)} but holds {values.size} numbers; the file is damaged"
        )
    return Blob(shape, values, not (message.raw_data or message.double_data) or bool(message.data))


def _values(message: Any, where: str) -> np.ndarray:
    if message.raw_data:
        if message.raw_data_type != FLOAT16:
            raise ModelError(f"{where} holds numbers of an unknown type {message.raw_data_type}")
        return _numbers([message.raw_data], "<f2", where)
    if message.data:
        return _numbers(message.data, "<f4", where)
    if message.double_data:
        return _numbers(message.double_data, "<f8", where)
    # Unpacked numbers are unknown fields in a schema that declares them as bytes.
    unpacked = messages()["UnpackedBlob"].FromString(message.SerializeToString())
    return np.array(unpacked.data or unpacked.double_data, dtype=np.float32)


def _numbers(chunks: Any, dtype: str, where: str) -> np.ndarray:
    data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
    if len(data) % np.dtype(dtype).itemsize:
        raise ModelError(f"{where}: a blob of {len(data)} bytes ends within a value; the file is damaged")
    return np.frombuffer(data, dtype).astype(np.float32, copy=False)
