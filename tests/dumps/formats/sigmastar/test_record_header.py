"""The header lines against genuine ones and against their grammar."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
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
    word_of,
)
from sgsdump.errors import OutputError

GENUINE = {
    b"//in 0 s: 0.007809 z: 127 type: SGS_U8 name: data bConstant:0\nop_in[0] CONV_2D = {\n": Header(
        "in", 0, 0.007809, 127, "SGS_U8", "data", False, None, "op_in", 0, "CONV_2D", plain=True
    ),
    b"//out 0 s: 0.000239 z: 0 type: SGS_S16 name: 215 bConstant:0 shape:[3, 1, 3, 197, 64] dims:5\n"
    b"op_out[11] TRANSPOSE = {\n": Header(
        "out", 0, 0.000239, 0, "SGS_S16", "215", False, (3, 1, 3, 197, 64), "op_out", 11, "TRANSPOSE", plain=True
    ),
    b"//out 0 s: 0.000000 z: 0 type: float name: data bConstant:0 shape:[1, 20, 24, 3] dims:4\n"
    b"input[0] data = {\n": Header("out", 0, 0.0, 0, "float", "data", False, (1, 20, 24, 3), "input", 0, "data"),
}


@pytest.mark.parametrize("lines", GENUINE)
@pytest.mark.parametrize("size", [None, 0, 5760])
def test_genuine_headers(lines: bytes, size: int | None) -> None:
    tail = b"" if size is None else format_size(size)
    found = parse_header(b"xx" + lines + tail + b"payload", 2)
    assert found == (GENUINE[lines], size, 2 + len(lines + tail))
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
    header = Header("out", 1, 0.5, -3, "SGS_S8", name, True, shape, "op_out", 7, "a = {", plain=True)
    lines = format_header(header)
    assert parse_header(lines) == (header, None, len(lines))


@given(
    st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=80),
    st.integers(0, 999999),
    st.lists(st.integers(0, 99999), max_size=8),
    st.booleans(),
)
def test_what_is_formatted_parses_back(name: str, millionths: int, shape: list[int], constant: bool) -> None:
    scale = millionths / 10**6
    header = Header("in", 0, scale, 1, "X", name, constant, tuple(shape), "op_in", 3, name, plain=True)
    lines = format_header(header)
    assert parse_header(lines) == (header, None, len(lines))


def test_loose_headers_parse_but_are_not_called_plain() -> None:
    loose = b"//out 00 s: -0.0 z: -0 type: float name: x bConstant:0 shape:[1,02] dims:9\nop_in[007] A = {\n"
    found = parse_header(loose)
    assert found is not None and not found[0].plain
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
    assert found is not None and found[1:] == (12, 255 + len(format_size(12)))
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
