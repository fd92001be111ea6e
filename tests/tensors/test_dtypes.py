"""Element types beyond numpy: what they are, their bits and bytes, and the numbers they mean."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgsdump import Quant, Tensor
from sgsdump.errors import ConfigError, FormatError, ValuesError
from sgsdump.tensors.dtypes import (
    KNOWN,
    bits,
    carried,
    carrier,
    dtype_named,
    is_complex,
    is_float,
    is_integer,
    is_number,
    name_of,
    packed,
    packed_size,
    restored,
    unpacked,
)

NAMES = list(KNOWN)


@pytest.mark.parametrize("name", NAMES)
def test_a_type_is_of_one_kind_and_has_one_name(name: str) -> None:
    dtype = dtype_named(name)
    assert name_of(dtype) == name
    kinds = [is_float(dtype), is_integer(dtype), is_complex(dtype), dtype.kind == "b"]
    assert sum(kinds) == 1 and is_number(dtype)
    assert is_float(dtype) == ("float" in name)
    assert is_integer(dtype) == ("int" in name)
    digits = {"bfloat16": 16, "bool": 8, "float8_e4m3b11fnuz": 8}
    stem = name.split("_")[0].removeprefix("b" if name == "bfloat16" else "")
    assert bits(dtype) == digits.get(name, int("".join(filter(str.isdigit, stem)) or 0))


def test_what_is_no_number_is_of_no_kind() -> None:
    for dtype in ("U3", "S3", "O", "V4", "M8[s]", [("a", "f4")]):
        assert not is_number(dtype)
    assert name_of(">f4") == "float32"


@pytest.mark.parametrize("text", ["float33", "O", "f4", "i4,(1000000000,)f4", "", "bfloat61", "numpy.float32"])
def test_only_known_names_make_a_type(text: str) -> None:
    with pytest.raises(ConfigError, match="unknown element type"):
        dtype_named(text)
    with pytest.raises(ConfigError):
        dtype_named(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_every_bit_pattern_survives_packing_and_carrying(name: str) -> None:
    dtype = dtype_named(name)
    raw = np.arange(2 ** min(bits(dtype), 8), dtype=np.uint8) if name != "bool" else np.array([0, 1], np.uint8)
    array = np.resize(raw, raw.size * dtype.itemsize).view(dtype)
    if is_integer(dtype) and bits(dtype) < 8:
        array = array.astype(np.int8).astype(dtype)
    again = unpacked(packed(array), dtype, array.size)
    assert again.dtype == dtype and again.tobytes() == array.tobytes()
    carrying = carried(array)
    assert carrying.dtype == carrier(dtype) and carrying.dtype.kind in "biufc" and carrying.shape == array.shape
    assert restored(carrying, dtype).dtype == dtype
    assert restored(carrying, dtype).tobytes() == array.tobytes()


@given(st.lists(st.integers(-8, 7), max_size=9))
def test_int4_lies_two_to_a_byte_low_half_first(values: list[int]) -> None:
    array = np.array(values, np.int8).astype(ml_dtypes.int4)
    data = packed(array)
    assert len(data) == packed_size(array.dtype, array.size) == -(-len(values) // 2)
    halves = [half for byte in data for half in (byte & 15, byte >> 4)]
    assert halves[: len(values)] == [value % 16 for value in values]
    assert unpacked(data, array.dtype, array.size).astype(int).tolist() == values


def test_too_few_bytes_are_told() -> None:
    with pytest.raises(FormatError, match="5 elements of uint4 need 3 bytes, but the data have only 2 bytes"):
        unpacked(b"12", dtype_named("uint4"), 5)
    with pytest.raises(FormatError, match="bfloat16"):
        unpacked(b"123", dtype_named("bfloat16"), 2)


@pytest.mark.parametrize("name", [name for name in NAMES if not is_complex(KNOWN[name])])
def test_real_values_are_the_numbers_meant(name: str) -> None:
    array = np.array([1, 0, 1]).astype(dtype_named(name))
    expected = [float(value) for value in array]
    real = Tensor.of("x", array).real()
    assert real.dtype == np.float32
    np.testing.assert_array_equal(real, expected)


def test_quantised_int4_is_dequantised() -> None:
    array = np.array([-8, 0, 7], np.int8).astype(ml_dtypes.int4)
    quant = Quant(array.dtype, 0.5, 1, exact=True)
    assert Tensor.of("x", array, quant=quant).real().tolist() == [-4.5, -0.5, 3.0]


@pytest.mark.parametrize("name", [name for name in ("complex32", "complex64", "complex128") if name in KNOWN])
def test_complex_values_are_pairs(name: str) -> None:
    array = np.array([[1 + 2j, -3j]]).astype(dtype_named(name))
    real = Tensor.of("x", array).real()
    assert real.dtype == np.float32
    assert real.tolist() == [[[1, 2], [0, -3]]]
    assert Tensor.of("x", array[0, 0]).real().tolist() == [1, 2]


def test_text_means_no_numbers() -> None:
    with pytest.raises(ValuesError, match="'x' holds"):
        Tensor.of("x", np.array(["a"])).real()


@pytest.mark.parametrize(
    ("dtype", "carrying"),
    [
        ("<i2", "<i2"),
        (">i2", "<i2"),
        (">f8", "<f8"),
        (ml_dtypes.int4, "|i1"),
        (ml_dtypes.uint4, "|u1"),
        (ml_dtypes.bfloat16, "<u2"),
        (ml_dtypes.float8_e5m2, "|u1"),
    ],
)
def test_what_carries_a_type(dtype, carrying):
    dtype = np.dtype(dtype)
    assert carrier(dtype).str == carrying
    array = np.array([1, 2, 3]).astype(dtype)
    assert carried(array).dtype == carrier(dtype)
    again = restored(carried(array), dtype.newbyteorder("=") if dtype.isnative is False else dtype)
    assert again.astype(float).tolist() == [1, 2, 3]


def test_carrying_costs_no_copy_where_no_value_changes_its_form():
    for dtype in (np.float32, ml_dtypes.bfloat16, np.bool_):
        array = np.ones(4, dtype)
        assert np.shares_memory(carried(array), array)
        assert np.shares_memory(restored(carried(array), array.dtype), array)


def test_bytes_in_a_file_are_little_endian_whatever_memory_holds():
    assert packed(np.array([1, 258], ">i2")) == b"\x01\x00\x02\x01"
    assert unpacked(b"\x01\x00\x02\x01\x09", np.dtype(">i2"), 2).tolist() == [1, 258]
    assert packed(np.array([[1, 2], [3, 4]], np.int8).T) == b"\x01\x03\x02\x04"
    assert name_of(">i2") == "int16" and name_of("U3") == "str96"


def test_both_halves_of_every_byte_are_read():
    pairs = unpacked(b"\xa5" * (4 << 20), np.dtype(ml_dtypes.uint4), 8 << 20)
    assert (pairs[0::2] == 5).all() and (pairs[1::2] == 10).all()
