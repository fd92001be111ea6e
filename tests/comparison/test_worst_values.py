"""The elements farthest apart: against a whole sort, over chunks, layouts, quantised values, NaN and wide integers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sgsdump.comparison.worst_values import worst_values
from sgsdump.dumps.dump import Dump, Record
from sgsdump.errors import ConfigError, ValuesError
from sgsdump.tensors.tensor import Quant, Tensor
from sgsdump.tensors.types import to_nchw


def dumped(array: np.ndarray, name: str = "x", **facts: object) -> Dump:
    return Dump([Record("out", 0, 0, "Conv", Tensor.of(name, array, **facts))])  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [1, 20, 1000])
def test_a_whole_sort_gives_the_same(count: int) -> None:
    rng = np.random.default_rng(0)
    b = rng.standard_normal((3, 150, 211)).astype(np.float32)  # three chunks
    a = b + (rng.integers(-50, 50, b.shape) / 16).astype(np.float32)  # many equal errors
    found = worst_values(dumped(a), dumped(b), "x", count)
    errors = np.abs(a.astype(np.float64) - b)
    order = np.argsort(-errors, axis=None, kind="stable")[:count]
    assert [np.ravel_multi_index(value.index, b.shape) for value in found.values] == order.tolist()
    assert [value.error for value in found.values] == errors.reshape(-1)[order].tolist()
    assert [value.sample for value in found.values] == a.reshape(-1)[order].tolist()
    assert [value.benchmark for value in found.values] == b.reshape(-1)[order].tolist()
    assert found.values[0].relative == pytest.approx(errors.max() / abs(found.values[0].benchmark))
    assert found.differing == np.count_nonzero(errors) and found.shape == b.shape


def test_equal_values_are_not_listed() -> None:
    a = np.array([1, np.nan, np.inf, -np.inf, 2.5], np.float32)
    assert not worst_values(dumped(a), dumped(a), "x", 3).values
    b = a + np.array([0, 0, 0, 0, 1], np.float32)
    (value,) = worst_values(dumped(a), dumped(b), "x", 3).values
    assert (value.index, value.sample, value.benchmark, value.error) == ((4,), 2.5, 3.5, 1.0)


def test_what_is_not_finite_on_one_side_comes_first() -> None:
    a = np.array([9, np.nan, np.inf, -np.inf, 1], np.float32)
    b = np.array([1, 1, -np.inf, -np.inf, np.nan], np.float32)
    found = worst_values(dumped(a), dumped(b), "x", 9)
    assert [value.index for value in found.values] == [(1,), (2,), (4,), (0,)] and found.differing == 4
    assert [value.error for value in found.values] == [math.inf] * 3 + [8.0]


def test_integers_of_64_bits_and_a_benchmark_of_zero() -> None:
    b = np.array([2**62, 0, 5], np.int64)
    found = worst_values(dumped(b + 1), dumped(b), "x", 3)
    assert [(value.sample, value.benchmark, value.error) for value in found.values] == [
        (2**62 + 1, 2**62, 1.0),
        (1, 0, 1.0),
        (6, 5, 1.0),
    ]
    assert found.values[1].relative == math.inf


def test_real_values_in_the_samples_layout() -> None:
    quant = Quant(np.dtype(np.uint8), 0.5, 128, exact=True)
    stored = np.arange(100, 124, dtype=np.uint8).reshape(1, 2, 3, 4)
    real = to_nchw((stored.astype(np.float32) - 128) / 2).copy()
    real[0, 3, 1, 2] += 7
    found = worst_values(dumped(stored, quant=quant, layout="NHWC"), dumped(real, layout="NCHW"), "x", 3)
    (value,) = found.values
    assert value.index == (0, 1, 2, 3) and value.error == 7 and value.benchmark - value.sample == 7
    assert value.sample == (float(stored[0, 1, 2, 3]) - 128) / 2
    assert "transposed NCHW to NHWC" in found.note


def test_trouble() -> None:
    a, b = dumped(np.zeros(3, np.float32)), dumped(np.zeros(4, np.float32))
    with pytest.raises(ValuesError, match="sizes differ"):
        worst_values(a, b, "x", 1)
    with pytest.raises(ConfigError, match="'z' is not among the compared tensors"):
        worst_values(a, b, "z", 1)
    with pytest.raises(
        ConfigError, match="'y' is not among the compared tensors: no output of this name in the sample"
    ):
        worst_values(a, dumped(np.zeros(3, np.float32), "y"), "y", 1)
    with pytest.raises(ConfigError, match="must be 1 or more, not 0"):
        worst_values(a, a, "x", 0)
