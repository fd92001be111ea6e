"""Operator dump files made byte by byte, from the specification and not through the reader's own schema."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

ND, NCHW, NC1HWC0, FRACTAL_Z, FRACTAL_NZ = 2, 0, 3, 4, 29
FLOAT, FLOAT16, INT8, UINT8, INT32, STRING, INT4, UINT1 = 1, 2, 3, 4, 7, 13, 28, 29


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value) if value else b""


def message(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def shape(field: int, sizes: Sequence[int] | None) -> bytes:
    return b"" if sizes is None else message(field, message(1, b"".join(map(varint, sizes))) if sizes else b"")


@dataclass(frozen=True)
class Item:
    """An input or output: its header fields, and the bytes written for it."""

    data: bytes
    type: int = FLOAT
    sizes: Sequence[int] | None = ()
    format: int = ND
    original: Sequence[int] | None = None
    original_format: int | None = None
    sub_format: int = 0
    input_type: int = 0
    size: int | None = None

    def header(self, is_input: bool) -> bytes:
        size = len(self.data) if self.size is None else self.size
        head = number(1, self.type) + number(2, self.format) + shape(3, self.sizes)
        if is_input:
            tail = number(5, size) + shape(6, self.original) + number(7, self.sub_format)
            return head + tail + number(11, self.input_type)
        of = b"" if self.original_format is None else message(4, message(1, b"conv") + number(4, self.original_format))
        return head + of + number(6, size) + shape(7, self.original) + number(8, self.sub_format)


def header(
    inputs: Iterable[Item] = (),
    outputs: Iterable[Item] = (),
    name: bytes = b"add",
    buffers: Iterable[bytes] = (),
    spaces: Iterable[bytes] = (),
    attributes: Iterable[tuple[bytes, bytes]] = (),
    message_of_device: bytes = b"",
) -> bytes:
    parts = [message(1, b"2.0"), number(2, 1_700_000_000_123_456)]
    parts += [message(3, item.header(False)) for item in outputs]
    parts += [message(4, item.header(True)) for item in inputs]
    parts += [message(5, number(3, len(data))) for data in buffers]
    parts += [message(6, name)] if name else []
    parts += [message(7, message(1, key) + message(2, value)) for key, value in attributes]
    parts += [message(8, number(3, len(data))) for data in spaces]
    parts += [message(9, message_of_device)] if message_of_device else []
    return b"".join(parts)


def operator_file(
    inputs: Sequence[Item] = (),
    outputs: Sequence[Item] = (),
    name: bytes = b"add",
    buffers: Sequence[bytes] = (),
    spaces: Sequence[bytes] = (),
    **more: object,
) -> bytes:
    head = header(inputs, outputs, name, buffers, spaces, **more)  # type: ignore[arg-type]
    usual = [item.data for item in inputs if item.input_type != 1]
    last = [item.data for item in inputs if item.input_type == 1]
    payload = b"".join([*usual, *(item.data for item in outputs), *buffers, *spaces, *last])
    return struct.pack("<Q", len(head)) + head + payload


def tag(number: int, value: bytes) -> bytes:
    return struct.pack("<II", number, len(value)) + value


def nano_item(is_input: bool, type: int, sizes: Sequence[int], size: int, original: Sequence[int] = ()) -> bytes:
    tags = tag(0, struct.pack(f"<{len(sizes)}Q", *sizes)) + tag(1, struct.pack(f"<{len(original)}Q", *original))
    head = struct.pack("<iii", type, ND, 3) if is_input else struct.pack("<iiiiii", type, ND, 3, 0, type, NCHW)
    return head + struct.pack("<QQQI", 0x1000, 0, size, len(tags)) + tags


def nano_file(inputs: Sequence[bytes], outputs: Sequence[bytes], payload: bytes, extra: bytes = b"") -> bytes:
    head = struct.pack("<4sI", b"ZZZZ", 0) + extra
    head += tag(4, struct.pack("<I", len(inputs)) + b"".join(inputs))
    head += tag(5, struct.pack("<I", len(outputs)) + b"".join(outputs))
    return struct.pack("<Q", len(head)) + head + payload
