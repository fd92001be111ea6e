"""Reader of one ONNX ``TensorProto`` in a file, as untrusted input, without the onnx library.

::

    TensorProto := dims (1, int64*) | data_type (2) | float_data (4) | int32_data (5) | string_data (6)
                 | int64_data (7) | name (8) | raw_data (9) | double_data (10) | uint64_data (11)
                 | doc_string (12) | external_data (13) | data_location (14) | metadata_props (16)

The values are in ``raw_data`` (little-endian, in C order, without gaps for types of six bits or fewer) or in
the field of their type. ``int32_data`` also holds the bits of types with 16 bits or fewer. Text, and values in other
files, are refused. The file is walked at opening, and values are read on request.

Source: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto.
"""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sgsdump.dumps.format import checked_shape
from sgsdump.errors import FormatError, NotATensor
from sgsdump.files.mapped import MappedFile, Source, map_file
from sgsdump.files.protobuf_wire import (
    BYTES,
    FIXED32,
    FIXED64,
    LONGEST_VARINT,
    VARINT,
    Buffer,
    WireError,
    fields,
    read_varint,
)
from sgsdump.tensors.dtypes import KNOWN, bits, carrier, name_of, restored
from sgsdump.tensors.tensor import Tensor, TensorInfo

_TYPES = dict(
    enumerate(
        (
            "float32 uint8 int8 uint16 int16 int32 int64 str bool float16 float64 uint32 uint64 complex64 complex128 "
            "bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz uint4 int4 float4_e2m1fn "
            "float8_e8m0fnu uint2 int2 float6_e2m3fn float6_e3m2fn"
        ).split(),
        1,
    )
)
_TEXT = 8
_DIMS, _TYPE, _SEGMENT, _STRINGS, _NAME, _RAW, _LOCATION = 1, 2, 3, 6, 8, 9, 14
_FLOAT, _INT32, _INT64, _DOUBLE, _UINT64 = 4, 5, 7, 10, 11
# Wire types of each field; a repeated number is packed (BYTES) or not.
_WIRE = {
    **{_DIMS: (VARINT, BYTES), _TYPE: (VARINT,), _SEGMENT: (BYTES,), _FLOAT: (FIXED32, BYTES)},
    **{_INT32: (VARINT, BYTES), _STRINGS: (BYTES,), _INT64: (VARINT, BYTES), _NAME: (BYTES,), _RAW: (BYTES,)},
    **{_DOUBLE: (FIXED64, BYTES), _UINT64: (VARINT, BYTES), 12: (BYTES,), 13: (BYTES,), _LOCATION: (VARINT,)},
    16: (BYTES,),
}
_FIELD_OF = {
    **dict.fromkeys(("float32", "complex64"), _FLOAT),
    **dict.fromkeys(("float64", "complex128"), _DOUBLE),
    "int64": _INT64,
    **dict.fromkeys(("uint32", "uint64"), _UINT64),
}
_MOST_NAME, _MOST_SPANS = 4096, 1 << 20


class Span(NamedTuple):
    """Bytes of the file that hold values, without key and length."""

    offset: int
    size: int


def is_proto(head: bytes) -> bool:
    """Return whether a file may be a TensorProto, from its first bytes: only known fields, the shape and type first."""
    numbers = []
    try:
        for field in fields(head, cut=True):
            if field.wire_type not in _WIRE.get(field.number, ()):
                return False
            if field.number == _TYPE and not 0 < read_varint(head, field.value, field.end)[0] <= len(_TYPES):
                return False
            numbers.append(field.number)
    except WireError:
        return False
    return _TYPE in numbers and numbers[0] in (_DIMS, _TYPE) and bool({_RAW, *_values_fields()} & set(numbers))


def _values_fields() -> tuple[int, ...]:
    return _FLOAT, _INT32, _INT64, _DOUBLE, _UINT64


def read(path: Path) -> tuple[str, Tensor]:
    """Return the name in the file ("" if there is none) and the tensor; the tensor has this name.

    Raises FormatError for damage, NotATensor for a file without numbers.
    """
    data = map_file(path)
    spans: dict[int, list[Span]] = {}
    sizes: list[int] = []
    name, number = "", 0
    try:
        for field in fields(data):
            if field.wire_type not in _WIRE.get(field.number, (field.wire_type,)):
                raise WireError(f"the wire type of the field at byte {field.start} does not match the field number")
            if field.number == _DIMS:
                sizes += _sizes(data, field.value, field.end, field.wire_type == BYTES)
            elif field.number == _TYPE:
                number = read_varint(data, field.value, field.end)[0]
            elif field.number == _NAME:
                name = bytes(data[field.value : min(field.end, field.value + _MOST_NAME)]).decode("utf-8", "replace")
            elif field.number == _LOCATION and read_varint(data, field.value, field.end)[0]:
                raise NotATensor(f"{path} stores its values in another file")
            elif field.number in (_SEGMENT, _STRINGS):
                raise NotATensor(f"{path} holds text, part of a tensor, or several tensors; one whole tensor is needed")
            elif field.number in (_RAW, *_values_fields()):
                spans.setdefault(field.number, []).append(Span(field.value, field.end - field.value))
            if len(sizes) > 64 or len(spans.get(field.number, ())) > _MOST_SPANS:
                raise WireError("it has too many dimensions or too many fields with values")
    except WireError as error:
        raise FormatError(f"{path} is damaged or not a TensorProto: {error}") from None
    if number == _TEXT:
        raise NotATensor(f"{path} holds text")
    dtype = KNOWN.get(_TYPES.get(number, ""))
    if dtype is None:
        raise FormatError(f"{path} is not a TensorProto: it has the unknown element type {number}")
    try:
        shape = checked_shape(sizes)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None
    field_number = _RAW if _RAW in spans else _FIELD_OF.get(name_of(dtype), _INT32)
    values = spans.get(field_number, [])
    _check(values, field_number, dtype, math.prod(shape), path)
    return name, Tensor(
        TensorInfo(name, shape, dtype), partial(_load, data.source, values, field_number, dtype, shape, path)
    )


def _sizes(data: Buffer, start: int, end: int, is_packed: bool) -> list[int]:
    sizes: list[int] = []
    while start < end and len(sizes) <= 64:
        size, start = read_varint(data, start, end)
        sizes.append(size)
        if not is_packed:
            break
    return sizes


def _check(spans: list[Span], number: int, dtype: np.dtype, count: int, path: Path) -> None:
    """Raise FormatError if the values cannot be as many as the shape says."""
    size = sum(span.size for span in spans)
    if number == _RAW:
        expected = -(-count * bits(dtype) // 8)
        fits = size == expected
    elif number in (_FLOAT, _DOUBLE):
        expected = count * (dtype.itemsize if name_of(dtype) != "float16" else 2)
        fits = size == expected
    else:
        expected, fits = count, _values_in_varints(count, dtype) <= size <= count * LONGEST_VARINT
    if not fits:
        raise FormatError(f"{path} is cut off or damaged: {size} bytes of values, but its shape needs {expected}")


def _values_in_varints(count: int, dtype: np.dtype) -> int:
    """Return the number of values in a list of numbers; those of two or four bits share a number."""
    return -(-count * bits(dtype) // 8) if 8 % bits(dtype) == 0 else count


def _load(
    source: Source, spans: list[Span], number: int, dtype: np.dtype, shape: tuple[int, ...], path: Path
) -> np.ndarray:
    data = b"".join(source.read(span.offset, span.size).tobytes() for span in spans)
    count = math.prod(shape)
    if number in (_RAW, _FLOAT, _DOUBLE):
        flat = np.frombuffer(data, np.uint8)
    else:
        flat = _of_varints(np.frombuffer(data, np.uint8), number, dtype)
    if bits(dtype) < 8:
        is_packed = number == _RAW or 8 % bits(dtype) == 0
        values = _signed(_unpacked(flat, bits(dtype))[:count] if is_packed else flat, dtype)
    else:
        whole = flat[: flat.size - flat.size % dtype.itemsize]
        values = restored(whole.view(carrier(dtype).newbyteorder("<")), dtype)
    if values.size != count:
        raise FormatError(f"{path} is damaged: it has {values.size} values, but its shape needs {count}")
    return values.reshape(shape)


def _of_varints(data: np.ndarray, number: int, dtype: np.dtype) -> np.ndarray:
    """Return the bytes of the values of a list of varints."""
    ends = np.flatnonzero(data < 128)
    starts = np.concatenate([[0], ends[:-1] + 1]).astype(np.int64)[: ends.size]
    lengths = ends - starts + 1
    values = np.zeros(ends.size, np.uint64)
    for place in range(min(LONGEST_VARINT, int(lengths.max(initial=0)))):
        long = lengths > place
        values[long] |= (data[starts[long] + place].astype(np.uint64) & np.uint64(127)) << np.uint64(7 * place)
    size = 1 if bits(dtype) < 8 else dtype.itemsize
    return np.ascontiguousarray(values.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :size]).reshape(-1)


def _unpacked(data: np.ndarray, size: int) -> np.ndarray:
    """Return the values of a few bits each, the lowest bits of a byte first."""
    ordered = np.unpackbits(data, bitorder="little")
    each = ordered[: ordered.size - ordered.size % size].reshape(-1, size)
    return np.packbits(each, axis=1, bitorder="little").reshape(-1)


def _signed(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return values of a few bits in their element type."""
    if name_of(dtype).startswith("int"):
        half = 1 << (bits(dtype) - 1)
        return restored((values.astype(np.int8) ^ half) - half, dtype)
    return restored(values.astype(carrier(dtype)), dtype)


def names_in_model(path: Path) -> tuple[list[str], list[str]]:
    """Return the names of the inputs, without weights, and of the outputs of an ONNX model; empty for other files."""
    try:
        data = map_file(path)
        graph = next((field for field in fields(data) if field.number == 7 and field.wire_type == BYTES), None)
        names: dict[int, list[str]] = {5: [], 11: [], 12: []}
        for field in fields(data, graph.value, graph.end) if graph else ():
            if field.number in names and field.wire_type == BYTES:
                names[field.number].append(_name_in(data, field.value, field.end, 8 if field.number == 5 else 1))
    except (WireError, FormatError):
        return [], []
    weights = set(names[5])
    return [name for name in names[11] if name not in weights], names[12]


def _name_in(data: MappedFile, start: int, end: int, number: int) -> str:
    for field in fields(data, start, end):
        if field.number == number and field.wire_type == BYTES:
            return bytes(data[field.value : min(field.end, field.value + _MOST_NAME)]).decode("utf-8", "replace")
    return ""
