"""Parser of the two headers of operator dumps, protobuf and nano, and of the slots that they describe.

**Protobuf**: field numbers and types follow the public ``toolkit.dumpdata.DumpData``, syntax proto3. Enums are declared
as int32 to keep numbers that no schema version knows. Strings are declared as bytes, so that a name that is not UTF-8
does not lose its tensor. Other fields (ranges of dimensions, attributes) are skipped. A parsed message needs many times
its serialised size, so the size of a header is limited.

Payloads follow in the order inputs, outputs, buffers, spaces. The general input buffers of an exception dump are an
exception: the header lists them among the inputs, but their payloads come last. They have ``input_type`` 1 and neither
type nor shape.

**Nano**, little-endian::

    uint32 magic 0x5A5A5A5A, uint32 version, then tags: uint32 tag, uint32 length, value
      tag 4     inputs: uint32 count, for each
                int32 type, int32 format, int32 address type, uint64 address, uint64 offset, uint64 size,
                uint32 length of the tags that follow: 0 dims (uint64 each), 1 dims of the original
      tag 5     outputs: uint32 count, for each
                int32 type, format, address type, original index, original type, original format, then as an input;
                tag 2 of the tags that follow: name of the original

Types have ACL numbers, formats have GE numbers. Other tags are skipped. The header does not name the operator.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.dumps.format import checked_shape
from sgsdump.dumps.formats.shared.ascend_types import (
    ACL_TYPES,
    RAW,
    Coding,
    DataType,
    ge_type,
    is_device_layout,
    layout_of,
    loader,
)
from sgsdump.errors import FormatError
from sgsdump.files.protobuf_wire import BYTES, VARINT, WireError, fields
from sgsdump.tensors.device import Origin
from sgsdump.tensors.tensor import Tensor, TensorInfo

UNDEFINED = "undefined"
MOST_BYTES = 2**22
MOST_FIELDS = 10_000
_NO_TENSOR = "it holds no tensor: its header lists none"

_WIRE_TYPES = {1: BYTES, 2: VARINT, **dict.fromkeys(range(3, 10), BYTES)}
_GENERAL_INPUT = 1
_SHOWN_BYTES = 12_800
# NUMBER TYPE NAME of each field; * marks repeated fields.
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

NANO_MAGIC = b"\x5a\x5a\x5a\x5a"
_NANO_HEAD = struct.Struct("<4sI")
_TAG = struct.Struct("<II")
_COUNT = struct.Struct("<I")
_INPUTS, _OUTPUTS = 4, 5
# data_type, format, address_type; address, offset, size; size of the following tags in bytes.
_INPUT = struct.Struct("<iiiQQQI")
# … address_type, original_index, original_data_type, original_format; …
_OUTPUT = struct.Struct("<iiiiiiQQQI")
_DIMS, _ORIGINAL_DIMS = 0, 1
_MOST_SLOTS = 10_000


@dataclass(frozen=True)
class Slot:
    """One input, output, buffer or work space of an operator dump.

    kind, number  such as input 0, space 1.
    size          size of the payload in bytes.
    coding        encoding of the elements; None if unknown.
    type_name     the vendor's name of the element type.
    shape         None if the header has none; the whole payload is then one dimension.
    of_graph      False for work spaces, L1 buffers and argument buffers, which are not tensors of the graph.
    offset        offset of the payload in the file.
    """

    kind: str
    number: int
    size: int
    coding: Coding | None = RAW
    type_name: str = "uint8"
    shape: tuple[int, ...] | None = None
    layout: str | None = None
    origin: Origin | None = None
    of_graph: bool = True
    offset: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether the slot is an input or output that was not dumped: no type, no shape, no bytes."""
        return not self.size and self.shape is None and self.type_name == UNDEFINED


def slots_of(header: bytes, notes: list[str]) -> tuple[str, list[Slot]]:
    """Return the operator's name ("" if absent) and its slots in payload order.

    Raises FormatError without the file's name.
    """
    return _nano_slots(header) if is_nano(header) else _proto_slots(header, notes)


def placed(slots: Iterable[Slot], start: int, end: int, notes: list[str]) -> Iterator[Slot]:
    """Yield the slots with offsets; payloads are consecutive from byte ``start``.

    Surplus bytes before ``end`` are noted. Raises FormatError if bytes are missing.
    """
    offset = start
    for slot in slots:
        if slot.size > end - offset:
            where = f"{slot.kind} {slot.number}"
            raise FormatError(
                f"its {where} has {slot.size} bytes, but only {end - offset} bytes are left in the "
                "file. Check whether the file was cut off"
            )
        yield replace(slot, offset=offset)
        offset += slot.size
    if offset < end:
        notes.append(f"ignored {end - offset} bytes after the last tensor; the file may have been written twice")


def tensor_of(slot: Slot, path: Path, name: str, op_type: str, notes: list[str]) -> Tensor:
    """Return the tensor of a placed slot; note irregularities.

    If the payload is longer than the shape, the first elements count. If it is shorter, ``raw`` returns the available
    elements and ``stored`` raises FormatError.
    """
    coding, shape = slot.coding, slot.shape
    if coding is None:
        of_shape = "" if shape is None else f" of shape {list(shape)}"
        notes.append(f"tensor {name!r} holds {slot.type_name}{of_shape}, read as {slot.size} raw bytes")
        coding, shape = RAW, None
    if shape is None:
        shape = (coding.fit(slot.size),)
    count = math.prod(shape)
    if coding.size(count) > slot.size:
        notes.append(f"tensor {name!r} holds {slot.size} bytes, but its shape {list(shape)} needs {coding.size(count)}")
        count = coding.fit(slot.size)
    elif coding.bits == 4 and slot.size == count > 1:
        notes.append(f"tensor {name!r} has one byte per {slot.type_name} element; it is read as two elements per byte")
    info = TensorInfo(name, shape, np.dtype(coding.dtype), slot.layout, None, op_type, slot.origin)
    return Tensor(info, loader(path, coding, count, slot.offset))


@cache
def messages() -> dict[str, Any]:
    """Return the classes of the protobuf messages by name."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="sgsdump/ascend.proto", package="sgsdump.ascend", syntax="proto3")
    field_types = descriptor_pb2.FieldDescriptorProto.Type
    for name, table in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for line in filter(None, map(str.strip, re.split(r"[;\n]", table))):
            number, kind, field_name = line.split()
            field = message.field.add(name=field_name, number=int(number), label=3 if kind.endswith("*") else 1)
            kind = kind.removesuffix("*")
            if kind in _MESSAGES:
                field.type_name = f".sgsdump.ascend.{kind}"
            field.type = field_types.Value("TYPE_MESSAGE" if kind in _MESSAGES else f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    types = pool.FindFileByName(file.name).message_types_by_name
    return {name: message_factory.GetMessageClass(types[name]) for name in _MESSAGES}


def parse(data: bytes) -> Any:
    """Parse the DumpData message of a header. Raises FormatError without the file's name."""
    from google.protobuf.message import DecodeError

    if len(data) > MOST_BYTES:
        raise FormatError(f"its header has {len(data)} bytes, more than the limit of {MOST_BYTES}")
    if not begins_like_proto(data):
        raise FormatError("its header is damaged: not the protobuf message of an operator dump")
    try:
        return messages()["DumpData"].FromString(data)
    except DecodeError as error:
        raise FormatError(f"its header is damaged: {' '.join(str(error).split())}") from None


def begins_like_proto(data: bytes) -> bool:
    """Return whether the first (or all) bytes of a header are at most MOST_FIELDS fields of a DumpData."""
    count = 0
    try:
        for count, field in enumerate(fields(data, cut=True), 1):
            if _WIRE_TYPES.get(field.number) != field.wire_type or count > MOST_FIELDS:
                return False
    except WireError:
        return False
    return count > 0


def is_nano(header: bytes) -> bool:
    """Return whether a header begins like the header of a nano device."""
    return header.startswith(NANO_MAGIC)


def _proto_slots(header: bytes, notes: list[str]) -> tuple[str, list[Slot]]:
    dump = parse(header)
    if dump.dfx_message:
        notes.append(f"the device says: {_text(dump.dfx_message)}")
    inline = sum(bool(item.data) for item in (*dump.input, *dump.output, *dump.buffer, *dump.space))
    if inline:
        notes.append(f"left out: values of {inline} tensors inside the header")
    inputs = [_proto_slot("input", number, item) for number, item in enumerate(dump.input)]
    slots = [slot for slot in inputs if slot.of_graph]
    slots += [_proto_slot("output", number, item) for number, item in enumerate(dump.output)]
    for kind, items in (("buffer", dump.buffer), ("space", dump.space)):
        slots += [Slot(kind, number, item.size, of_graph=False) for number, item in enumerate(items)]
    general = [slot for slot in inputs if not slot.of_graph]
    if general:
        notes.append("exception dump: the argument buffers among the inputs are stored last in the file")
    if not slots and not general:
        raise FormatError(_NO_TENSOR)
    return _text(dump.op_name), slots + general


def _proto_slot(kind: str, number: int, item: Any) -> Slot:
    shape = checked_shape(item.shape.dim)
    if kind == "input" and item.input_type == _GENERAL_INPUT and not item.data_type and not shape:
        return Slot(kind, number, item.size, of_graph=False)
    name, coding = ge_type(item.data_type)
    layout = layout_of(item.format, len(shape))
    return Slot(kind, number, item.size, coding, name, shape or None, layout, _origin(item, shape, layout))


def _origin(item: Any, shape: tuple[int, ...], layout: str | None) -> Origin | None:
    """Return the logical tensor if the stored layout differs; its layout is known only for outputs with original_op."""
    logical = checked_shape(item.original_shape.dim)
    if not logical or not (is_device_layout(layout) or logical != shape):
        return None
    named = "original_op" in item.DESCRIPTOR.fields_by_name and item.HasField("original_op")
    return Origin(logical, layout_of(item.original_op.format, len(logical)) if named else None, max(item.sub_format, 1))


def _text(data: bytes) -> str:
    return " ".join(data[:_SHOWN_BYTES].decode("utf-8", "backslashreplace").split())


def _nano_slots(header: bytes) -> tuple[str, list[Slot]]:
    if len(header) < _NANO_HEAD.size:
        raise FormatError("its header ends after the magic number")
    slots = [
        slot
        for tag, value in _tags(header[_NANO_HEAD.size :])
        if tag in (_INPUTS, _OUTPUTS)
        for slot in _slots_of_tag(tag, value)
    ]
    if not slots:
        raise FormatError(_NO_TENSOR)
    return "", sorted(slots, key=lambda slot: slot.kind != "input")


def _slots_of_tag(tag: int, value: bytes) -> Iterator[Slot]:
    kind, layout = ("input", _INPUT) if tag == _INPUTS else ("output", _OUTPUT)
    offset = _COUNT.size
    if len(value) < offset:
        raise FormatError(f"its header is damaged: the number of {kind}s is missing")
    count = _COUNT.unpack_from(value)[0]
    for number in range(count):
        if number == _MOST_SLOTS or len(value) - offset < layout.size:
            raise FormatError(f"its header is damaged: it declares {count} {kind}s but has {number}")
        facts = layout.unpack_from(value, offset)
        tags = value[offset + layout.size : offset + layout.size + facts[-1]]
        if len(tags) < facts[-1]:
            raise FormatError(f"its header is damaged: {kind} {number} ends too early")
        offset += layout.size + facts[-1]
        yield _nano_slot(kind, number, facts, dict(_tags(tags)))


def _nano_slot(kind: str, number: int, facts: tuple[int, ...], tags: dict[int, bytes]) -> Slot:
    shape, logical = (_dims(tags.get(tag, b"")) for tag in (_DIMS, _ORIGINAL_DIMS))
    name, coding = ACL_TYPES.get(facts[0]) or DataType(f"type {facts[0]}", None)
    origin = None
    if logical and logical != shape:
        origin = Origin(logical, layout_of(facts[5], len(logical)) if kind == "output" else None)
    return Slot(kind, number, facts[-2], coding, name, shape or None, layout_of(facts[1], len(shape)), origin)


def _dims(value: bytes) -> tuple[int, ...]:
    return checked_shape(struct.unpack(f"<{len(value) // 8}Q", value[: len(value) // 8 * 8]))


def _tags(data: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset < len(data):
        if len(data) - offset < _TAG.size:
            raise FormatError("its header is damaged: it ends inside a tag")
        tag, size = _TAG.unpack_from(data, offset)
        offset += _TAG.size
        if size > len(data) - offset:
            raise FormatError(
                f"its header is damaged: tag {tag} needs {size} bytes, but only {len(data) - offset} bytes are left"
            )
        yield tag, data[offset : offset + size]
        offset += size
