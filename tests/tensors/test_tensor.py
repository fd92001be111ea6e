"""Tensor: stored and real values, cropping, padding, dequantising."""

from __future__ import annotations

import numpy as np
import pytest

from sgsdump import Quant, Tensor, TensorInfo
from sgsdump.errors import FormatError, ValuesError


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
