"""Sums of rows and of their squares: in the order that is stated, value by value in Python's own floats, both ways."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sgsdump.tensors.one_pass import compiled
from sgsdump.tensors.one_pass.rows import LANES, moments

BOTH = pytest.mark.parametrize("kernel", [compiled._KERNEL, None], ids=["compiled", "numpy"])
FLOATS = st.floats(-(2.0**60), 2.0**60, width=32) | st.sampled_from([-0.0, 1e-45, 3.0])


@pytest.fixture(autouse=True)
def _kernel(request, monkeypatch):
    kernel = request.getfixturevalue("kernel")
    if kernel is None and "compiled" in request.node.name:
        pytest.skip("the kernel is not built, or is switched off")
    monkeypatch.setattr(compiled, "_KERNEL", kernel)


def added(values):
    """Of one row."""
    lanes = [0.0] * LANES
    for i, value in enumerate(values):
        lanes[i % LANES] += value
    total = lanes[0]
    for lane in lanes[1:]:
        total += lane
    return total


@BOTH
@settings(deadline=None)
@given(rows=st.tuples(st.integers(1, 3), st.integers(1, 300)).flatmap(lambda s: arrays(np.float32, s, elements=FLOATS)))
def test_sums_are_those_of_adding_value_by_value(kernel, rows):
    compiled._KERNEL = kernel
    sums, squares = moments(rows)
    exact = rows.astype(np.float64).tolist()
    expected = [added(row) for row in exact], [added([value * value for value in row]) for row in exact]
    assert (sums.tobytes(), squares.tobytes()) == tuple(np.array(each).tobytes() for each in expected)


@BOTH
@pytest.mark.parametrize("columns", [1, 15, 16, 17, 127, 128, 129, 144, 5000])
def test_nothing_is_left_out_at_any_length(kernel, columns):
    rows = np.random.default_rng(columns).normal(1, 2, (4, columns)).astype(np.float32)
    for each in (rows, rows.astype(np.float64), rows[:, ::-1], np.asfortranarray(rows)):
        sums, squares = moments(each)
        for row, found, square in zip(each.astype(np.float64), sums, squares):
            assert found == pytest.approx(math.fsum(row), rel=1e-12, abs=1e-12)
            assert square == pytest.approx(math.fsum(row * row), rel=1e-12)
