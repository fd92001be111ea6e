"""Tensor: stored and real values, cropping, padding, dequantising."""

from __future__ import annotations

import math
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sgsdump import Quant, Tensor, TensorInfo
from sgsdump.errors import FormatError, ValuesError
from sgsdump.files.mapped import loader, map_file
from sgsdump.tensors.device import to_device
from sgsdump.tensors.tensor import dequantise, scale_fits, values_of
from sgsdump.tensors.types import Origin

U8 = np.dtype(np.uint8)


def tensor(array: np.ndarray, shape: tuple[int, ...] | None = None, quant: Quant | None = None) -> Tensor:
    return Tensor(TensorInfo("x", shape, array.dtype, quant=quant), lambda: array)


def test_without_a_shape_the_values_are_flat() -> None:
    assert tensor(np.arange(6, dtype=np.float32)).stored().shape == (6,)


def test_a_larger_float_payload_is_cropped_to_its_shape() -> None:
    found = tensor(np.arange(16, dtype=np.float32), (1, 2, 2, 3))
    assert found.stored().tolist() == np.arange(12).reshape(1, 2, 2, 3).tolist()
    assert found.raw().size == 16


def test_a_smaller_payload_is_an_error() -> None:
    with pytest.raises(FormatError, match=r"'x' holds 5 values, but its shape \[2, 3\] needs 6"):
        tensor(np.zeros(5, np.float32), (2, 3)).stored()


def test_a_padded_integer_buffer_is_refused() -> None:
    # 2 x 3 pixels of 10 channels: 16 bytes each, 96 rounded up to 128.
    with pytest.raises(ValuesError, match=r"padded.*eliminateGarbage"):
        tensor(np.zeros(128, np.uint8), (1, 2, 3, 10)).stored()


def test_real_values_are_float32() -> None:
    assert tensor(np.array([0.5])).real().dtype == np.float32
    assert tensor(np.array([3, 4])).real().tolist() == [3.0, 4.0]


def test_dequantising_is_the_single_precision_product() -> None:
    stored = np.array([0, 3, 255], np.uint8)
    quant = Quant(np.dtype(np.uint8), 0.1, 3, exact=True)
    expected = np.array([-3, 0, 252], np.float32) * np.float32(0.1)
    np.testing.assert_array_equal(tensor(stored, quant=quant).real(), expected)


def test_dequantising_per_channel() -> None:
    stored = np.array([[1, 2], [3, 4]], np.int8)
    quant = Quant(np.dtype(np.int8), np.array([0.5, 2.0]), axis=0, exact=True)
    assert tensor(stored, (2, 2), quant).real().tolist() == [[0.5, 1.0], [6.0, 8.0]]


def test_rounded_scales_are_not_used() -> None:
    with pytest.raises(ValuesError, match=r"'x'.*six decimals"):
        tensor(np.array([1], np.int16), quant=Quant(np.dtype(np.int16), 0.000031)).real()


def test_a_tensor_of_an_array() -> None:
    array = np.zeros((1, 2), np.int8)
    made = Tensor.of("y", array, layout=None, op_type="Relu")
    assert made.info == TensorInfo("y", (1, 2), np.dtype(np.int8), op_type="Relu")
    assert made.raw() is array and "'y'" in repr(made)


def test_scales_per_channel_without_an_axis_are_those_of_the_last_one() -> None:
    stored = np.array([[1, 2, 3], [4, 5, 6]], np.int8)
    quant = Quant(np.dtype(np.int8), np.array([1.0, 0.5, 2.0]), exact=True)
    made = tensor(stored, (2, 3), quant)
    assert made.real().tolist() == [[1.0, 1.0, 6.0], [4.0, 2.5, 12.0]]
    values = values_of(made)
    read = values.array if values.to_real is None else values.to_real(values.array.reshape(-1)).reshape(2, 3)
    assert read.tolist() == made.real().tolist()
    assert not scale_fits(TensorInfo("x", (3, 2), stored.dtype, quant=quant))


def test_scales_that_do_not_fit_are_refused() -> None:
    quant = Quant(np.dtype(np.int8), np.ones(4), axis=1, exact=True)
    with pytest.raises(ValuesError, match=r"4 scales along axis 1, which do not fit its shape \[2, 3\]"):
        tensor(np.zeros((2, 3), np.int8), (2, 3), quant).real()


def test_facts_without_info() -> None:
    made = Tensor.of("y", np.zeros((1, 2, 3, 4), np.int8), layout="NHWC")
    assert (made.name, made.shape, made.ndim, made.dtype, made.layout) == ("y", (1, 2, 3, 4), 4, np.int8, "NHWC")
    flat = tensor(np.zeros(3, np.float16))
    assert (flat.shape, flat.ndim, flat.layout) == (None, None, None)
    assert repr(made) == "Tensor('y', shape=(1, 2, 3, 4), dtype=int8, layout='NHWC')"


QUANTS = [
    None,
    Quant(np.dtype(np.int8), 0.25, 3, exact=True),
    Quant(np.dtype(np.int8), np.array([0.5, 2.0, 4.0]), axis=1, exact=True),
    Quant(np.dtype(np.int8), np.array([0.5, 1.0, 2.0, 4.0]), exact=True),
    Quant(np.dtype(np.int8), np.array([0.5]), exact=True),
]


@pytest.mark.parametrize("quant", QUANTS, ids=range(len(QUANTS)))
@pytest.mark.parametrize(
    "index",
    [0, -1, (0, slice(None), 3), (1, 2, 3), ..., slice(0, 1), (..., [0, 2]), ([0, 1], [2, 0]), (None, 1)],
    ids=str,
)
def test_a_part_is_the_same_part_of_the_real_values(quant: Quant | None, index: Any) -> None:
    stored = np.arange(24, dtype=np.int8).reshape(2, 3, 4)
    made = tensor(stored, stored.shape, quant)
    part = made[index]
    np.testing.assert_array_equal(part, made.real()[index])
    assert part.dtype == np.float32


def test_a_part_of_floats_and_complex_numbers() -> None:
    floats = np.arange(6, dtype=np.float16).reshape(2, 3)
    assert tensor(floats, (2, 3))[1].tolist() == [3.0, 4.0, 5.0]
    pairs = np.array([[1 + 2j, 3 - 4j]], np.complex64)
    assert tensor(pairs, (1, 2))[0, 1].tolist() == [3.0, -4.0]


def test_a_part_of_what_has_no_real_values_is_refused() -> None:
    with pytest.raises(ValuesError, match="six decimals"):
        tensor(np.zeros((2, 2), np.int8), (2, 2), Quant(np.dtype(np.int8), 0.5))[0]
    with pytest.raises(ValuesError, match="are not numbers"):
        tensor(np.array(["a"]), (1,))[0]
    with pytest.raises(IndexError):
        tensor(np.zeros(2, np.float32), (2,))[2]


def test_a_part_reads_only_its_pages(tmp_path: Path) -> None:
    size = 64 << 20
    with open(tmp_path / "values", "wb") as file:
        file.truncate(size)
    mapped = map_file(tmp_path / "values")
    info = TensorInfo("x", (16, size // 16), np.dtype(np.uint8), quant=Quant(np.dtype(np.uint8), 0.5, exact=True))
    made = Tensor(info, loader(mapped, info.dtype, size, 0))
    tracemalloc.start()
    assert made[3, :100].tolist() == [0.0] * 100
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_numpy_takes_the_real_values() -> None:
    made = tensor(np.array([1, 3], np.uint8), (2,), Quant(np.dtype(np.uint8), 0.5, 1, exact=True))
    assert np.asarray(made).tolist() == [0.0, 1.0] and np.asarray(made).dtype == np.float32
    assert np.asarray(made, np.float64).dtype == np.float64
    assert (np.array(made) + 1).tolist() == [1.0, 2.0]
    floats = np.ones(3, np.float32)
    own = tensor(floats, (3,))
    assert np.shares_memory(np.asarray(own), floats) and not np.shares_memory(own.__array__(copy=True), floats)
    assert np.shares_memory(own.__array__(copy=False), floats)
    with pytest.raises(ValueError, match="copy=False is not possible"):
        made.__array__(copy=False)


def test_layouts() -> None:
    nchw = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    made = Tensor.of("x", nchw, layout="NCHW")
    assert made.real("logical") is nchw and made.real("NCHW") is nchw
    np.testing.assert_array_equal(made.real(layout="NHWC"), nchw.transpose(0, 2, 3, 1))
    with pytest.raises(ValuesError, match="cannot be converted to NCDHW: its layout is NCHW"):
        made.real("NCDHW")
    with pytest.raises(ValuesError, match="cannot be converted to NHWC: its layout is unknown"):
        Tensor.of("x", nchw).real("NHWC")


def test_scales_follow_their_axis_into_another_layout() -> None:
    quant = Quant(np.dtype(np.int8), np.array([0.5, 2.0]), axis=1, exact=True)
    made = Tensor.of("x", np.arange(24, dtype=np.int8).reshape(1, 2, 3, 4), layout="NCHW", quant=quant)
    np.testing.assert_array_equal(made.real("NHWC"), made.real().transpose(0, 2, 3, 1))


def test_a_device_layout_is_undone() -> None:
    nchw = np.arange(5 * 12, dtype=np.float32).reshape(1, 5, 3, 4)
    made = Tensor.of("x", to_device(nchw, "NCHW", "NC1HWC0"), layout="NC1HWC0", origin=Origin(nchw.shape, "NCHW"))
    assert made.real().shape == (1, 1, 3, 4, 16)
    np.testing.assert_array_equal(made.real("logical"), nchw)
    np.testing.assert_array_equal(made.real("NHWC"), nchw.transpose(0, 2, 3, 1))
    with pytest.raises(ValuesError, match="does not give the original shape"):
        Tensor.of("x", made.stored(), layout="NC1HWC0").real("logical")


def test_what_is_closed_has_no_values() -> None:
    made = Tensor.of("x", np.ones(2, np.float32))
    kept = made.real()
    made.close("the dump a.bin")
    for ask in (made.raw, made.stored, made.real, lambda: made[0], lambda: np.asarray(made)):
        with pytest.raises(ValuesError, match=r"^the values of tensor 'x' cannot be read: the dump a.bin was closed"):
            ask()
    assert kept.tolist() == [1.0, 1.0] and made.shape == (2,)


@pytest.mark.parametrize(
    ("shape", "dtype", "size", "refused"),
    [
        ((1, 2, 3, 10), np.uint8, 128, True),  # 6 pixels of 16 bytes, up to 64: 128
        ((1, 2, 3, 10), np.uint8, 96, False),  # not rounded up to 64: no buffer of the hardware's
        ((1, 2, 3, 10), np.uint8, 192, False),
        ((1, 2, 3, 16), np.uint8, 128, False),  # no channel is missing: only the end is padded
        ((1, 2, 3, 8), np.int16, 64, False),
        ((1, 2, 3, 7), np.int16, 64, True),  # 6 pixels of 8 int16 are 96 bytes, up to 128: 64 values
        ((2, 3), np.int32, 16, True),  # 2 rows of 4 int32 are 32 bytes, up to 64
        ((5,), np.int8, 64, True),
        ((5,), np.bool_, 64, True),
        ((2, 3), np.float32, 16, False),  # floats are never padded
        ((), np.int32, 16, False),
        ((0, 5), np.uint8, 0, False),
    ],
)
def test_which_payloads_are_padded_buffers(shape, dtype, size, refused):
    values = np.arange(size).astype(dtype)
    tensor = Tensor(TensorInfo("x", shape, values.dtype), lambda: values)
    if refused:
        with pytest.raises(ValuesError, match="padded hardware buffer"):
            tensor.stored()
        return
    np.testing.assert_array_equal(tensor.stored(), values[: math.prod(shape)].reshape(shape))


def test_a_payload_of_the_right_size_takes_its_shape_and_one_value_less_does_not():
    values = np.arange(6, dtype=np.float32)
    assert Tensor(TensorInfo("x", (2, 3), values.dtype), lambda: values).stored().tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(FormatError, match=r"holds 6 values, but its shape \[7\] needs 7"):
        Tensor(TensorInfo("x", (7,), values.dtype), lambda: values).stored()


@pytest.mark.parametrize(
    ("scale", "axis", "shape", "fits"),
    [
        (0.5, None, (2, 3), True),
        (np.array(0.5), None, (2, 3), True),
        (np.array([0.5]), None, (2, 3), True),
        (np.array([0.5]), 0, (2, 3), False),
        (np.array([0.5]), 0, (1, 3), True),
        (np.ones(3), None, (2, 3), True),  # no axis named: the last one
        (np.ones(2), None, (2, 3), False),
        (np.ones(2), 0, (2, 3), True),
        (np.ones(3), 0, (2, 3), False),
        (np.ones(3), 1, (2, 3), True),
        (np.ones(3), 2, (2, 3), False),
        (np.ones(3), 3, (2, 3), False),
        (np.ones(3), -1, (2, 3), False),
        (np.ones((1, 3)), 1, (2, 3), False),
        (np.ones(3), None, None, False),
        (np.ones(3), None, (), False),
    ],
)
def test_how_many_scales_fit_a_shape(scale, axis, shape, fits):
    info = TensorInfo("x", shape, U8, quant=Quant(U8, scale, axis=axis, exact=True))
    assert scale_fits(info) is fits
    if not fits and shape is not None:
        with pytest.raises(ValuesError, match=f"has {np.size(scale)} scales along axis {axis}"):
            dequantise(np.zeros(shape, U8), info)


def test_without_quantisation_anything_fits():
    assert scale_fits(TensorInfo("x", (2, 3), U8))
    assert dequantise(np.array([3], U8), TensorInfo("x", (1,), U8)).dtype == np.float32


@pytest.mark.parametrize(
    ("axis", "scale", "expected"),
    [
        (None, [1.0, 10.0, 100.0], [[0, 10, 200], [3, 40, 500]]),
        (1, [1.0, 10.0, 100.0], [[0, 10, 200], [3, 40, 500]]),
        (0, [1.0, 10.0], [[0, 1, 2], [30, 40, 50]]),
    ],
)
def test_scales_per_channel_run_along_their_axis(axis, scale, expected):
    quant = Quant(U8, np.array(scale), axis=axis, exact=True)
    stored = np.arange(6, dtype=np.uint8).reshape(2, 3)
    assert Tensor.of("x", stored, quant=quant).real().tolist() == expected


def test_a_part_is_what_the_whole_is():
    stored = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    channels = Quant(U8, np.array([0.5, 1.0, 2.0]), 3, axis=1, exact=True)
    for tensor in (
        Tensor.of("x", stored, quant=Quant(U8, 0.5, 3, exact=True)),
        Tensor.of("x", stored, quant=channels),
        Tensor.of("x", stored),
        Tensor.of("x", values, quant=channels),  # dequantised already: it only says what it was
        Tensor.of("x", values > 3),
        Tensor.of("x", values + 2j * values),
    ):
        real = tensor.real()
        for index in (
            0,
            (1, 2),
            (0, 1, 2),
            (slice(None), 1),
            (slice(None), slice(None), 3),
            (slice(None, None, -1), slice(1, 3)),
        ):
            np.testing.assert_array_equal(tensor[index], real[index])
            assert tensor[index].dtype == np.float32
        np.testing.assert_array_equal(tensor[values > 7], real[values > 7])


def test_the_zero_point_is_taken_off_before_anything_overflows():
    stored = np.array([-(2**31), 2**31 - 1], np.int32)
    real = Tensor.of("x", stored, quant=Quant(stored.dtype, 1.0, 5, exact=True)).real()
    assert real.dtype == np.float32 and real.tolist() == [float(np.float32(-(2**31) - 5)), float(np.float32(2**31 - 6))]


def test_wide_complex_values_become_float32_without_a_word():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = np.array([1e300 - 1e-300j, 1.5 + 2.5j])
        real = Tensor.of("x", values).real()
        assert real.dtype == np.float32 and real.tolist() == [[math.inf, 0], [1.5, 2.5]]
        assert Tensor.of("x", np.array([1e300])).real().tolist() == [math.inf]


def test_which_tensors_are_dequantised_chunk_by_chunk():
    stored = np.array([1, 2, 3], U8)
    of_file = Quant(U8, 0.5, 1, exact=True)
    values = values_of(Tensor.of("x", stored, quant=of_file))
    assert values.array is stored and values.to_real is not None
    assert values.to_real(stored[1:]).tolist() == [0.5, 1.0]
    assert values.of(stored[:1]).to_real is values.to_real and values.of(stored[:1]).array.size == 1

    given = values_of(Tensor.of("x", stored, quant=of_file), Quant(U8, 2.0, exact=True))
    assert given.to_real is not None and given.to_real(stored).tolist() == [2, 4, 6]

    per_channel = Quant(U8, np.array([1.0, 2.0, 3.0]), axis=0, exact=True)
    whole = values_of(Tensor.of("x", stored, quant=per_channel))
    assert whole.to_real is None and whole.array.tolist() == [1, 4, 9]

    plain = values_of(Tensor.of("x", stored))
    assert plain.to_real is None and plain.array is stored
    floats = np.array([1.5], np.float32)
    dequantised = values_of(Tensor.of("x", floats, quant=of_file))  # it only says what it was
    assert dequantised.to_real is None and dequantised.array is floats
    assert values_of(Tensor.of("x", np.array([1 + 2j]))).array.tolist() == [[1, 2]]


def test_integers_without_a_true_scale_and_texts_have_no_real_values():
    with pytest.raises(ValuesError, match="six decimals"):
        values_of(Tensor.of("x", np.array([1], U8), quant=Quant(U8, 0.5)))
    with pytest.raises(ValuesError, match="are not numbers"):
        values_of(Tensor.of("x", np.array(["a"])))
