"""A record and its header lines, each from the other; what a dump cannot hold is listed, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dumps.formats.sigmastar.made import F32, I16, U8, header, plain_record

from sgsdump import Quant, Record, Tensor, TensorInfo
from sgsdump.dumps.formats.sigmastar.record import (
    header_of,
    infer_op_indexes,
    is_transposed,
    lost,
    payload_of,
    quant_of,
    record_of,
    stored_dtype,
    type_word,
)
from sgsdump.dumps.formats.sigmastar.record_header import Header
from sgsdump.errors import ValuesError
from sgsdump.tensors.device import Origin
from sgsdump.tensors.statistics import Statistics


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
    made = plain_record(np.zeros(2, I16), quant=quant)
    assert type_word(made.tensor.info, is_float) == word
    if word is None:
        with pytest.raises(ValuesError, match="cannot represent"):
            header_of(made, False, is_float)
    else:
        assert header_of(made, False, is_float).type == word


@pytest.mark.parametrize(
    ("scale", "printed"),
    [(0.5, 0.5), (np.array([0.25, 0.5]), 0.25), (np.array(0.5), 0.5), (np.array([]), 0.0), (0.0, 0.0)],
)
def test_one_scale_stands_in_the_header(scale, printed):
    made = header_of(plain_record(np.zeros(2, U8), quant=Quant(U8, scale, 9)), False, True)
    assert (made.scale, made.zero_point) == (printed, 9)
    assert (
        header_of(plain_record([1.0]), False, True).scale,
        header_of(plain_record([1.0]), False, True).zero_point,
    ) == (0.0, 0)


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
    made = plain_record(values, layout=layout, io="in", slot=3, op_index=5, constant=True, cut=True)
    assert is_transposed(made.tensor.info, file) is (shape != written)
    lines = header_of(made, True, True, file)
    assert lines == Header("in", 3, 0.0, 0, "float", "x", True, written, "op_in", 5, "ADD", True)
    assert header_of(made, False, True, file).shape is None
    order = {(1, 3, 4, 2): (0, 2, 3, 1), (1, 4, 2, 3): (0, 3, 1, 2)}.get(written)
    expected = values if order is None else values.transpose(order)
    np.testing.assert_array_equal(payload_of(made, True, file), expected.reshape(-1))
    integers = plain_record(values.astype(I16), layout=layout)
    np.testing.assert_array_equal(payload_of(integers, False, file), expected.astype(I16).reshape(-1))


def test_a_tensor_without_a_shape_is_never_transposed():
    assert not is_transposed(TensorInfo("x", None, F32, "NCHW"), "NHWC")


EXACT = Quant(I16, 0.5, 2, exact=True)


@pytest.mark.parametrize(
    ("made", "is_float", "payload"),
    [
        (plain_record(np.array([2, 4], I16), quant=EXACT), True, [0.0, 1.0]),
        (plain_record(np.array([2, 4], I16), quant=EXACT), False, [2, 4]),
        (
            plain_record(np.array([2, 4], I16), quant=EXACT, constant=True),
            True,
            [2.0, 4.0],
        ),  # constants are printed unscaled
        (plain_record(np.array([2, 4], I16)), True, [2.0, 4.0]),
        (plain_record(np.array([2.5], np.float64)), True, [2.5]),
        (plain_record(np.array([2.5], F32), quant=EXACT), True, [2.5]),  # already dequantised
        (plain_record(np.array([2], U8), quant=Quant(None, type_name="X")), False, [2]),
        (plain_record(np.array([2.5], F32), quant=EXACT), False, "stored as float32, but quantised to int16"),
        (plain_record(np.array([2], I16), quant=replace(EXACT, exact=False)), True, "true scale"),
        (plain_record(np.array([1j])), True, "has type complex128, which a dump of float32 cannot hold"),
        (plain_record(np.array(["a"])), True, "cannot hold"),
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


@pytest.mark.parametrize(
    ("made", "shaped", "is_float", "losses"),
    [
        (plain_record(np.ones(2, F32)), True, True, []),
        (
            plain_record(np.ones(2, F32)),
            False,
            True,
            ["has a shape, which is left out", "has layout unknown, read as NHWC"],
        ),
        (plain_record(np.ones((1, 1, 1, 2), F32), layout="NHWC"), True, True, []),
        (plain_record(np.ones((1, 1, 1, 2), F32)), True, True, ["has layout unknown, read as NHWC"]),
        (plain_record(np.ones((1, 1, 1, 2), F32), layout="NCHW"), True, True, ["is NCHW, kept as NHWC"]),
        (plain_record(np.ones((1, 2), F32), layout="NHWC"), True, True, ["has layout NHWC, left out"]),
        (plain_record(np.ones(2, F32), origin=Origin((2,))), True, True, ["has an original shape, which is left out"]),
        (plain_record(np.ones(2, np.float16)), True, True, ["is float16, kept as float32"]),
        (plain_record(np.ones(2, np.bool_)), True, True, ["is bool, kept as float32"]),
        (plain_record(np.ones(2, I16)), True, True, ["is int16, kept as float32"]),
        (plain_record(np.ones(2, I16)), True, False, ["has no scale and is read back as integers of unknown scale"]),
        (plain_record(np.ones(2, F32)), True, False, []),
        (
            plain_record(np.ones(2, np.float16)),
            True,
            False,
            ["is float16, which no type word names: writing is refused"],
        ),
        (plain_record(np.ones(2, I16), quant=Quant(I16, 0.5, 1)), True, False, []),
        (
            plain_record(np.ones(2, I16), quant=Quant(I16, 0.5, 1, exact=True)),
            True,
            False,
            ["has a scale, kept with six decimals: too coarse to dequantise"],
        ),
        (
            plain_record(np.ones(2, I16), quant=Quant(I16, 0.1234567, 1)),
            True,
            False,
            ["has a scale, kept with six decimals: too coarse to dequantise"],
        ),
        (
            plain_record(np.ones(2, I16), quant=Quant(I16, 0.5, 1)),
            True,
            True,
            ["has no true scale: writing is refused"],
        ),
        (
            plain_record(np.ones(2, I16), quant=Quant(I16, 0.5, 1), constant=True),
            True,
            True,
            ["is int16, kept as float32"],
        ),
        (
            plain_record(np.ones(2, I16), quant=Quant(I16, np.ones(2), 0, axis=0, exact=True)),
            True,
            True,
            ["is int16, kept as its float32 value", "has a scale per channel, reduced to one scale"],
        ),
        (
            plain_record(np.ones(2, I16), quant=Quant(I16, np.ones(3), 0, axis=0, exact=True)),
            True,
            True,
            ["has no true scale: writing is refused", "has a scale per channel, reduced to one scale"],
        ),
        (
            plain_record(np.ones(2, F32), quant=Quant(I16, 1.0, 0, axis=0)),
            True,
            True,
            ["has a scale per channel, reduced to one scale"],
        ),
        (plain_record(np.ones(2, F32), quant=Quant(I16, 0.5)), True, True, []),
        (
            plain_record(np.ones(2, F32), quant=Quant(I16, 0.5)),
            True,
            False,
            ["is float32, not the integers of an isFloat 0 dump: writing is refused"],
        ),
        (plain_record(np.ones(2, U8), quant=Quant(None, 0.5, type_name="X")), True, False, []),
        (
            plain_record(np.ones(2, I16), quant=Quant(None, 0.5, type_name="X")),
            True,
            False,
            ["is int16, kept as bytes"],
        ),
        (
            plain_record(np.ones(2, U8), quant=Quant(np.dtype(np.float16), 0.5)),
            True,
            True,
            ["is float16, which no type word names: writing is refused"],
        ),
        (
            plain_record(np.ones(2, np.complex64)),
            True,
            True,
            ["is complex64, which float32 cannot hold: writing is refused"],
        ),
        (
            plain_record(np.ones(2, F32), "a\nb"),
            True,
            True,
            ["has a name that no header line can hold: writing is refused"],
        ),
        (
            plain_record(np.ones(2, F32), "\ud800"),
            True,
            True,
            ["has a name that no header line can hold: writing is refused"],
        ),
    ],
)
def test_what_is_lost_is_listed_and_nothing_else(made, shaped, is_float, losses):
    assert list(map(str, lost(made, shaped, is_float))) == losses


def test_statistics_and_operator_names_are_lost():
    only = Tensor.of_statistics(TensorInfo("x", (2,), F32, op_type="ADD"), Statistics(min=0.0))
    assert list(map(str, lost(Record("out", 0, 0, "ADD", only), True, True))) == [
        "has at most statistics, no values: writing is refused"
    ]
    other = Record("out", 0, 0, "conv1", plain_record(np.ones(2, F32)).tensor)
    assert list(map(str, lost(other, True, True))) == ["has an operator type, kept as its operator's name"]
