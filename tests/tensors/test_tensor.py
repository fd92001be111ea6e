"""Tensor: stored and real values, cropping, padding, dequantising."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sgsdump import Quant, Tensor, TensorInfo
from sgsdump.errors import FormatError, ValuesError
from sgsdump.files.mapped import loader, map_file
from sgsdump.tensors.device import to_device
from sgsdump.tensors.real_values import scale_fits
from sgsdump.tensors.tensor import values_of
from sgsdump.tensors.types import Origin


def tensor(array: np.ndarray, shape: tuple[int, ...] | None = None, quant: Quant | None = None) -> Tensor:
    return Tensor(TensorInfo("x", shape, array.dtype, quant=quant), lambda: array)


def test_without_a_shape_the_values_are_flat() -> None:
    assert tensor(np.arange(6, dtype=np.float32)).stored().shape == (6,)


def test_a_larger_float_payload_is_cropped_to_its_shape() -> None:
    found = tensor(np.arange(16, dtype=np.float32), (1, 2, 2, 3))
    assert found.stored().tolist() == np.arange(12).reshape(1, 2, 2, 3).tolist()
    assert found.raw().size == 16


def test_a_smaller_payload_is_an_error() -> None:
    with pytest.raises(FormatError, match=r"'x' holds 5 values, its shape \[2, 3\] needs 6"):
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
    with pytest.raises(ValueError, match="cannot be had uncopied"):
        made.__array__(copy=False)


def test_layouts() -> None:
    nchw = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    made = Tensor.of("x", nchw, layout="NCHW")
    assert made.real("logical") is nchw and made.real("NCHW") is nchw
    np.testing.assert_array_equal(made.real(layout="NHWC"), nchw.transpose(0, 2, 3, 1))
    with pytest.raises(ValuesError, match="cannot become NCDHW: its layout is NCHW"):
        made.real("NCDHW")
    with pytest.raises(ValuesError, match="cannot become NHWC: its layout is unknown"):
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
