"""A caffemodel: the learned numbers of every layer, by the layer's name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.caffe.schema import messages
from sgsdump.errors import ModelError

PROTOBUF_LIMIT = 2**31 - 1
FLOAT16 = 2


@dataclass(frozen=True, eq=False)
class Blob:
    """``shape`` as the file gives it (None when it gives none); ``values`` are flat float32."""

    shape: tuple[int, ...] | None
    values: np.ndarray


@dataclass(frozen=True, eq=False)
class Weights:
    path: Path
    blobs: Mapping[str, tuple[Blob, ...]]


def read_weights(path: Path) -> Weights:
    """Read a caffemodel of either form (V1 ``layers`` or ``layer``). Raises ModelError."""
    net = _parsed(path)
    blobs: dict[str, tuple[Blob, ...]] = {}
    for layer in [*net.layers, *net.layer]:
        name = layer.name.decode("utf-8", "replace")
        # As Caffe does, the first layer of a name counts.
        blobs.setdefault(name, tuple(_blob(blob, f"{path}: layer {name!r}") for blob in layer.blobs))
        layer.ClearField("blobs")
    return Weights(path, blobs)


def _parsed(path: Path) -> Any:
    from google.protobuf.message import DecodeError

    try:
        size = path.stat().st_size
        if size > PROTOBUF_LIMIT:
            raise ModelError(f"{path} has {size} bytes, more than the 2 GiB of a caffemodel")
        data = path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"no such weight file: {path}") from None
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from None
    if data.startswith(b"\x89HDF\r\n"):
        raise ModelError(f"{path} is a caffemodel in HDF5 form; save it as .caffemodel (snapshot_format: BINARYPROTO)")
    try:
        net = messages()["WeightsNet"].FromString(data)
    except DecodeError:
        net = None
    if net is None or not (net.layer or net.layers):
        raise ModelError(f"{path} {_what_it_is(data)}")
    return net


def _what_it_is(data: bytes) -> str:
    if not data:
        return "is empty; was its download cut off?"
    head = data[:4096]
    if not any(byte < 9 or 13 < byte < 32 for byte in head):
        return "is text, so it is no caffemodel; give the .caffemodel with --weight_file and the .prototxt as the model"
    return "is not a caffemodel, or it is cut off or damaged"


def _blob(message: Any, where: str) -> Blob:
    values = _values(message, where)
    if message.HasField("shape"):
        shape: tuple[int, ...] | None = tuple(message.shape.dim)
    elif any(message.HasField(name) for name in ("num", "channels", "height", "width")):
        shape = (message.num, message.channels, message.height, message.width)
    else:
        shape = None
    if shape is not None and math.prod(shape) != values.size:
        raise ModelError(f"{where}: a blob of shape {list(shape)} holds {values.size} numbers; the file is damaged")
    return Blob(shape, values)


def _values(message: Any, where: str) -> np.ndarray:
    if message.raw_data:
        if message.raw_data_type != FLOAT16:
            raise ModelError(f"{where} holds numbers of an unknown kind {message.raw_data_type}")
        return _numbers([message.raw_data], "<f2", where)
    if message.data:
        return _numbers(message.data, "<f4", where)
    if message.double_data:
        return _numbers(message.double_data, "<f8", where)
    # Written one by one instead of packed, the numbers are unknown fields to a schema that has them as bytes.
    unpacked = messages()["UnpackedBlob"].FromString(message.SerializeToString())
    return np.array(unpacked.data or unpacked.double_data, dtype=np.float32)


def _numbers(chunks: Any, dtype: str, where: str) -> np.ndarray:
    data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
    if len(data) % np.dtype(dtype).itemsize:
        raise ModelError(f"{where}: a blob of {len(data)} bytes holds no whole number of values; the file is damaged")
    return np.frombuffer(data, dtype).astype(np.float32, copy=False)
