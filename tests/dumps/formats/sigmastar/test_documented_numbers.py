"""The limits, words and rules that the docstrings of this folder state, a row each; no genuine file is needed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sgsdump import Dump, Quant, Record, Tensor, TensorInfo, open_dump
from sgsdump.dumps.formats.sigmastar import binary, dump_tree, layer_files
from sgsdump.dumps.formats.sigmastar.binary import FRAMEWORK, SIM, SIM_SHAPED, TFLITE, BinVariant
from sgsdump.dumps.formats.sigmastar.net_scales import scales_of, with_net_scales
from sgsdump.dumps.formats.sigmastar.record import (
    header_of,
    infer_op_indexes,
    is_transposed,
    payload_of,
    quant_of,
    record_of,
    stored_dtype,
    type_word,
)
from sgsdump.dumps.formats.sigmastar.record_header import (
    Header,
    binary_ending,
    format_header,
    format_size,
    holds_text,
    parse_header,
    starts_rows,
)
from sgsdump.dumps.formats.sigmastar.record_losses import lost
from sgsdump.dumps.formats.sigmastar.text import rows as text_rows
from sgsdump.dumps.formats.sigmastar.text import text
from sgsdump.dumps.formats.sigmastar.text import variant as text_variant
from sgsdump.dumps.formats.sigmastar.true_scales import true_scales
from sgsdump.dumps.formats.sigmastar.unpadded import unpadded
from sgsdump.errors import FormatError, OutputError, ValuesError
from sgsdump.sidecars.parse_net import NetTensor, ParseNet
from sgsdump.tensors.statistics import Statistics
from sgsdump.tensors.types import Origin, Range

U8, I8, I16, I32, F32 = (np.dtype(word) for word in ("u1", "i1", "<i2", "<i4", "<f4"))
LINES = b"//out 0 s: 0.000000 z: 0 type: float name: x bConstant:0\nop_out[0] ADD = {\n"


def header(io="out", slot=0, op_index: int | None = 0, **facts) -> Header:
    plain = Header(io, slot, 0.0, 0, "float", "x", False, None, f"op_{io}", op_index, "ADD")
    return plain._replace(**facts)


def record(values, name="x", io="out", slot=0, op_index=0, op_type="ADD", constant=False, cut=False, **facts) -> Record:
    tensor = Tensor.of(name, np.asarray(values), op_type=op_type, **facts)
    return Record(io, slot, op_index, op_type, tensor, constant, cut)


# -- header lines ------------------------------------------------------------------------------------------------------


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
        assert found[1:] == (None, len(lines)) and not found[0].cut


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
    assert parse_header(LINES + tail) == (header(plain=True), size, len(LINES) + length)
    loose = LINES.replace(b"0.000000", b"0.0")
    wanted = -4 if b"-4" in tail else size
    length = len(tail) if wanted is not None else 0
    assert parse_header(loose + tail) == (header(), wanted, len(loose) + length)


def test_dims_must_be_the_shape_s_to_be_plain():
    for dims, plain in ((2, True), (3, False), (1, False)):
        found = parse_header(LINES.replace(b":0\n", b":0 shape:[4, 5] dims:%d\n" % dims, 1))
        assert found is not None and found[0].shape == (4, 5) and found[0].plain is plain


def test_a_cut_header_needs_255_bytes():
    lines = format_header(header(name="n" * 300))
    assert parse_header(lines[:254]) is None
    found = parse_header(lines[:255] + b"rest")
    assert found is not None and found[0].cut and found[1:] == (None, 255)
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


# -- from a header to a record and back --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "scale", "zero_point", "quant"),
    [
        ("float", 0.0, 0, None),
        ("float", 0.5, 0, Quant(F32, 0.5, 0)),
        ("float", 0.0, 3, Quant(F32, 0.0, 3)),
        ("SGS_S16", 0.0, 0, Quant(I16, 0.0, 0)),
        ("SGS_U8", 0.25, 128, Quant(U8, 0.25, 128)),
        ("SGS_S4", 0.25, 0, Quant(None, 0.25, 0, type_name="SGS_S4")),
    ],
)
def test_what_a_header_says_of_quantisation(word, scale, zero_point, quant):
    assert quant_of(word, scale, zero_point) == quant
    made = record_of(header(type=word, scale=scale, zero_point=zero_point), 7, F32, lambda: np.zeros(1, F32))
    assert made.tensor.info.quant == quant and made.op_index == 7


@pytest.mark.parametrize(
    ("word", "is_float", "dtype"),
    [
        ("float", True, F32),
        ("SGS_S16", True, F32),
        ("SGS_S16", False, I16),
        ("float", False, F32),
        ("SGS_S4", False, U8),
    ],
)
def test_a_float_file_holds_floats_whatever_the_word(word, is_float, dtype):
    assert stored_dtype(header(type=word), is_float) == dtype


@pytest.mark.parametrize(("shape", "layout"), [(None, "NCHW"), ((1, 2, 3, 4), "NCHW"), ((1, 2, 3), None), ((), None)])
def test_the_layout_of_a_file_is_that_of_4d_tensors(shape, layout):
    made = record_of(header("in", 2, shape=shape, constant=True, cut=True), 3, F32, lambda: np.zeros(24, F32), "NCHW")
    assert made.tensor.info.layout == layout and made.tensor.info.shape == shape
    assert (made.io, made.slot, made.op_index, made.constant, made.cut) == ("in", 2, 3, True, True)
    assert record_of(header(shape=(1, 2, 3, 4)), 0, F32, lambda: np.zeros(24, F32)).tensor.info.layout == "NHWC"


@pytest.mark.parametrize(
    ("quant", "is_float", "word"),
    [
        (None, True, "float"),
        (None, False, "SGS_S16"),
        (Quant(U8, 0.5), True, "SGS_U8"),
        (Quant(U8, 0.5), False, "SGS_U8"),
        (Quant(None, 0.5), False, "unknown"),
        (Quant(None, 0.5, type_name="SGS_S4"), True, "SGS_S4"),
        (Quant(np.dtype(np.float16), 0.5), True, None),
    ],
)
def test_the_type_word_of_a_tensor(quant, is_float, word):
    made = record(np.zeros(2, I16), quant=quant)
    assert type_word(made.tensor.info, is_float) == word
    if word is None:
        with pytest.raises(ValuesError, match="has no type word"):
            header_of(made, False, is_float)
    else:
        assert header_of(made, False, is_float).type == word


@pytest.mark.parametrize(
    ("scale", "printed"),
    [(0.5, 0.5), (np.array([0.25, 0.5]), 0.25), (np.array(0.5), 0.5), (np.array([]), 0.0), (0.0, 0.0)],
)
def test_one_scale_stands_in_the_header(scale, printed):
    made = header_of(record(np.zeros(2, U8), quant=Quant(U8, scale, 9)), False, True)
    assert (made.scale, made.zero_point) == (printed, 9)
    assert (header_of(record([1.0]), False, True).scale, header_of(record([1.0]), False, True).zero_point) == (0.0, 0)


@pytest.mark.parametrize(
    ("shape", "layout", "file", "written"),
    [
        ((1, 2, 3, 4), "NCHW", "NHWC", (1, 3, 4, 2)),
        ((1, 2, 3, 4), "NHWC", "NCHW", (1, 4, 2, 3)),
        ((1, 2, 3, 4), "NHWC", "NHWC", (1, 2, 3, 4)),
        ((1, 2, 3, 4), None, "NHWC", (1, 2, 3, 4)),
        ((1, 2, 3, 4), "ND", "NCHW", (1, 2, 3, 4)),
        ((2, 3, 4), "NCHW", "NHWC", (2, 3, 4)),
    ],
)
def test_4d_tensors_of_the_other_layout_are_transposed(shape, layout, file, written):
    values = np.arange(24, dtype=F32).reshape(shape)
    made = record(values, layout=layout, io="in", slot=3, op_index=5, constant=True, cut=True)
    assert is_transposed(made.tensor.info, file) is (shape != written)
    lines = header_of(made, True, True, file)
    assert lines == Header("in", 3, 0.0, 0, "float", "x", True, written, "op_in", 5, "ADD", True)
    assert header_of(made, False, True, file).shape is None
    order = {(1, 3, 4, 2): (0, 2, 3, 1), (1, 4, 2, 3): (0, 3, 1, 2)}.get(written)
    expected = values if order is None else values.transpose(order)
    np.testing.assert_array_equal(payload_of(made, True, file), expected.reshape(-1))
    integers = record(values.astype(I16), layout=layout)
    np.testing.assert_array_equal(payload_of(integers, False, file), expected.astype(I16).reshape(-1))


def test_a_tensor_without_a_shape_is_never_transposed():
    assert not is_transposed(TensorInfo("x", None, F32, "NCHW"), "NHWC")


EXACT = Quant(I16, 0.5, 2, exact=True)


@pytest.mark.parametrize(
    ("made", "is_float", "payload"),
    [
        (record(np.array([2, 4], I16), quant=EXACT), True, [0.0, 1.0]),
        (record(np.array([2, 4], I16), quant=EXACT), False, [2, 4]),
        (record(np.array([2, 4], I16), quant=EXACT, constant=True), True, [2.0, 4.0]),  # constants are printed unscaled
        (record(np.array([2, 4], I16)), True, [2.0, 4.0]),
        (record(np.array([2.5], np.float64)), True, [2.5]),
        (record(np.array([2.5], F32), quant=EXACT), True, [2.5]),  # already dequantised
        (record(np.array([2], U8), quant=Quant(None, type_name="X")), False, [2]),
        (record(np.array([2.5], F32), quant=EXACT), False, "stored as float32, not as the int16"),
        (record(np.array([2], I16), quant=replace(EXACT, exact=False)), True, "true scale"),
        (record(np.array([1j])), True, "is complex128, which a dump of float32 cannot hold"),
        (record(np.array(["a"])), True, "cannot hold"),
    ],
)
def test_what_is_written_of_a_tensor(made, is_float, payload):
    if isinstance(payload, str):
        with pytest.raises(ValuesError, match=payload):
            payload_of(made, is_float)
        return
    found = payload_of(made, is_float)
    assert found.tolist() == payload and found.dtype == (F32 if is_float else made.tensor.info.dtype)


@pytest.mark.parametrize(
    ("places", "continues", "indexes"),
    [
        ([], [], []),
        ([("in", 0, None)], [False], [0]),
        ([("in", 0, 4), ("in", 1, None), ("out", 0, None), ("in", 0, None)], [True, False, False, False], [4, 4, 4, 5]),
        ([("out", 0, 4), ("out", 1, None), ("out", 0, None)], [False] * 3, [4, 4, 5]),
        ([("out", 0, 4), ("out", 0, None)], [False] * 2, [4, 5]),
        ([("out", 0, 4), ("out", 0, None)], [True, False], [4, 4]),
        ([("in", 1, 4), ("out", 0, None)], [False] * 2, [4, 4]),
        ([("out", 0, 4), ("in", 1, None)], [False] * 2, [4, 5]),
        ([("in", 0, None), ("out", 0, None), ("in", 0, 7)], [False] * 3, [6, 6, 7]),
        ([("in", 0, None), ("out", 0, None), ("in", 0, 0)], [False] * 3, [0, 0, 0]),  # never below 0
        ([("out", 0, None), ("out", 0, None), ("in", 0, 2)], [False] * 3, [0, 1, 2]),
        ([("out", 0, None), ("in", 0, None), ("out", 0, None)], [False] * 3, [0, 1, 1]),
        ([("in", 0, None), ("in", 0, 3)], [True, False], [3, 3]),
    ],
)
def test_operator_numbers_that_a_cut_took(places, continues, indexes):
    assert infer_op_indexes([header(*place) for place in places], continues) == indexes


# -- what is lost ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "shaped", "is_float", "losses"),
    [
        (record(np.ones(2, F32)), True, True, []),
        (record(np.ones(2, F32)), False, True, ["has a shape, which is left out", "has layout unknown, read as NHWC"]),
        (record(np.ones((1, 1, 1, 2), F32), layout="NHWC"), True, True, []),
        (record(np.ones((1, 1, 1, 2), F32)), True, True, ["has layout unknown, read as NHWC"]),
        (record(np.ones((1, 1, 1, 2), F32), layout="NCHW"), True, True, ["is NCHW, kept as NHWC"]),
        (record(np.ones((1, 2), F32), layout="NHWC"), True, True, ["has layout NHWC, left out"]),
        (record(np.ones(2, F32), origin=Origin((2,))), True, True, ["has an original shape, which is left out"]),
        (record(np.ones(2, np.float16)), True, True, ["is float16, kept as float32"]),
        (record(np.ones(2, np.bool_)), True, True, ["is bool, kept as float32"]),
        (record(np.ones(2, I16)), True, True, ["is int16, kept as float32"]),
        (record(np.ones(2, I16)), True, False, ["has no scale, read back as integers of an unknown one"]),
        (record(np.ones(2, F32)), True, False, []),
        (record(np.ones(2, np.float16)), True, False, ["is float16, which no type word names: writing is refused"]),
        (record(np.ones(2, I16), quant=Quant(I16, 0.5, 1)), True, False, []),
        (
            record(np.ones(2, I16), quant=Quant(I16, 0.5, 1, exact=True)),
            True,
            False,
            ["has a scale, kept with six decimals: too coarse to dequantise"],
        ),
        (
            record(np.ones(2, I16), quant=Quant(I16, 0.1234567, 1)),
            True,
            False,
            ["has a scale, kept with six decimals: too coarse to dequantise"],
        ),
        (
            record(np.ones(2, I16), quant=Quant(I16, 0.5, 1)),
            True,
            True,
            ["has no true scale: writing is refused"],
        ),
        (record(np.ones(2, I16), quant=Quant(I16, 0.5, 1), constant=True), True, True, ["is int16, kept as float32"]),
        (
            record(np.ones(2, I16), quant=Quant(I16, np.ones(2), 0, axis=0, exact=True)),
            True,
            True,
            ["is int16, kept as the float32 it means", "has a scale per channel, kept as one"],
        ),
        (
            record(np.ones(2, I16), quant=Quant(I16, np.ones(3), 0, axis=0, exact=True)),
            True,
            True,
            ["has no true scale: writing is refused", "has a scale per channel, kept as one"],
        ),
        (
            record(np.ones(2, F32), quant=Quant(I16, 1.0, 0, axis=0)),
            True,
            True,
            ["has a scale per channel, kept as one"],
        ),
        (record(np.ones(2, F32), quant=Quant(I16, 0.5)), True, True, []),
        (
            record(np.ones(2, F32), quant=Quant(I16, 0.5)),
            True,
            False,
            ["is float32, not the integers of an isFloat 0 dump: writing is refused"],
        ),
        (record(np.ones(2, U8), quant=Quant(None, 0.5, type_name="X")), True, False, []),
        (record(np.ones(2, I16), quant=Quant(None, 0.5, type_name="X")), True, False, ["is int16, kept as bytes"]),
        (
            record(np.ones(2, U8), quant=Quant(np.dtype(np.float16), 0.5)),
            True,
            True,
            ["is float16, which no type word names: writing is refused"],
        ),
        (record(np.ones(2, np.complex64)), True, True, ["is complex64, which float32 cannot hold: writing is refused"]),
        (record(np.ones(2, F32), "a\nb"), True, True, ["has a name that no header line can hold: writing is refused"]),
        (
            record(np.ones(2, F32), "\ud800"),
            True,
            True,
            ["has a name that no header line can hold: writing is refused"],
        ),
    ],
)
def test_what_is_lost_is_listed_and_nothing_else(made, shaped, is_float, losses):
    assert list(lost(made, shaped, is_float)) == losses


def test_statistics_and_operator_names_are_lost():
    only = Tensor.of_statistics(TensorInfo("x", (2,), F32, op_type="ADD"), Statistics(min=0.0))
    assert list(lost(Record("out", 0, 0, "ADD", only), True, True)) == [
        "has no values, statistics at most: writing is refused"
    ]
    other = Record("out", 0, 0, "conv1", record(np.ones(2, F32)).tensor)
    assert list(lost(other, True, True)) == ["has an operator type, kept as its operator's name"]


# -- binary dumps ------------------------------------------------------------------------------------------------------

GROUPS = [
    record(np.ones(1, F32), "a", "in", 0, 0),
    record(np.ones(1, F32), "b", "in", 1, 0),
    record(np.ones(1, F32), "c", "out", 0, 0),
    record(np.ones(1, F32), "c", "in", 0, 1),
    record(np.ones(1, F32), "d", "out", 0, 1),
]


@pytest.mark.parametrize(
    ("variant", "endings"),
    [
        (SIM, [b"\n};\n//buffer data size: 4\n", b"\n};\n", b"\n};\n", b"\n};\n", b"\n};\n"]),
        (BinVariant(ending="short"), [b"\n};\n"] * 5),
        (TFLITE, [b"};\n"] * 5),
    ],
)
def test_how_records_end(tmp_path, variant, endings):
    binary.write(GROUPS, tmp_path / "x", variant)
    data = (tmp_path / "x").read_bytes()
    assert data.startswith(b"isFloat: 1\n")
    assert [place.ending for place in binary.walk(data, tmp_path / "x")] == endings
    again = open_dump(tmp_path / "x")
    assert again.variant == variant and [r.op_index for r in again.records] == [0, 0, 0, 1, 1]


def test_the_four_variants():
    assert (SIM.shaped, SIM.ending, SIM_SHAPED.shaped, FRAMEWORK.ending, TFLITE.ending) == (
        *(False, "group", True, "none", "tflite"),
    )
    assert (
        all(variant.is_float for variant in (SIM, SIM_SHAPED, FRAMEWORK, TFLITE)) and FRAMEWORK.shaped and TFLITE.shaped
    )


def body(payload=b"1234", size: int | None = None, lines=LINES, ending=b"\n};\n"):
    return lines + format_size(len(payload) if size is None else size) + payload + ending


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "holds no tensor; was the run that wrote it cut off"),
        (body() + b"x", r"record 1 at byte \d+ has no whole header"),
        (body() + LINES, r"record 1 at byte \d+ has no whole header"),
        (
            body(size=-4, lines=LINES.replace(b"0.000000", b"0.0")),
            "record 0 'x' at byte 11 says it holds -4 bytes, 8 are left in the file",
        ),
        (body(size=9, ending=b"\n};\n"), r"says it holds 9 bytes, 8 are left"),
        (body(ending=b"\n}\n"), "does not end after its 4 bytes"),
        (body(lines=LINES.replace(b"out", b"in"), ending=b""), "does not end after its 4 bytes"),
        (body(ending=b"\n};\n//buffer data size: 4\n"), "is the last one though its ending promises more"),
        (body() + body(ending=b""), "is the last one though its ending promises more"),
    ],
)
def test_where_a_file_is_damaged(tmp_path, data, message):
    with pytest.raises(FormatError, match=message):
        list(binary.walk(b"isFloat: 1\n" + data, tmp_path / "x"))


def test_a_payload_to_the_very_end_is_a_dumpers_last_record(tmp_path):
    data = b"isFloat: 1\n" + body(ending=b"") + body(b"", ending=b"")
    assert [(place.size, place.ending) for place in binary.walk(data, tmp_path)] == [(4, b""), (0, b"")]
    with pytest.raises(FormatError, match="does not begin with 'isFloat"):
        list(binary.walk(b"isFloat: 2\n" + body(), tmp_path))


def test_a_payload_is_a_whole_number_of_values(tmp_path):
    (tmp_path / "x").write_bytes(b"isFloat: 1\n" + body() + body(b"12345"))
    with pytest.raises(FormatError, match=r"record 1 'x' .* holds 5 bytes, not a whole number of float32"):
        binary.read(tmp_path / "x")


def test_usual_variants_by_the_first_tensor(tmp_path):
    cases = [
        (record(np.ones(1, F32)), b"1"),
        (record(np.ones(1, I16)), b"1"),
        (record(np.ones(1, I16), quant=Quant(I16, 0.5)), b"0"),
        (record(np.ones(1, F32), quant=Quant(I16, 0.5)), b"1"),
    ]
    for made, flag in cases:
        binary.write([made], tmp_path / "x", None)
        assert (tmp_path / "x").read_bytes()[9:10] == flag
        text.write([made], tmp_path / "y", None)
        assert (tmp_path / "y").read_bytes()[9:10] == flag
        assert open_dump(tmp_path / "x").variant == BinVariant(flag == b"1")
    for write in (binary.write, text.write):
        with pytest.raises(OutputError, match="there is no tensor to write"):
            write([], tmp_path / "z", None)


def test_the_dumpers_form_refuses_inputs_and_says_so(tmp_path):
    assert next(what for _, what in binary.loses(GROUPS[:1], FRAMEWORK)).startswith("is an input, which the ONNX")
    assert not list(binary.loses(GROUPS[:1], SIM_SHAPED)) and not list(binary.loses(GROUPS[2:3], FRAMEWORK))
    with pytest.raises(OutputError, match="cannot write input 'a'"):
        binary.write(GROUPS[:1], tmp_path / "x", FRAMEWORK)


def test_bytes_that_follow_no_rule_come_back(tmp_path):
    odd = LINES.replace(b"s: 0.000000", b"s: 0.0").replace(b"name: x", b"name: y")
    data = b"isFloat: 1\n" + body() + body(lines=odd) + body(ending=b"};\n") + body()
    (tmp_path / "x").write_bytes(data)
    dump = open_dump(tmp_path / "x")
    assert sorted(dump.variant.odd) == [1, 2] and dump.variant.odd[1].name == "y" and dump.variant.odd[1].size == 4
    binary.write(dump.records, tmp_path / "y", dump.variant)
    assert (tmp_path / "y").read_bytes() == data
    # another tensor in that place has lines of its own
    binary.write([record(np.ones(2, F32), "z") for _ in range(4)], tmp_path / "z", dump.variant)
    assert b"s: 0.0 " not in (tmp_path / "z").read_bytes()


# -- string dumps ------------------------------------------------------------------------------------------------------


def printed(values, variant, tmp_path, **facts):
    text.write([record(values, **facts)], tmp_path / "x", variant)
    return (tmp_path / "x").read_bytes()


SHAPED = LINES.replace(b":0\n", b":0 shape:[%d] dims:1\n", 1)


@pytest.mark.parametrize(("count", "tail"), [(0, b""), (1, b""), (16, b"\n"), (17, b"\n")])
def test_sixteen_values_to_a_row_in_every_style(tmp_path, count, tail):
    values = np.arange(count, dtype=F32)
    words = [b"%d.000000, " % value for value in range(count)]
    rows = b"\n".join(b"".join(words[start : start + 16]) for start in range(0, count, 16))
    rows += b"\n" if count and count % 16 == 0 else b""
    ended = rows if count % 16 == 0 else rows + b"\n"  # only the ONNX and Caffe dumpers leave a short row open
    size, lines = format_size(4 * count), SHAPED % count
    head = b"isFloat: 1\n"
    assert printed(values, text_variant.SIM, tmp_path) == head + LINES + b"\n" + ended + b"\n};\n"
    assert printed(values, replace(text_variant.SIM, blank=False), tmp_path) == head + LINES + ended + b"\n};\n"
    assert printed(values, text_variant.FRAMEWORK, tmp_path) == head + lines + size + b"\n" + rows + b"\n}\n"
    assert printed(values, text_variant.LAYER, tmp_path) == lines + size + b"\n" + rows + b"\n}\n"
    assert printed(values, text_variant.TFLITE, tmp_path) == head + lines + size + ended + b"};\n"


def test_values_beyond_a_chunk_are_all_printed(tmp_path):
    values = np.arange(text_rows.CHUNK + 5, dtype=F32)
    for variant in (text_variant.SIM, text_variant.TFLITE):
        printed(values, variant, tmp_path)
        np.testing.assert_array_equal(open_dump(tmp_path / "x")["x"].raw(), values)


def test_integers_are_printed_as_their_bytes(tmp_path):
    variant = replace(text_variant.SIM, is_float=False)
    data = printed(np.array([-2, 258], I16), variant, tmp_path, quant=Quant(I16, 0.5))
    assert data.endswith(b"ADD = {\n\n   254,    255,      2,      1, \n\n};\n") and data.startswith(b"isFloat: 0\n")
    assert open_dump(tmp_path / "x")["x"].raw().tolist() == [-2, 258]


def test_the_sign_of_nan_is_the_simulators(tmp_path):
    values = np.array([np.nan, -np.nan, 1, -np.inf], F32)
    values[0], values[1] = np.copysign(np.float32(np.nan), 1), np.copysign(np.float32(np.nan), -1)
    assert b"\nnan, -nan, 1.000000, -inf, \n" in printed(values, text_variant.SIM, tmp_path)
    signs = np.signbit(open_dump(tmp_path / "x")["x"].raw())
    assert signs.tolist() == [False, True, False, True]
    assert b"\nnan, nan, 1.000000, -inf, " in printed(values, text_variant.FRAMEWORK, tmp_path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (b"1.000000, x, \n};\n", "are not all numbers"),
        (b"1.000000, 2.000000 3.000000, \n};\n", "are not all numbers"),
        (b"1.000000, , 2.000000, \n};\n", "are not all numbers"),
        (b"1.000000, 2.000000, 3.000000, \n};\n", "has 3 values, its header says 8 bytes"),
        (b"1.000000, \n};\n", "has 1 values, its header says 8 bytes"),
    ],
)
def test_values_that_do_not_fit_their_header(tmp_path, rows, message):
    (tmp_path / "x").write_bytes(b"isFloat: 1\n" + LINES + format_size(8) + rows)
    with pytest.raises(FormatError, match=message):
        open_dump(tmp_path / "x")["x"].raw()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (b"   256,      0, \n", "is not printed as the bytes of int16"),
        (b"    -1,      0, \n", "is not printed as the bytes of int16"),
        (b"     1, \n", "is not printed as the bytes of int16"),
        (b"", "are left out by the string dump"),
        (b"   255,      0, \n", None),
        (b"     0,    255, \n", None),
    ],
)
def test_bytes_of_an_integer_dump(tmp_path, rows, message):
    lines = LINES.replace(b"float", b"SGS_S16", 1)
    (tmp_path / "x").write_bytes(b"isFloat: 0\n" + lines + b"\n" + rows + b"\n};\n")
    tensor = open_dump(tmp_path / "x")["x"]
    if message is None:
        assert tensor.raw().dtype == I16 and tensor.raw().size == 1
        return
    with pytest.raises((FormatError, ValuesError), match=message):
        tensor.raw()


def test_an_empty_shape_has_no_values_to_leave_out(tmp_path):
    lines = LINES.replace(b"float", b"SGS_S16", 1).replace(b":0\n", b":0 shape:[0, 3] dims:2\n", 1)
    (tmp_path / "x").write_bytes(b"isFloat: 0\n" + lines + b"\n\n};\n")
    assert open_dump(tmp_path / "x")["x"].stored().shape == (0, 3)
    empty = record(np.zeros((0, 3), I16), quant=Quant(I16, 0.5))
    unshaped = replace(text_variant.SIM, is_float=False)
    said = "is empty, read as one whose values the dump leaves out"
    assert [what for _, what in text.loses([empty], unshaped)][-1] == said
    assert said not in [what for _, what in text.loses([empty], replace(unshaped, shaped=True))]
    full = record(np.zeros((1, 3), I16), quant=Quant(I16, 0.5))
    assert said not in [what for _, what in text.loses([full], unshaped)]
    assert "is printed with six decimals" in [what for _, what in text.loses([record(np.ones(1, F32))], None)]


def test_a_file_without_a_head_is_nchw_only_in_a_folder_of_that_name(tmp_path):
    for name, layout in (("NCHW", "NCHW"), ("NHWC", "NHWC"), ("other", "NHWC")):
        (tmp_path / name).mkdir()
        values = np.zeros((1, 2, 3, 4), F32)
        text.write([record(values, layout=layout)], tmp_path / name / "x", replace(text_variant.LAYER, layout=layout))
        dump = open_dump(tmp_path / name / "x")
        assert dump["x"].info.layout == layout and not dump.variant.head and dump.variant.layout == layout
    text.write([record(values)], tmp_path / "NCHW" / "y", text_variant.FRAMEWORK)
    assert open_dump(tmp_path / "NCHW" / "y")["x"].info.layout == "NHWC"  # a head line: the file of all tensors


def test_a_first_tensor_that_was_left_out_comes_back(tmp_path):
    lines = LINES.replace(b"float", b"SGS_S32", 1)
    rows = b"     1,      0,      0,      0, \n"
    data = b"isFloat: 0\n" + lines + b"\n\n};\n" + lines + b"\n" + rows + b"\n};\n"
    (tmp_path / "x").write_bytes(data)
    dump = open_dump(tmp_path / "x")
    assert dump.variant.blank
    text.write(dump.records, tmp_path / "y", dump.variant)
    assert (tmp_path / "y").read_bytes() == data


def test_kinds_of_record_do_not_mix(tmp_path):
    one = LINES + b"1.000000, \n\n};\n"
    other = LINES + format_size(4) + b"1.000000, \n};\n"
    (tmp_path / "x").write_bytes(b"isFloat: 1\n" + one + other)
    with pytest.raises(FormatError, match=r"record 1 'x' at byte \d+ ends as a tflite record, those before it as sim"):
        text.read(tmp_path / "x")
    (tmp_path / "x").write_bytes(b"isFloat: 1\n" + one + LINES + b"1.000000, \n}")
    with pytest.raises(FormatError, match=r"record 1 'x' at byte \d+ has no end"):
        text.read(tmp_path / "x")


# -- the dumpers' files, and trees -------------------------------------------------------------------------------------


def test_files_of_one_layer(tmp_path):
    values = np.arange(6, dtype=F32).reshape(1, 1, 2, 3)
    image = record(values, "im/age", "out", 0, 0, "data", layout="NHWC")
    layer = record(values + 1, "b/c:0", "out", 0, 4, "b/c", layout="NHWC")
    layer_files.write_text([layer], tmp_path / "all.txt", [image])
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()) == [
        *("NCHW/b_c_0#(1, 3, 1, 2)", "NCHW/im_age#(1, 3, 1, 2)", "NHWC/b_c_0#(1, 1, 2, 3)", "NHWC/im_age#(1, 1, 2, 3)"),
        "all.txt",
    ]
    assert b"\ninput[0] data = {\n" in (tmp_path / "NHWC/im_age#(1, 1, 2, 3)").read_bytes()
    assert b"name: b/c:0 " in (tmp_path / "NHWC/b_c_0#(1, 1, 2, 3)").read_bytes()
    assert b"op_out[4] b/c = {" in (tmp_path / "NHWC/b_c_0#(1, 1, 2, 3)").read_bytes()
    assert (tmp_path / "all.txt").read_bytes().count(b"//out") == 1
    nchw = open_dump(tmp_path / "NCHW/b_c_0#(1, 3, 1, 2)")["b/c:0"]
    assert nchw.raw().tolist() == [1, 4, 2, 5, 3, 6] and nchw.info.shape == (1, 3, 1, 2)

    layer_files.write_text([layer], tmp_path / "caffe.txt", [image, image], caffe=True)
    data = (tmp_path / "NHWC/b_c_0#(1, 1, 2, 3)").read_bytes()
    assert b"name: b_c_0 " in data and b"op_out[6] b_c = {" in data
    assert b"\nop_out[0] data = {\n" in (tmp_path / "NHWC/im_age#(1, 1, 2, 3)").read_bytes()
    assert b"name: b/c:0 " in (tmp_path / "caffe.txt").read_bytes()

    layer_files.write_shapes([image, record(np.zeros((2, 3), F32), "x")], tmp_path / "shape.txt")
    assert (tmp_path / "shape.txt").read_text() == "im_age\t(1, 3, 1, 2)\nx\t(2, 3)\n"


def test_where_the_files_of_a_tree_stand_and_their_order(tmp_path):
    records = [
        record(np.array([1], F32), "b/c:0 tail", "in", 1, 10),
        record(np.array([2], F32), "a", "in", 0, 10),
        record(np.array([3], F32), "d", "out", 1, 10),
        record(np.array([4], F32), "e", "out", 0, 2),
    ]
    assert dump_tree.write_tree(Dump(records), tmp_path / "t") == 4
    assert sorted(
        path.relative_to(tmp_path / "t").as_posix() for path in (tmp_path / "t").rglob("*") if path.is_file()
    ) == [
        *("10.a.xx.inputs/input0", "10.b_c0.xx.inputs/input1", "10.d.xx.output1/output", "2.e.xx.output0/output"),
    ]
    tree = dump_tree.read_tree(tmp_path / "t")
    assert [(r.op_index, r.io, r.slot, r.name) for r in tree.records] == [
        *((2, "out", 0, "e"), (10, "in", 0, "a"), (10, "in", 1, "b/c:0 tail"), (10, "out", 1, "d")),
    ]
    assert [r.tensor.raw().tolist() for r in tree.records] == [[4], [2], [1], [3]]
    assert tree.format == "sigmastar_bin" and tree.variant == BinVariant(True, True)
    assert dump_tree.write_tree(Dump(records), tmp_path / "u", text=True) == 4
    printed_tree = dump_tree.read_tree(tmp_path / "u")
    assert (tmp_path / "u/10.d.xx.output1/_data").is_file() and (tmp_path / "u/10.a.xx.inputs/input0").is_file()
    assert [r.tensor.raw().tolist() for r in printed_tree.records] == [[4], [2], [1], [3]]


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"1", lambda data: data[:30]])
def test_a_file_of_a_tree_is_one_whole_tensor(tmp_path, change):
    dump_tree.write_tree(Dump([record(np.arange(3, dtype=F32))]), tmp_path / "t")
    file = tmp_path / "t/0.x.xx.output0/output"
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(FormatError, match="is not one whole tensor of a split dump"):
        dump_tree.read_tree(tmp_path / "t")


def test_a_tree_of_integers_keeps_them(tmp_path):
    variant = BinVariant(is_float=False, shaped=False)
    made = record(np.array([-5, 7], I16), quant=Quant(I16, 0.5, 1))
    dump_tree.write_tree(Dump([made], "sigmastar_bin", variant), tmp_path / "t")
    assert (tmp_path / "t/0.x.xx.output0/output").read_bytes() == (
        b"isFloat: 0\n//out 0 s: 0.500000 z: 1 type: SGS_S16 name: x bConstant:0\nop_out[0] ADD = {\n"
        b"//buffer data size: 4\n\xfb\xff\x07\x00"
    )
    assert dump_tree.read_tree(tmp_path / "t").variant == variant


# -- true scales -------------------------------------------------------------------------------------------------------


def integers(name="x", scale=0.5, dtype=I16, zero=0, op="CONV_2D", io="out", op_index=0, slot=0, **facts) -> Record:
    info = TensorInfo(name, (1,), np.dtype(dtype), quant=Quant(np.dtype(dtype), scale, zero), op_type=op)
    return Record(io, slot, op_index, op, Tensor(info, lambda: np.zeros(1, dtype)), **facts)


@pytest.mark.parametrize(
    ("dtype", "low", "high", "scale", "zero"),
    [
        (U8, -1.0, 1.0, 2 / 255, 128),
        (U8, 1.0, 3.0, 3 / 255, 0),  # the range is extended to include 0
        (U8, -3.0, -1.0, 3 / 255, 255),
        (U8, 0.0, 0.0, 0.0, 0),
        (I16, -4.0, 2.0, 4 / 32767, 0),
        (I16, -2.0, 4.0, 4 / 32767, 0),
        (I16, 3.0, 4.0, 4 / 32767, 0),
        (I8, -2.0, 1.0, 2 / 127, 0),
    ],
)
def test_the_scale_of_a_range(dtype, low, high, scale, zero):
    found, refused = true_scales(Dump([integers("x", scale, dtype, zero)]), {"x": Range.of(low, high)})
    assert not refused and found["x"].exact
    assert found["x"].scale == pytest.approx(scale, rel=1e-6) and found["x"].zero_point == zero


@pytest.mark.parametrize(("zero", "fits"), [(127, True), (128, True), (126, False), (129, False)])
def test_a_half_is_rounded_as_the_header_says(zero, fits):
    found, refused = true_scales(Dump([integers("x", 2 / 255, U8, zero)]), {"x": Range.of(-1, 1)})  # 127.5
    assert ("x" in found) is fits and ("x" in refused) is not fits
    if fits:
        assert found["x"].zero_point == zero


@pytest.mark.parametrize(
    ("op", "dtype", "fixed"),
    [("SOFTMAX", I16, 1 / 32768), ("LOGISTIC", I16, 1 / 32767), ("SOFTMAX", U8, None), ("CONV_2D", I16, None)],
)
def test_fixed_scales_are_those_of_16_bits(op, dtype, fixed):
    found, refused = true_scales(Dump([integers("x", 0.000031, dtype, op=op)]), {})
    if fixed is None:
        assert not found and "has no range for it" in refused["x"]
    else:
        assert found["x"].scale == fixed and found["x"].zero_point == 0 and not refused


def test_a_softmax_reads_from_minus_ten():
    reads = integers("x", 10 / 32767, op="SOFTMAX", io="in")
    found, _ = true_scales(Dump([reads]), {"x": Range.of(-3, 2)})
    assert found["x"].scale == pytest.approx(10 / 32767, rel=1e-6)
    found, _ = true_scales(Dump([integers("x", 12 / 32767, op="SOFTMAX", io="in")]), {"x": Range.of(-12, 2)})
    assert found["x"].scale == pytest.approx(12 / 32767, rel=1e-6)
    _, refused = true_scales(Dump([integers("x", 10 / 32767, op="ADD", io="in")]), {"x": Range.of(-3, 2)})
    assert "the ranges give scale 0.000092 and zero point 0, the dump's header says 0.000305 and 0" in refused["x"]


SHARING = (
    "MAX_POOL_2D AVERAGE_POOL_2D RESHAPE Reshape_Alias TRANSPOSE SQUEEZE EXPAND_DIMS PAD SLICE STRIDED_SLICE GATHER "
)
SHARING += "CONCATENATION SPLIT SPLIT_V PACK UNPACK"


@pytest.mark.parametrize("op", [*SHARING.split(), "CONV_2D", "ADD"])
def test_which_operators_share_one_domain(op):
    scale = round(4 / 32767, 6)
    around = [
        integers("a", scale, op=op, io="in"),
        integers("b", scale, op=op),
        integers("c", scale, op="X", op_index=1),
    ]
    found, refused = true_scales(Dump(around), {"a": Range.of(-4, 1), "c": Range.of(-1, 1)})
    assert set(found) == ({"a", "b"} if op in SHARING.split() else {"a"}) and "c" in refused


@pytest.mark.parametrize("change", [{"scale": 0.000123}, {"zero": 1}, {"dtype": I8}])
def test_only_equal_headers_share(change):
    facts = {"scale": round(4 / 32767, 6), "dtype": I16, "zero": 0}
    around = [integers("a", **facts, op="PACK", io="in"), integers("b", **{**facts, **change}, op="PACK")]
    found, refused = true_scales(Dump(around), {"a": Range.of(-4, 1)})
    assert set(found) == {"a"} and "has no range for it, nor for what shares its domain" in refused["b"]


def test_a_domain_takes_its_union_first_then_what_fits():
    scale = round(2 / 32767, 6)
    around = [
        integers(name, scale, op="PACK", io=io, slot=i) for i, (name, io) in enumerate([("a", "in"), ("b", "out")])
    ]
    found, _ = true_scales(Dump(around), {"a": Range.of(-2, 1), "b": Range.of(-1, 8)})
    assert found["a"].scale == found["b"].scale == pytest.approx(2 / 32767, rel=1e-6)


def test_constants_floats_and_exact_scales_are_left_out():
    exact = integers("e")
    exact = replace(
        exact, tensor=Tensor(replace(exact.tensor.info, quant=Quant(I16, 0.5, exact=True)), exact.tensor.raw)
    )
    unknown = integers("u")
    unknown = replace(unknown, tensor=Tensor(replace(unknown.tensor.info, quant=Quant(None, 0.5)), unknown.tensor.raw))
    dump = Dump(
        [integers("c", constant=True), exact, unknown, record(np.ones(1, F32), "f"), record(np.ones(1, I16), "n")]
    )
    assert true_scales(dump, {name: Range.of(-1, 1) for name in "ceufn"}) == ({}, {})


# -- parse_net's facts -------------------------------------------------------------------------------------------------


def listed(name="x", dtype=I16, shape=(1,), ddr="IPU_S16_NHWC", low=-4.0, high=2.0) -> NetTensor:
    return NetTensor(name, str(np.dtype(dtype)).upper(), np.dtype(dtype), shape, ddr, low, high, 0.0, 0)


def net(*tensors, ambiguous=()) -> ParseNet:
    return ParseNet(Path("net.txt"), {tensor.name: tensor for tensor in tensors}, frozenset(ambiguous))


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (listed(), None),
        (listed(low=None), "has no range"),
        (listed(high=None), "has no range"),
        (listed(low=3.0), "has no range"),
        (listed(dtype=I8), "net.txt has it as INT8, the dump as int16: they are of different conversions"),
        (listed("y"), "net.txt does not list it"),
        (listed(low=-8.0), "the ranges give scale"),
    ],
)
def test_which_ranges_of_parse_net_are_used(facts, reason):
    dump = Dump([integers("x", 4 / 32767)])
    found, refused = scales_of(dump, net(facts))
    scaled = with_net_scales(dump, net(facts))["x"].info.quant
    if reason is None:
        assert not refused and scaled == found["x"] and scaled.exact
        assert scaled.scale == pytest.approx(4 / 32767, rel=1e-6)
    else:
        assert not found and reason in refused["x"] and not scaled.exact


def test_equal_ends_and_names_of_several_tensors():
    found, _ = scales_of(Dump([integers("x", 4 / 32767)]), net(listed(low=4.0, high=4.0)))
    assert found["x"].exact
    _, refused = scales_of(Dump([integers("x", 4 / 32767)]), net(listed("y"), ambiguous={"x"}))
    assert refused["x"] == "net.txt lists different tensors of this name"


def test_constants_keep_their_scale():
    dump = Dump([integers("x", 4 / 32767), integers("x", 4 / 32767, io="in", constant=True)])
    scaled = with_net_scales(dump, net(listed()))
    assert [r.tensor.info.quant.exact for r in scaled.records] == [True, False]


def floats(size, name="x", **facts):
    return Record("out", 0, 0, "OP", Tensor(TensorInfo(name, None, F32), lambda: np.arange(size, dtype=F32)), **facts)


@pytest.mark.parametrize(
    ("size", "ddr", "shape"),
    [
        (36, "IPU_U8_NHWX", (1, 3, 4, 3)),
        (35, "IPU_U8_NHWX", None),
        (64, "IPU_U8_NHWX", None),
        (64, "RGB", (1, 3, 4, 3)),  # only a picture may be over-allocated
        (64, "BGR", (1, 3, 4, 3)),
        (64, "RGBA", None),
        (63, "RGB", None),
    ],
)
def test_floats_take_the_shape_that_fits(size, ddr, shape):
    known = net(listed(dtype=U8, shape=(1, 3, 4, 3), ddr=ddr))
    tensor = unpadded(Dump([floats(size)]), known)["x"]
    assert tensor.info.shape == shape and tensor.info.layout == (None if shape is None else "NHWC")
    assert tensor.stored().reshape(-1)[:36].tolist() == list(range(min(size, 36)))
    (constant,) = unpadded(Dump([floats(36, constant=True)]), known).records
    assert constant.tensor.info.shape is None


def test_other_ranks_have_a_shape_but_no_layout():
    tensor = unpadded(Dump([floats(6)]), net(listed(shape=(2, 3))))["x"]
    assert tensor.info.shape == (2, 3) and tensor.info.layout is None


@pytest.mark.parametrize(
    ("shape", "fits"), [((2, 3), True), ((1, 2, 1, 3), True), ((2, 4), False), ((2, 2), False), ((3, 2), False)]
)
def test_a_shape_of_the_dump_is_the_listed_one_but_for_ones(shape, fits):
    made = integers("x")
    values = np.zeros(shape, I16)
    made = replace(made, tensor=Tensor(replace(made.tensor.info, shape=shape), lambda: values))
    tensor = unpadded(Dump([made]), net(listed(shape=(2, 3))))["x"]
    if fits:
        assert tensor.stored().shape == shape
    else:
        with pytest.raises(ValuesError, match=r"in the dump and \[2, 3\] in net\.txt; are they of one model"):
            tensor.stored()


@pytest.mark.parametrize(("names", "shape"), [(["xyz"], (2, 3)), (["xyz", "xya"], None), (["yxz"], None)])
def test_a_cut_name_must_begin_one_name_only(names, shape):
    known = net(*(listed(name, shape=(2, 3)) for name in names))
    assert unpadded(Dump([floats(6, "xy", cut=True)]), known)["xy"].info.shape == shape
    assert unpadded(Dump([floats(6, "xy")]), known)["xy"].info.shape is None
