"""The compiled kernel and numpy: the same bits, whatever the values; and sums that are right, by exact arithmetic."""

import math
import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sgsdump.comparison.pair_sums import pair_sums
from sgsdump.comparison.sums import compiled
from sgsdump.comparison.sums.lanes import CHUNK, LANES
from sgsdump.tensors.real_view import Values

kernel = compiled._KERNEL
compiled_only = pytest.mark.skipif(kernel is None, reason="the kernel is not built, or is switched off")
VECTORS = ("AVX-512", "AVX2", "plain C")
SIZES = (0, 1, LANES - 1, LANES, LANES + 1, 5 * LANES + 3, CHUNK - 1, CHUNK, CHUNK + LANES + 1, 3 * CHUNK + 1025)
ODD = [0.0, -0.0, math.nan, math.inf, -math.inf, 3.4e38, 1e-45, 1.0, -1.0, 16777217.0]
FLOATS = st.one_of(st.floats(width=32), st.sampled_from(ODD).map(lambda value: float(np.float32(value))))
PAIRS = st.integers(0, 600).flatmap(lambda n: st.tuples(*[arrays(np.float32, n, elements=FLOATS)] * 2))


@pytest.fixture(params=VECTORS)
def vectors(request):
    if kernel is None:
        pytest.skip("the kernel is not built, or is switched off")
    before = kernel.vectors()
    if not kernel.use(request.param):
        pytest.skip(f"no {request.param} on this processor")
    yield request.param
    assert kernel.use(before)


def bits(sums):
    """Every field to the last bit; one NaN is like another."""
    return [value.hex() if isinstance(value, float) else value for value in vars(sums).values()]


def by_numpy(a, b):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "_KERNEL", None)
        return pair_sums(a, b)


def both_ways(a, b):
    a, b = (side if isinstance(side, Values) else Values(side) for side in (a, b))
    assert compiled.takes(a.array, b.array), "else nothing is compared"
    return bits(pair_sums(a, b)), bits(by_numpy(a, b))


@pytest.mark.parametrize("size", SIZES)
def test_every_size(vectors, size):
    rng = np.random.default_rng(size)
    a, b = (rng.standard_normal(size).astype(np.float32) * 10.0 ** rng.integers(-5, 5) for _ in range(2))
    kernels, numpys = both_ways(a.astype(np.float32), b.astype(np.float32))
    assert kernels == numpys


@settings(max_examples=200)
@given(PAIRS)
@compiled_only
def test_whatever_is_drawn(pair):
    kernels, numpys = both_ways(*pair)
    assert kernels == numpys


def test_what_is_not_finite_is_counted_where_it_is(vectors):
    a, b = (np.ones(2 * CHUNK + 7, np.float32) for _ in range(2))
    a[[3, CHUNK, 2 * CHUNK + 6]] = np.nan, -np.inf, np.inf
    b[[3, CHUNK, 5]] = np.nan, np.inf, -np.inf
    sums = pair_sums(Values(a), Values(b))
    assert (sums.sample_nan, sums.sample_inf, sums.sample_minus_inf) == (1, 2, 1)
    assert (sums.benchmark_nan, sums.benchmark_inf, sums.benchmark_minus_inf) == (1, 2, 1)
    assert sums.odd_apart == 3
    kernels, numpys = both_ways(a, b)
    assert kernels == numpys


def test_values_at_odd_addresses(vectors):
    raw = np.frombuffer(bytes(range(256)) * 41, np.uint8)
    for start in range(1, 4):
        shifted = raw[start : start + 10240].view(np.float32)
        assert not shifted.flags.aligned
        kernels, numpys = both_ways(shifted, shifted[::-1].copy())
        assert kernels == numpys


@given(PAIRS)
def test_the_sums_are_right(pair):
    """Against exact rational arithmetic, whichever way is in use."""
    a, b = (np.where(np.isfinite(side), side, 0).astype(np.float32) for side in pair)
    sums = pair_sums(Values(a), Values(b))
    x, y = ([Fraction(float(value)) for value in side] for side in (a, b))
    exact = {
        "aa": [p * p for p in x],
        "bb": [q * q for q in y],
        "ab": [p * q for p, q in zip(x, y)],
        "dd": [(p - q) ** 2 for p, q in zip(x, y)],
        "d1": [abs(p - q) for p, q in zip(x, y)],
        "b1": [abs(q) for q in y],
    }
    for name, terms in exact.items():
        size = sum(map(abs, terms))
        assert abs(Fraction(getattr(sums, name)) - sum(terms)) <= size * Fraction(1, 10**13)


def test_the_kernel_can_be_left_out():
    code = "from sgsdump.comparison.sums.compiled import description; print(description())"
    environment = {**os.environ, "SGSDUMP_NO_KERNEL": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "numpy sums\n"
