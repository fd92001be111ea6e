"""Messages walked field by field, against protobuf's own writer, and any other bytes refused."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, UninterpretedOption
from hypothesis import given
from hypothesis import strategies as st

from sgsdump.files.protobuf_wire import BYTES, FIXED64, VARINT, Field, WireError, fields, read_varint, varint

OPTION = UninterpretedOption(identifier_value="é", positive_int_value=2**64 - 1, negative_int_value=-1, double_value=1)
WIRE = OPTION.SerializeToString()


def test_the_fields_that_protobuf_wrote():
    name, positive, negative, double = fields(WIRE)
    assert [(field.number, field.wire_type) for field in (name, positive, negative, double)] == [
        *((3, BYTES), (4, VARINT), (5, VARINT), (6, FIXED64)),
    ]
    assert WIRE[name.value : name.end].decode() == "é" and (name.start, double.end) == (0, len(WIRE))
    assert read_varint(WIRE, positive.value, len(WIRE)) == (2**64 - 1, positive.end)


def test_a_message_in_a_message():
    file = FileDescriptorProto(name="x")
    file.message_type.add(name="inner")
    data = memoryview(file.SerializeToString())
    inner = list(fields(data))[1]
    assert [bytes(data[field.value : field.end]) for field in fields(data, inner.value, inner.end)] == [b"inner"]


@given(st.integers(0, 2**64 - 1))
def test_numbers_are_read_as_written(number):
    assert read_varint(varint(number), 0, 10) == (number, len(varint(number)))


@pytest.mark.parametrize(
    "data", [b"\x0a\x05abc", b"\x0b", b"\x00\x00", b"\x0a", b"\x08" + b"\xff" * 11, b"\x09abc", b"\x80"]
)
def test_what_is_not_a_message_is_refused(data):
    with pytest.raises(WireError):
        list(fields(data))


@given(st.binary(max_size=40))
def test_any_bytes_end_in_fields_that_join_or_in_an_error(data):
    offset = 0
    try:
        for field in fields(data):
            assert field.start == offset < field.value <= field.end
            offset = field.end
    except WireError:
        return
    assert offset == len(data)


@pytest.mark.parametrize("size", range(len(WIRE)))
def test_a_beginning_has_the_fields_that_begin_in_it(size):
    whole = list(fields(WIRE))
    for field, full in zip(fields(WIRE[:size], cut=True), whole):
        assert field[:4] == full[:4] and field.end == min(full.end, size)
    complete = sum(field.end <= size for field in whole)
    assert complete <= len(list(fields(WIRE[:size], cut=True))) <= complete + 1
    with pytest.raises(WireError):
        list(fields(b"\x08" + b"\xff" * 11, cut=True))


def test_a_field_cut_in_its_value():
    assert list(fields(b"\x0a\x05abc", cut=True)) == [Field(1, BYTES, 0, 2, 5)]
