"""The header lines against genuine ones and against their grammar."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dumps.formats.sigmastar.made import LINES, header
from hypothesis import given
from hypothesis import strategies as st

from sgsdump.dumps.formats.sigmastar.record import quant_of
from sgsdump.dumps.formats.sigmastar.record_header import (
    Header,
    binary_ending,
    dtype_of,
    format_header,
    format_size,
    holds_text,
    parse_header,
    starts_rows,
    word_of,
)
from sgsdump.errors import OutputError

GENUINE = {
    b"//in 0 s: 0.007809 z: 127 type: SGS_U8 name: data bConstant:0\nop_in[0] CONV_2D = {\n": Header(
        "in", 0, 0.007809, 127, "SGS_U8", "data", False, None, "op_in", 0, "CONV_2D"
    ),
    b"//out 0 s: 0.000239 z: 0 type: SGS_S16 name: 215 bConstant:0 shape:[3, 1, 3, 197, 64] dims:5\n"
    b"op_out[11] TRANSPOSE = {\n": Header(
        "out", 0, 0.000239, 0, "SGS_S16", "215", False, (3, 1, 3, 197, 64), "op_out", 11, "TRANSPOSE"
    ),
    b"//out 0 s: 0.000000 z: 0 type: float name: data bConstant:0 shape:[1, 20, 24, 3] dims:4\n"
    b"input[0] data = {\n": Header("out", 0, 0.0, 0, "float", "data", False, (1, 20, 24, 3), "input", 0, "data"),
}


@pytest.mark.parametrize("lines", GENUINE)
@pytest.mark.parametrize("size", [None, 0, 5760])
def test_genuine_headers(lines: bytes, size: int | None) -> None:
    tail = b"" if size is None else format_size(size)
    found = parse_header(b"xx" + lines + tail + b"payload", 2)
    header = GENUINE[lines]
    assert found == (header, size, 2 + len(lines + tail), header.op != "input")
    assert format_header(GENUINE[lines]) == lines


def test_type_words() -> None:
    words = {"float": "f4", "SGS_U8": "u1", "SGS_S8": "i1", "SGS_S16": "i2", "SGS_U16": "u2", "SGS_S32": "i4"}
    words |= {"SGS_S64": "i8", "SGS_BOOL": "?"}
    for word, dtype in words.items():
        assert dtype_of(word) == np.dtype(dtype) and word_of(np.dtype(dtype)) == word
    assert dtype_of("unknown") is None and word_of(np.dtype(np.float16)) is None


@pytest.mark.parametrize(
    "name", ["a bConstant:1", "x bConstant:0 shape:[1] dims:1", "type: float name: y", "a/b:c*?#", "", " ", "层\udcff"]
)
@pytest.mark.parametrize("shape", [None, (), (1, 2)])
def test_a_name_may_hold_anything_but_a_newline(name: str, shape: tuple[int, ...] | None) -> None:
    header = Header("out", 1, 0.5, -3, "SGS_S8", name, True, shape, "op_out", 7, "a = {")
    lines = format_header(header)
    assert parse_header(lines) == (header, None, len(lines), True)


@given(
    st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=80),
    st.integers(0, 999999),
    st.lists(st.integers(0, 99999), max_size=8),
    st.booleans(),
)
def test_what_is_formatted_parses_back(name: str, millionths: int, shape: list[int], constant: bool) -> None:
    scale = millionths / 10**6
    header = Header("in", 0, scale, 1, "X", name, constant, tuple(shape), "op_in", 3, name)
    lines = format_header(header)
    assert parse_header(lines) == (header, None, len(lines), True)


def test_loose_headers_parse_but_are_not_called_plain() -> None:
    loose = b"//out 00 s: -0.0 z: -0 type: float name: x bConstant:0 shape:[1,02] dims:9\nop_in[007] A = {\n"
    found = parse_header(loose)
    assert found is not None and not found.plain
    assert (found[0].slot, found[0].shape, found[0].op_index) == (0, (1, 2), 7)


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"//out",
        b"//out 0 s: x z: 0 type: float name: x bConstant:0\nop_out[0] A = {\n",
        b"//up 0 s: 0.0 z: 0 type",
    ],
)
def test_no_header(broken: bytes) -> None:
    assert parse_header(broken) is None


def test_what_no_line_can_hold_is_refused() -> None:
    sound = Header("out", 0, 0.0, 0, "float", "x", False, None, "op_out", 0, "A")
    for bad in ({"name": "a\nb"}, {"op_type": "a\nb"}, {"type": "two words"}, {"type": "w" * 65}, {"name": "\ud800"}):
        facts: dict[str, Any] = bad
        with pytest.raises(OutputError, match="cannot write tensor"):
            format_header(sound._replace(**facts))


def test_a_cut_header_ends_at_255_bytes() -> None:
    header = Header("in", 0, 0.0, 0, "float", "n" * 300, True, None, "op_in", 4, "CONV_2D", cut=True)
    lines = format_header(header)
    assert len(lines) == 255
    found = parse_header(lines + format_size(12))
    assert found is not None and found[1:] == (12, 255 + len(format_size(12)), False)
    assert found[0].cut and found[0].op_index is None
    assert found[0].name == "n" * (255 - len("//in 0 s: 0.000000 z: 0 type: float name: "))


def test_endings() -> None:
    assert binary_ending(b"....\n};\n", 4, 4) == b"\n};\n"
    assert binary_ending(b"....\n};\n//buffer data size: 4\n", 4, 4) == b"\n};\n//buffer data size: 4\n"
    assert binary_ending(b"....\n};\n//buffer data size: 5\n", 4, 4) == b"\n};\n"
    assert binary_ending(b"....};\n", 4, 4) == b"};\n"
    assert binary_ending(b"....//out 0", 4, 4) == binary_ending(b"....", 4, 4) == b""
    assert binary_ending(b"....\n};", 4, 4) is None


def test_text_is_told_from_binary_by_the_size() -> None:
    header = b"isFloat: 1\n//out 0 s: 0.000000 z: 0 type: float name: x bConstant:0\nop_out[0] A = {\n"
    text = b"\n1.000000, 2.000000, 3.000000, \n"
    assert holds_text(header + text + b"\n};\n")
    assert holds_text(header + format_size(12) + text + b"}\n")
    assert holds_text(header + format_size(12) + text[1:] + b"};\n")
    assert holds_text(header + format_size(0) + b"\n\n}\n")
    assert holds_text(header + format_size(0) + b"};\n" + header[11:] + format_size(12) + text[1:] + b"};\n")
    assert not holds_text(header + format_size(len(text)) + text + b"};\n")
    assert not holds_text(header + format_size(len(text)) + text)
    assert not holds_text(header + format_size(4) + b"1234\n};\n")
    assert not holds_text(header + format_size(40) + b"1234\n};\n")
    assert not holds_text(header) and not holds_text(header[:50]) and not holds_text(b"")


@pytest.mark.parametrize(
    "data, ending",
    [
        (b"", b""),
        (b"//out 0 s:", b""),
        (b"//in 0 s: ", None),
        (b"//outer 0 ", None),
        (b"//", None),
        (b"\n};\n//out 0 s:", b"\n};\n"),
    ],
)
def test_only_an_output_may_follow_a_payload_without_an_ending(data: bytes, ending: bytes | None) -> None:
    assert binary_ending(b"\x00" * 4 + data, 4, 4) == ending


@pytest.mark.parametrize("scale, zero_point, plain", [(0.0, 0, True), (0.0, 5, False), (0.5, 0, False)])
def test_a_float_with_neither_scale_nor_zero_point_is_no_quantised_tensor(
    scale: float, zero_point: int, plain: bool
) -> None:
    quant = quant_of("float", scale, zero_point)
    if plain:
        assert quant is None
    else:
        assert quant is not None and (quant.scale, quant.zero_point) == (scale, zero_point)


@pytest.mark.parametrize(
    ("before", "after", "known"),
    [
        (b"//out 0", b"//out 123456789", True),
        (b"//out 0", b"//out 1234567890", False),
        (b"z: 0", b"z: -1234567890123456789", True),
        (b"z: 0", b"z: 12345678901234567890", False),
        (b"float", b"w" * 64, True),
        (b"float", b"w" * 65, False),
        (b"float", b"", True),
        (b"0.000000", b"0." + b"1" * 398, True),
        (b"0.000000", b"0." + b"1" * 399, False),
        (b"0.000000", b"nan", True),
        (b"0.000000", b"1e-5", True),
        (b"op_out[0]", b"op_out[123456789]", True),
        (b"op_out[0]", b"op_out[1234567890]", False),
        (b"op_out", b"input", True),
        (b"op_out", b"output", False),
        (b"bConstant:0", b"bConstant:2", False),
        (b"bConstant:0", b"bConstant:1 shape:[] dims:0", True),
        (b"bConstant:0", b"bConstant:1 shape:[1, 2] dims:2", True),
        (b"bConstant:0", b"bConstant:1 shape:[1, x] dims:2", False),
    ],
)
def test_what_a_header_may_say(before, after, known):
    lines = LINES.replace(before, after, 1)
    found = parse_header(lines)
    assert (found is not None) is known
    if found is not None:
        assert found[1:3] == (None, len(lines)) and not found[0].cut


@pytest.mark.parametrize(
    ("tail", "size", "length"),
    [
        (b"", None, 0),
        (b"//buffer data size: 12\n", 12, 23),
        (b"//buffer data size: -4\n", None, 0),  # a header as we print it has no such size line
        (b"//buffer data size: 12", None, 0),
        (b"//buffer data size: x\n", None, 0),
    ],
)
def test_the_size_line(tail, size, length):
    assert parse_header(LINES + tail) == (header(), size, len(LINES) + length, True)
    loose = LINES.replace(b"0.000000", b"0.0")
    expected = -4 if b"-4" in tail else size
    length = len(tail) if expected is not None else 0
    assert parse_header(loose + tail) == (header(), expected, len(loose) + length, False)


def test_dims_must_be_the_shape_s_to_be_plain():
    for dims, plain in ((2, True), (3, False), (1, False)):
        found = parse_header(LINES.replace(b":0\n", b":0 shape:[4, 5] dims:%d\n" % dims, 1))
        assert found is not None and found[0].shape == (4, 5) and found.plain is plain


def test_a_cut_header_needs_255_bytes():
    lines = format_header(header(name="n" * 300))
    assert parse_header(lines[:254]) is None
    found = parse_header(lines[:255] + b"rest")
    assert found is not None and found[0].cut and found[1:] == (None, 255, False)
    assert found[0].io == "out" and found[0].op == "op_out" and found[0].op_index is None
    assert not found[0].constant and found[0].shape is None


@pytest.mark.parametrize(
    ("after", "ending"),
    [
        (b"", b""),
        (b"//out 0", b""),
        (b"//out", None),
        (b"//in 0 s", None),  # the dumpers write no inputs
        (b"//buffer", None),
        (b"\n};\n", b"\n};\n"),
        (b"\n};", None),
        (b"};\n", b"};\n"),
        (b"}\n", None),
        (b"\n};\n//buffer data size: 4\n", b"\n};\n//buffer data size: 4\n"),
        (b"\n};\n//buffer data size: 40\n", b"\n};\n"),
    ],
)
def test_what_may_follow_a_payload(after, ending):
    assert binary_ending(b"1234" + after, 4, 4) == ending


@pytest.mark.parametrize(
    ("rows", "with_values", "at_all"),
    [
        (b"\n1.000000, ", True, True),
        (b"1.000000, ", True, True),
        (b"    -7, ", True, True),
        (b"-nan, ", True, True),
        (b"inf, ", True, True),
        (b"1.00000, ", False, False),
        (b"1,", False, False),
        (b"1" * 60 + b", ", True, True),
        (b"1" * 61 + b", ", False, False),
        (b"}\n", False, True),
        (b"\n\n};\n", False, True),
        (b"\n\n\n};\n", False, False),
    ],
)
def test_what_printed_rows_look_like(rows, with_values, at_all):
    assert starts_rows(rows, 0, empty=False) is with_values
    assert starts_rows(rows, 0) is at_all and starts_rows(b"x" + rows, 1) is at_all


def test_text_or_binary_is_judged_by_the_first_tensor_that_has_values():
    rows = b"1.000000, 2.000000, \n};\n"
    assert holds_text(LINES + b"\n" + rows) and holds_text(b"isFloat: 1\n" + LINES + format_size(8) + rows)
    empty = LINES + format_size(0) + b"\n};\n"
    assert not holds_text(empty + LINES + format_size(4) + b"abcd\n};\n")
    assert holds_text(LINES + format_size(0) + b"};\n" + LINES + format_size(8) + rows)
    assert not holds_text(LINES + format_size(-1) + b"abcd")
    assert not holds_text(LINES + format_size(5) + b"abcd") and not holds_text(LINES + format_size(4) + b"abcd")
