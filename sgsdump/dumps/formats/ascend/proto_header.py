"""From the protobuf header of an operator dump to its slots, in the order in which their payloads lie in the file.

The order is inputs, outputs, buffers, spaces; but the general input buffers of an exception dump, which stand among the
inputs in the header, are written last of all. They are recognised by ``input_type`` 1 without type and shape.
"""

from __future__ import annotations

from typing import Any

from sgsdump.dumps.formats.ascend import dump_proto
from sgsdump.dumps.formats.ascend.slot import Slot, checked_shape
from sgsdump.dumps.formats.ascend.types.ge_types import data_type, is_device_layout, layout_of
from sgsdump.errors import FormatError
from sgsdump.tensors.types import Origin

GENERAL_INPUT = 1
SHOWN = 200


def slots_of(header: bytes, notes: list[str]) -> tuple[str, list[Slot]]:
    """The operator's name ("" when not given) and its slots. Raises FormatError, without the file's name."""
    dump = dump_proto.parse(header)
    _tell(dump, notes)
    inputs = [_slot("input", number, each) for number, each in enumerate(dump.input)]
    outputs = [_slot("output", number, each) for number, each in enumerate(dump.output)]
    slots = [slot for slot in inputs if slot.of_graph]
    slots += outputs
    slots += [_bytes("buffer", number, each) for number, each in enumerate(dump.buffer)]
    slots += [_bytes("space", number, each) for number, each in enumerate(dump.space)]
    slots += [slot for slot in inputs if not slot.of_graph]
    if not slots:
        raise FormatError("it holds no tensor: its header names none")
    if len(inputs) > sum(slot.of_graph for slot in inputs):
        notes.append("an exception dump: argument buffers among the inputs lie behind everything else in the file")
    return _text(dump.op_name), slots


def _slot(kind: str, number: int, of: Any) -> Slot:
    shape = checked_shape(of.shape.dim)
    if kind == "input" and of.input_type == GENERAL_INPUT and not of.data_type and not shape:
        return Slot(kind, number, of.size, of_graph=False)
    name, coding = data_type(of.data_type)
    layout = layout_of(of.format, len(shape))
    return Slot(kind, number, of.size, coding, name, shape or None, layout, _origin(of, shape, layout))


def _origin(of: Any, shape: tuple[int, ...], layout: str | None) -> Origin | None:
    """The logical tensor, where the values lie otherwise; its layout is known of outputs that name their original."""
    logical = checked_shape(of.original_shape.dim)
    if not logical or not (is_device_layout(layout) or logical != shape):
        return None
    named = "original_op" in of.DESCRIPTOR.fields_by_name and of.HasField("original_op")
    return Origin(logical, layout_of(of.original_op.format, len(logical)) if named else None, max(of.sub_format, 1))


def _bytes(kind: str, number: int, of: Any) -> Slot:
    return Slot(kind, number, of.size, of_graph=False)


def _tell(dump: Any, notes: list[str]) -> None:
    if dump.dfx_message:
        notes.append(f"the device says: {_text(dump.dfx_message)}")
    inline = sum(bool(each.data) for each in (*dump.input, *dump.output, *dump.buffer, *dump.space))
    if inline:
        notes.append(f"{inline} tensors have values inside the header, which are left out")


def _text(data: bytes) -> str:
    return " ".join(data[: 64 * SHOWN].decode("utf-8", "backslashreplace").split())
