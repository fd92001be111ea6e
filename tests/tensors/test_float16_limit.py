"""float16 values that are ±65504 are counted, whatever the array's order, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from sgsdump.tensors.statistics import LARGEST, saturated


def test_the_largest_float16_is_the_standards() -> None:
    assert float(np.finfo(np.float16).max) == LARGEST


@pytest.mark.parametrize("order", ["<f2", ">f2"])
def test_every_value_at_the_end_of_the_type_is_counted(order: str) -> None:
    """All 65536 bit patterns: two of them are ±65504."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(order)
    assert saturated(every) == int(np.count_nonzero(np.abs(every.astype(np.float64)) == LARGEST)) == 2
    assert saturated(np.tile(every.reshape(256, 256).T, (1, 20))) == 40


@pytest.mark.parametrize("array", [np.float32([65504]), np.int16([0x7BFF]), np.float16([]), np.float64([65504])])
def test_other_types_have_none(array: np.ndarray) -> None:
    assert saturated(array) == 0
