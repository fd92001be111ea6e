"""One-pass statistics against whole-array numpy in longer precision.

float16 values that are ±65504 are counted, whatever the array's order, and no others.
"""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sgsdump.tensors import statistics
from sgsdump.tensors.statistics import (
    LARGEST,
    count_outside,
    histogram,
    l1norm_and_std,
    narrowest_span,
    saturated,
    summarise,
)

FLOATS = hnp.arrays(np.float32, st.integers(0, 60), elements=st.floats(width=32, allow_nan=True, allow_infinity=True))
DOUBLES = hnp.arrays(np.float64, st.integers(1, 60), elements=st.floats(allow_nan=True, allow_infinity=True))
INTEGERS = hnp.arrays(st.sampled_from(["u1", "i1", "<i2", "<i4", "?"]), hnp.array_shapes(max_dims=4, max_side=5))


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """So that short arrays have several chunks and a short last one."""
    monkeypatch.setattr(statistics, "CHUNK", 8)


def check(values):
    found = summarise(values)
    flat = np.asarray(values, np.longdouble).reshape(-1)
    finite = flat[np.isfinite(flat)]
    assert found.count == flat.size
    assert found.nan == np.isnan(flat).sum()
    assert found.inf == np.isinf(flat).sum()
    assert found.finite == finite.size
    if not finite.size:
        assert found.min is found.max is found.mean is found.l2norm is None
        return
    assert (found.min, found.max) == (finite.min(), finite.max())
    largest = float(np.abs(finite).max())
    assert found.mean == pytest.approx(float(finite.mean()), rel=1e-12, abs=1e-14 * largest)
    norm = np.sqrt((finite**2).sum())
    if largest > 1e-140 and norm < 1.7e308:
        assert found.l2norm == pytest.approx(float(norm), rel=1e-12)


@settings(deadline=None)
@given(st.one_of(FLOATS, DOUBLES, INTEGERS))
def test_summary_equals_numpy(values):
    check(values)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 16, 17])
@pytest.mark.parametrize("bad", [None, np.nan, np.inf, -np.inf])
def test_chunk_edges(count, bad):
    values = np.arange(count, dtype=np.float32) - 4
    if bad is not None and count:
        values[-1] = bad
    check(values)


def test_sums_beyond_float64():
    check(np.array([1e300, -1e300, 1e300, 5e299] * 5))


@pytest.mark.parametrize("view", [lambda a: a.T, lambda a: a[::3, ::-2], lambda a: a[:0]])
def test_strided_and_empty_views(view):
    check(view(np.arange(77, dtype=np.float32).reshape(7, 11)))


def unaligned(values):
    shifted = np.frombuffer(b"x" + values.tobytes(), np.uint8)[1:].view(values.dtype)
    assert not shifted.flags.aligned
    return shifted


def test_unaligned_memory():
    check(unaligned(np.linspace(-3, 9, 100, dtype=np.float32)))


def test_no_temporary_as_large_as_the_tensor(monkeypatch):
    monkeypatch.setattr(statistics, "CHUNK", 32 * 1024)
    values = unaligned(np.linspace(-3, 9, 2_000_000, dtype=np.float32))
    tracemalloc.start()
    summarise(values)
    histogram(values, -3, 9, 4096)
    count_outside(values, -1, 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < values.nbytes / 3


@settings(deadline=None)
@given(FLOATS, st.sampled_from([1, 3, 256]))
def test_histogram_counts_all_finite_values(values, bins):
    found = summarise(values)
    if not found.finite:
        return
    counts = histogram(values, found.min, found.max, bins)
    assert counts.sum() == found.finite
    finite = values[np.isfinite(values)].astype(np.float64)
    if found.min == found.max:
        assert counts[bins // 2] == found.finite
        return
    width = found.max - found.min
    for edge in range(1, bins):
        # An exact oracle but for values within rounding of the edge, which may fall on either side.
        place = found.min + width * edge / bins
        slack = width * 1e-12
        below = counts[:edge].sum()
        assert (finite < place - slack).sum() <= below <= (finite < place + slack).sum()


def test_histogram_equals_numpy_where_edges_are_exact():
    values = np.random.default_rng(0).integers(-40, 41, 1000).astype(np.float32) / 4
    counts = histogram(values, -8, 8, 64)
    assert counts.tolist() == np.histogram(values, 64, (-8, 8))[0].tolist()


@settings(deadline=None)
@given(FLOATS, st.floats(-1e38, 1e38), st.floats(1e-3, 3e38), st.sampled_from([1, 7, 256]))
def test_histogram_is_the_same_without_the_compiled_pass(values, low, width, bins):
    found = histogram(values, low, low + width, bins)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics.compiled, "takes", lambda values: False)
        assert found.tolist() == histogram(values, low, low + width, bins).tolist()


def test_histogram_of_many_values_is_the_same_without_the_compiled_pass(monkeypatch):
    values = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
    ends = [(float(values.min()), float(values.max())), (-0.3, 0.7), (1.0, 1.5)]
    found = [histogram(values, *span, 300).tolist() for span in ends]
    monkeypatch.setattr(statistics.compiled, "takes", lambda values: False)
    assert found == [histogram(values, *span, 300).tolist() for span in ends]


ODD = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 3.4028235e38, -3.4028235e38]
SIZES = [0, 1, 7, 8, 9, 15, 16, 127, 128, 129, 136, 137, 255, 256, 257, 1000, 32767, 32768, 32769, 70_000]
VIEWS = [
    lambda a: a,
    lambda a: a[::-1],
    lambda a: a[::3],
    lambda a: a[: a.size // 6 * 6].reshape(2, -1, 3).transpose(2, 0, 1),
    lambda a: a[: a.size // 4 * 4].reshape(4, -1)[:, :-1].T,
    lambda a: unaligned(a) if a.size else a,
]


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from(SIZES),
    st.integers(0, 2**32),
    st.integers(-40, 38),
    st.lists(st.sampled_from(ODD), max_size=40),
    st.sampled_from(VIEWS),
    st.sampled_from([1, 8, 131, 32 * 1024]),
)
def test_the_compiled_pass_changes_no_bit(size, seed, power, odd, view, chunk):
    rng = np.random.default_rng(seed)
    with np.errstate(over="ignore"):
        values = (rng.standard_normal(size) * 10.0**power).astype(np.float32)
    if size:
        values[rng.integers(0, size, len(odd))] = odd
    values = view(values)
    span = float(np.float32(-0.5 * 10.0**power)), float(np.float32(0.7 * 10.0**power))

    def found():
        figures = summarise(values)
        return repr(figures), histogram(values, *span, 300).tolist(), count_outside(values, *span)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "CHUNK", max(chunk, size // 500))
        compiled = found()
        patch.setattr(statistics.compiled, "_KERNEL", None)
        assert compiled == found()


@pytest.mark.parametrize(
    ("low", "high"), [(-1, 1), (0, 6), (-3.3, 4.7), (1000, 1000.5), (-1e-38, 3e-38), (-3e38, 3e38)]
)
@pytest.mark.parametrize("bins", [1, 7, 300, 4096, 10_000])
def test_values_around_edges_are_counted_the_same_without_the_compiled_pass(monkeypatch, low, high, bins):
    """Less than one of 16 values is so close to an edge that the compiled pass divides."""
    low, high = float(np.float32(low)), float(np.float32(high))
    edges = (low + (high - low) * np.arange(bins + 1) / bins).astype(np.float32)
    close = [edges, np.nextafter(edges, np.float32(np.inf)), np.nextafter(edges, np.float32(-np.inf))]
    sparse = np.linspace(low, high, 60 * 3 * len(edges)).astype(np.float32)
    sparse[::60] = np.concatenate(close)
    for values in (np.concatenate(close), sparse):
        found = histogram(values, low, high, bins).tolist()
        with monkeypatch.context() as patch:
            patch.setattr(statistics.compiled, "_KERNEL", None)
            assert found == histogram(values, low, high, bins).tolist()


def test_sums_have_the_order_of_numpy():
    values = (np.random.default_rng(0).standard_normal((5, 13, 101)) ** 9).astype(np.float32).transpose(1, 2, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "CHUNK", values.size)
        found = summarise(values)
    flat = values.ravel(order="K").astype(np.float64)
    assert found.mean == flat.sum() / flat.size
    assert found.l2norm == np.sqrt(np.square(flat).sum())


def test_the_zero_that_is_an_extreme_has_no_sign():
    for values in (np.zeros(5), np.array([-1, 1]).repeat(40)):
        for dtype in (np.float32, np.float64):
            signed = np.minimum(values.astype(dtype), -0.0)
            assert math.copysign(1, summarise(signed).max) == 1


def test_histogram_of_the_widest_doubles():
    values = np.array([-1.7e308, 0.0, 1.7e308])
    assert histogram(values, -1.7e308, 1.7e308, 4).tolist() == [1, 0, 1, 1]


@given(FLOATS, st.floats(-10, 0), st.floats(0, 10))
def test_count_outside(values, low, high):
    finite = values[np.isfinite(values)].astype(np.float64)
    assert count_outside(values, low, high) == ((finite < low) | (finite > high)).sum()


def test_the_narrowest_span_against_sorted_values():
    for values in (np.random.default_rng(1).normal(size=20_000), np.random.default_rng(2).exponential(size=20_000)):
        low, high = float(values.min()), float(values.max())
        counts = np.histogram(values, 4096, (low, high))[0]
        found = narrowest_span(counts, low, high)
        ordered, held = np.sort(values), math.ceil(0.99 * values.size)
        widths = ordered[held - 1 :] - ordered[: values.size - held + 1]
        assert found[1] - found[0] == pytest.approx(widths.min(), abs=2 * (high - low) / 4096)
        assert ((values >= found[0]) & (values <= found[1])).mean() >= 0.99


def test_narrowest_span_of_nothing_and_of_one_bin():
    assert all(map(math.isnan, narrowest_span(np.zeros(8, int), 0, 1)))
    assert narrowest_span(np.array([0, 0, 9, 0]), 0.0, 4.0) == (2.0, 3.0)


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


def test_chunks_without_a_finite_value_do_not_end_the_sums(monkeypatch):
    monkeypatch.setattr(statistics, "CHUNK", 4)
    values = np.array([np.nan, -np.inf, np.inf, -np.inf, 3, 4, 0, 0, np.nan, np.nan, np.nan, np.inf])
    found = summarise(values)
    assert (found.count, found.nan, found.inf, found.negative_inf, found.finite) == (12, 4, 4, 2, 4)
    assert (found.min, found.max, found.mean, found.l2norm) == (0, 4, 1.75, 5)


def test_parts_together_are_the_whole():
    values = np.array([1, -2, np.nan, np.inf, -np.inf, -np.inf, 8, 1], np.float64)
    whole = summarise(values)
    assert statistics.merged([summarise(values[:3]), summarise(values[3:6]), summarise(values[6:])]) == whole
    nothing = statistics.merged(iter([summarise(values[4:6]), summarise(values[2:3])]))
    assert (nothing.count, nothing.nan, nothing.inf, nothing.negative_inf) == (3, 1, 2, 2)
    assert (nothing.min, nothing.max, nothing.mean, nothing.l2norm) == (None,) * 4
    assert statistics.merged([]).count == 0


def test_a_mean_never_leaves_the_values():
    values = np.full(7, 0.1)
    assert summarise(values).mean == 0.1 and summarise(-values).mean == -0.1
    parts = [summarise(values[:3]), summarise(values)]
    assert statistics.merged(parts).mean == 0.1


@pytest.mark.parametrize(
    ("values", "low", "high", "bins", "counts"),
    [
        ([0, 1, 2, 3, 4], 0, 4, 4, [1, 1, 1, 2]),  # high itself is in the last bin
        ([-1, 0, 4, 5], 0, 4, 4, [1, 0, 0, 1]),  # values beyond are left out
        ([-1, 0.5], 0, 4, 4, [1, 0, 0, 0]),
        ([0.5, 5], 0, 4, 4, [1, 0, 0, 0]),
        ([np.nan, np.inf, 1], 0, 4, 4, [0, 1, 0, 0]),
        ([2, 2, 3, 1], 2, 2, 5, [0, 0, 2, 0, 0]),  # low == high: the middle bin
        ([2], 2, 2, 1, [1]),
        ([2], 2, 2, 2, [0, 1]),
        ([], 0, 1, 3, [0, 0, 0]),
        ([-3, -1, 1], -3, 1, 2, [1, 2]),
    ],
)
def test_where_a_histogram_counts(values, low, high, bins, counts):
    found = histogram(np.array(values, np.float64), low, high, bins)
    assert found.tolist() == counts and found.dtype == np.int64


@pytest.mark.parametrize(
    ("counts", "share", "span"),
    [
        ([25, 50, 25], 0.5, (1, 2)),  # exactly the share
        ([9, 82, 9], 0.8, (1, 2)),
        ([11, 78, 11], 0.8, (0, 2)),
        ([11, 80, 9], 0.8, (1, 2)),
        ([1, 98, 1], 0.99, (0, 2)),
        ([0, 0, 5], 0.99, (2, 3)),
        ([5, 0, 0], 0.99, (0, 1)),
        ([5, 0, 5], 1.0, (0, 3)),
    ],
)
def test_the_narrowest_span_leaves_out_at_most_its_share(counts, share, span):
    assert narrowest_span(np.array(counts), 0.0, 3.0, share) == pytest.approx(span)
    assert narrowest_span(np.array(counts), 6.0, 12.0, share) == pytest.approx([6 + 2 * end for end in span])


def test_the_share_is_99_percent_unless_said():
    assert narrowest_span(np.array([4, 992, 4]), 0.0, 3.0) == pytest.approx((1, 2))
    assert narrowest_span(np.array([6, 988, 6]), 0.0, 3.0) == pytest.approx((0, 2))
    assert all(map(math.isnan, narrowest_span(np.array([], int), 0.0, 1.0)))


def test_norm_of_magnitudes_and_deviation_are_of_the_finite_values():
    values = np.array([[-4, 1, np.nan], [0.5, np.inf, 0.25]], np.float32)
    finite = values[np.isfinite(values)].astype(np.float64)
    norm, deviation = l1norm_and_std(values, summarise(values).mean)
    assert (norm, deviation) == (pytest.approx(5.75), pytest.approx(np.std(finite, ddof=1)))
    assert l1norm_and_std(np.array([3.0]), 3.0) == (3.0, None)
    assert l1norm_and_std(np.array([np.nan]), None) == (None, None)
