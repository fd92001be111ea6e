"""From the header that nano devices write (tags, lengths, values) to its slots; see ``formats/ascend_nano.py``."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from sgsdump.dumps.formats.ascend.slot import Slot, checked_shape
from sgsdump.dumps.formats.ascend.types.acl_types import DATA_TYPES
from sgsdump.dumps.formats.ascend.types.ge_types import DataType, layout_of
from sgsdump.errors import FormatError
from sgsdump.tensors.types import Origin

MAGIC = b"\x5a\x5a\x5a\x5a"
HEAD = struct.Struct("<4sI")
TAG = struct.Struct("<II")
COUNT = struct.Struct("<I")
INPUTS, OUTPUTS = 4, 5
# data_type, format, address_type; address, offset, size; bytes of the tags behind.
INPUT = struct.Struct("<iiiQQQI")
# … address_type, original_index, original_data_type, original_format; …
OUTPUT = struct.Struct("<iiiiiiQQQI")
DIMS, ORIGINAL_DIMS, ORIGINAL_NAME = 0, 1, 2
MOST = 10_000


def recognises(header: bytes) -> bool:
    """Whether a header, or its beginning, is a nano device's."""
    return header.startswith(MAGIC)


def slots_of(header: bytes, notes: list[str]) -> tuple[str, list[Slot]]:
    """The operator's name, which this header never says, and the slots. Raises FormatError, without the file's name."""
    if len(header) < HEAD.size:
        raise FormatError("its header ends after the magic number")
    slots: list[Slot] = []
    for tag, value in _tags(header[HEAD.size :]):
        if tag in (INPUTS, OUTPUTS):
            slots += _slots(tag, value)
    if not slots:
        raise FormatError("it holds no tensor: its header names none")
    return "", sorted(slots, key=lambda slot: slot.kind != "input")


def _slots(tag: int, value: bytes) -> Iterator[Slot]:
    kind, layout = ("input", INPUT) if tag == INPUTS else ("output", OUTPUT)
    at = COUNT.size
    if len(value) < at:
        raise FormatError(f"its header is damaged: no number of {kind}s")
    count = COUNT.unpack_from(value)[0]
    for number in range(count):
        if number == MOST or len(value) - at < layout.size:
            raise FormatError(f"its header is damaged: it says {count} {kind}s and has {number}")
        fields = layout.unpack_from(value, at)
        tags = value[at + layout.size : at + layout.size + fields[-1]]
        if len(tags) < fields[-1]:
            raise FormatError(f"its header is damaged: {kind} {number} ends too early")
        at += layout.size + fields[-1]
        yield _slot(kind, number, fields, dict(_tags(tags)))


def _slot(kind: str, number: int, fields: tuple[int, ...], tags: dict[int, bytes]) -> Slot:
    shape, logical = (_dims(tags.get(tag, b"")) for tag in (DIMS, ORIGINAL_DIMS))
    name, coding = DATA_TYPES.get(fields[0]) or DataType(f"type {fields[0]}", None)
    origin = None
    if logical and logical != shape:
        origin = Origin(logical, layout_of(fields[5], len(logical)) if kind == "output" else None)
    return Slot(kind, number, fields[-2], coding, name, shape or None, layout_of(fields[1], len(shape)), origin)


def _dims(value: bytes) -> tuple[int, ...]:
    return checked_shape(struct.unpack(f"<{len(value) // 8}Q", value[: len(value) // 8 * 8]))


def _tags(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        if len(data) - at < TAG.size:
            raise FormatError("its header is damaged: it ends inside a tag")
        tag, size = TAG.unpack_from(data, at)
        at += TAG.size
        if size > len(data) - at:
            raise FormatError(f"its header is damaged: tag {tag} says {size} bytes, {len(data) - at} are left")
        yield tag, data[at : at + size]
        at += size
