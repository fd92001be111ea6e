"""Counts against numpy's own histogram; merging against counting everything at once."""

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgsdump.fixedpoint.quantisation.ranges.statistics import SIDE, SMALLEST, ValueHistogram, count_values
from sgsdump.tensors.one_pass import compiled

NUMBERS = st.floats(-1e6, 1e6, width=32, allow_subnormal=False) | st.sampled_from(
    [0.0, -0.0, 1.0, -1.0, 2.0**-20, 1023.999, -1024.0]
)


def same(a: ValueHistogram, b: ValueHistogram) -> bool:
    return (a.exponent, a.zeros) == (b.exponent, b.zeros) and np.array_equal(a.counts, b.counts)


@given(st.lists(NUMBERS, min_size=1, max_size=50))
def test_counts_are_numpys(values):
    array = np.array(values, np.float32)
    found = count_values(array)
    edges = np.arange(-SIDE, SIDE + 1) * found.width
    expected, _ = np.histogram(array[array != 0].astype(np.float64), edges)
    np.testing.assert_array_equal(found.counts, expected)
    assert found.zeros == (array == 0).sum() and found.total == array.size


@pytest.mark.parametrize("largest", [1e-38, 0.7, 3e38])
@pytest.mark.parametrize("size", [1, 1023, 1024, 1025, 70_001])
def test_the_kernel_counts_what_numpy_counts(monkeypatch, size, largest):
    rng = np.random.default_rng(size)
    drawn = rng.choice([0, -0.0, 1, -1, 1e-4, 1], size) * rng.choice([1, 0.5, 2**-13, 1e-9], size)
    array = (drawn * rng.choice([1, rng.random()], size) * largest).astype(np.float32)
    counted = count_values(array)
    monkeypatch.setattr(compiled, "_KERNEL", None)
    assert same(counted, count_values(array))


@given(st.lists(st.lists(NUMBERS, min_size=1, max_size=8), min_size=1, max_size=6), st.randoms())
def test_any_order_of_merging_is_counting_at_once(parts, random):
    at_once = count_values(np.array([v for part in parts for v in part], np.float32))
    random.shuffle(parts)
    merged = reduce(ValueHistogram.merged, (count_values(np.array(part, np.float32)) for part in parts))
    assert same(merged, at_once)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_float_type(dtype):
    found = count_values(np.array([[0.5, -0.25], [0.0, 1.0]], dtype))
    assert (found.exponent, found.zeros, found.total) == (1, 1, 4)
    middles, counts = found.filled()
    np.testing.assert_allclose(middles, [-0.25, 0.5, 1.0], atol=found.width)
    assert counts.tolist() == [1, 1, 1]


def test_zeros_only():
    found = count_values(np.zeros((2, 3), np.float32))
    assert found.zeros == found.total == 6 and not found.counts.any()


def test_the_documented_numbers():
    assert SIDE == 4096 and SMALLEST == -100


@pytest.mark.parametrize(
    ("value", "exponent"), [(0.75, 0), (1.0, 1), (-1.0, 1), (2.0**-99, -98), (2.0**-101, -100), (2.0**-120, -100)]
)
def test_the_span_is_the_power_of_two_above_the_largest(value, exponent):
    found = count_values(np.array([value], np.float32))
    assert (found.exponent, found.width) == (exponent, 2.0**exponent / 4096)
    ((middle,), _) = found.filled()
    assert middle == (np.floor(value / found.width) + 0.5) * found.width


def test_values_far_apart_merge_into_the_bins_beside_zero():
    small, large = (count_values(np.array([-value, value], np.float32)) for value in (2.0**-100, 2.0**100))
    merged = small.merged(large)
    assert merged.counts[[SIDE - 1, SIDE]].tolist() == [1, 1] and merged.total == 4


def test_of_no_values_nothing_is_counted():
    empty = count_values(np.zeros((0, 3), np.float32))
    assert (empty.exponent, empty.zeros, empty.total) == (SMALLEST, 0, 0)
    some = count_values(np.array([0.75], np.float32))
    assert empty.merged(some).exponent == some.exponent == 0 and np.array_equal(empty.merged(some).counts, some.counts)
    assert empty.counts.shape == (2 * SIDE,)
