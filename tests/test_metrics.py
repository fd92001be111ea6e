"""The metrics against plain whole-array formulas in high precision, and their edges."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sgsdump.comparing.sums import CHUNK, Values, chunks, pair_sums
from sgsdump.metric import metrics

FLOATS = st.floats(-1e6, 1e6, width=32)


def measured(a, b) -> dict[str, float]:
    sums = pair_sums(Values(np.asarray(a)), Values(np.asarray(b)))
    return {name: metrics()[name].of(sums) for name in metrics()}


@given(st.integers(1, 50).flatmap(lambda n: st.tuples(*[arrays(np.float32, n, elements=FLOATS)] * 2)))
def test_formulas(pair):
    a, b = (x.astype(np.float64) for x in pair)
    found = measured(*pair)
    assert math.isclose(found["mse"], math.fsum((a - b) ** 2) / a.size, rel_tol=1e-12)
    if b.any():
        assert math.isclose(found["rmse"], math.fsum(abs(a - b)) / math.fsum(abs(b)), rel_tol=1e-12)
    if np.linalg.norm(a) > 1e-30 and np.linalg.norm(b) > 1e-30:
        expected = math.fsum(a * b) / math.sqrt(math.fsum(a * a) * math.fsum(b * b))
        assert found["cos"] == pytest.approx(expected, abs=1e-12)


def test_zeros_are_shown_honestly():
    zeros, ones = np.zeros(8, np.float32), np.ones(8, np.float32)
    assert math.isnan(measured(zeros, ones)["cos"]) and measured(zeros, ones)["rmse"] == 1
    assert math.isnan(measured(ones, zeros)["cos"]) and measured(ones, zeros)["rmse"] == math.inf
    both = measured(zeros, zeros)
    assert both["mse"] == 0 and math.isnan(both["cos"]) and math.isnan(both["rmse"])


def test_not_finite_is_counted_on_both_sides_and_kept():
    a, b = np.ones(3 * CHUNK, np.float32), np.ones(3 * CHUNK, np.float32)
    a[[1, CHUNK + 1]] = np.nan
    a[2] = np.inf
    b[-1] = -np.inf
    sums = pair_sums(Values(a), Values(b))
    assert (sums.sample_nan, sums.sample_inf, sums.benchmark_nan, sums.benchmark_inf) == (2, 1, 0, 1)
    assert all(math.isnan(metrics()[name].of(sums)) for name in metrics())


def test_inputs_stay_as_they_are_and_may_be_read_only_and_unaligned():
    payload = b"xyz" + np.arange(-5, 5, dtype=np.float32).tobytes()
    a = np.frombuffer(payload, np.float32, 10, 3)
    assert not a.flags.aligned and not a.flags.writeable
    assert measured(a, np.abs(a))["mse"] == pytest.approx(np.mean((a - np.abs(a)) ** 2))
    assert payload[3:] == np.arange(-5, 5, dtype=np.float32).tobytes()


@given(st.tuples(st.integers(1, 3), st.integers(1, 90), st.integers(1, 90), st.integers(1, 40)))
def test_chunks_cover_transposed_views_in_order(shape):
    b = np.arange(np.prod(shape)).reshape(shape).transpose(0, 3, 1, 2)
    a = np.ascontiguousarray(b)
    parts = list(chunks(a, b))
    assert all(x.size <= CHUNK and x.shape == y.shape for x, y in parts)
    for side in (0, 1):
        assert np.array_equal(np.concatenate([part[side] for part in parts]), a.reshape(-1))


def test_every_metric_says_what_it_is():
    for metric in metrics().values():
        assert metric.formula and metric.ideal == (1.0 if metric.higher_is_better else 0.0)
    same = measured(np.arange(5.0), np.arange(5.0))
    assert same == {"mse": 0.0, "cos": pytest.approx(1.0), "rmse": 0.0}
