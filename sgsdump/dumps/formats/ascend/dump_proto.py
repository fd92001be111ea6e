"""The protobuf header of an Ascend operator dump: field numbers and types of the public ``toolkit.dumpdata.DumpData``.

A line of the table is ``NUMBER TYPE NAME``; a ``*`` behind the type means repeated. The syntax is proto3. Enums are
declared as int32, so that a number which no version of the schema knows stays what the file says, and texts as bytes,
so that a name which is not UTF-8 costs no tensor. Fields that are not listed are skipped: ranges of dimensions, and
attributes, the JSON of slices or what is no JSON.

A parsed message takes many times the bytes it was made of, so a header is bounded before it is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from sgsdump.errors import FormatError

MOST_BYTES = 2**22
MOST_FIELDS = 10_000
_VARINT, _BYTES = 0, 2
_WIRE_TYPES = {1: _BYTES, 2: _VARINT, **dict.fromkeys(range(3, 10), _BYTES)}

_MESSAGES = {
    "DumpData": """
        1 bytes version; 2 uint64 dump_time; 3 OpOutput* output; 4 OpInput* input; 5 OpBuffer* buffer
        6 bytes op_name; 8 Workspace* space; 9 bytes dfx_message
    """,
    "OpOutput": """
        1 int32 data_type; 2 int32 format; 3 Shape shape; 4 OriginalOp original_op; 5 bytes data; 6 uint64 size
        7 Shape original_shape; 8 int32 sub_format; 9 uint64 address; 11 uint64 offset; 12 int32 arg_index
    """,
    "OpInput": """
        1 int32 data_type; 2 int32 format; 3 Shape shape; 4 bytes data; 5 uint64 size; 6 Shape original_shape
        7 int32 sub_format; 8 uint64 address; 9 uint64 offset; 10 int32 arg_index; 11 int32 input_type
    """,
    "OpBuffer": "1 int32 buffer_type; 2 bytes data; 3 uint64 size",
    "Workspace": "1 int32 type; 2 bytes data; 3 uint64 size; 4 int32 arg_index",
    "OriginalOp": "1 bytes name; 2 uint32 output_index; 3 int32 data_type; 4 int32 format",
    "Shape": "1 uint64* dim",
}


@cache
def messages() -> dict[str, Any]:
    """The message classes by name."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="sgsdump/ascend.proto", package="sgsdump.ascend", syntax="proto3")
    for name, table in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for line in filter(None, map(str.strip, re.split(r"[;\n]", table))):
            message.field.append(_field(line))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    types = pool.FindFileByName(file.name).message_types_by_name
    return {name: message_factory.GetMessageClass(types[name]) for name in _MESSAGES}


def parse(data: bytes) -> Any:
    """The DumpData of a header. Raises FormatError, without the file's name."""
    from google.protobuf.message import DecodeError

    if len(data) > MOST_BYTES:
        raise FormatError(f"its header has {len(data)} bytes, more than any operator's")
    if not begins_like_one(data):
        raise FormatError("its header is damaged: not the protobuf message of an operator dump")
    try:
        return messages()["DumpData"].FromString(data)
    except DecodeError as error:
        raise FormatError(f"its header is damaged: {' '.join(str(error).split())}") from None


def begins_like_one(data: bytes) -> bool:
    """Whether the first bytes of a header (or all of them) are fields of a DumpData, of at most MOST_FIELDS."""
    count = 0
    for number, wire_type in _fields(data):
        count += 1
        if _WIRE_TYPES.get(number) != wire_type or count > MOST_FIELDS:
            return False
    return count > 0


def _fields(data: bytes) -> Iterator[tuple[int, int]]:
    """Number and wire type of the outermost fields, as far as ``data`` goes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        yield tag >> 3, tag & 7
        value, at = _varint(data, at)
        if tag & 7 == _BYTES:
            at += value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for byte in data[at : at + 10]:
        at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            return value, at
    return value, len(data)


def _field(line: str) -> Any:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    number, kind, name = line.split()
    field = FieldDescriptorProto(name=name, number=int(number), label=FieldDescriptorProto.LABEL_OPTIONAL)
    if kind.endswith("*"):
        kind, field.label = kind[:-1], FieldDescriptorProto.LABEL_REPEATED
    if kind in _MESSAGES:
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".sgsdump.ascend.{kind}"
    else:
        field.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
    return field
