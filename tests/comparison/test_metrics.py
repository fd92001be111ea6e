"""The metrics against plain whole-array formulas in high precision, and their edges."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sgsdump.comparison.metrics import METRICS, Accumulator, Settings
from sgsdump.comparison.sums.summation import CHUNK, chunks, pair_sums
from sgsdump.errors import ConfigError
from sgsdump.tensors.tensor import Values

FLOATS = st.floats(-1e6, 1e6, width=32)
PAIRS = st.integers(1, 50).flatmap(lambda n: st.tuples(*[arrays(np.float32, n, elements=FLOATS)] * 2))
SUMMED = ("mse", "cos", "rmse")


def tallied(a, b, settings=None):
    """The sums and the accumulators by class of one pass with every accumulator."""
    kinds = {metric.accumulator for metric in METRICS.values()} - {None}
    accumulators = {kind: kind(settings or Settings()) for kind in kinds}
    return pair_sums(Values(np.asarray(a)), Values(np.asarray(b)), tuple(accumulators.values())), accumulators


def measured(a, b, **settings) -> dict[str, float]:
    sums, accumulators = tallied(a, b, Settings(**settings))
    return {name: m.of(accumulators[m.accumulator] if m.accumulator else sums) for name, m in METRICS.items()}


@given(PAIRS)
def test_formulas(pair):
    a, b = (x.astype(np.float64) for x in pair)
    found = measured(*pair)
    assert math.isclose(found["mse"], math.fsum((a - b) ** 2) / a.size, rel_tol=1e-12)
    assert math.isclose(found["mae"], math.fsum(abs(a - b)) / a.size, rel_tol=1e-12)
    assert found["MeanAbsoluteError"] == found["mae"] and found["MaxAbsoluteError"] == abs(a - b).max()
    assert found["RootMeanSquareError"] == math.sqrt(found["mse"])
    if b.any():
        assert math.isclose(found["rmse"], math.fsum(abs(a - b)) / math.fsum(abs(b)), rel_tol=1e-12)
        assert found["diff1"] == found["rmse"]
    if np.linalg.norm(b) > 1e-30:
        expected = np.linalg.norm(a - b) / np.linalg.norm(b)
        assert found["diff2"] == pytest.approx(expected, rel=1e-12)
        assert found["RelativeEuclideanDistance"] == found["diff2"]
    if np.linalg.norm(a) > 1e-30 and np.linalg.norm(b) > 1e-30:
        expected = math.fsum(a * b) / math.sqrt(math.fsum(a * a) * math.fsum(b * b))
        assert found["cos"] == pytest.approx(expected, abs=1e-12) and found["CosineSimilarity"] == found["cos"]
    assert found["mape"] == pytest.approx(np.mean(abs(a - b) / (abs(b) + 1e-9)), rel=1e-12)
    assert found["StandardDeviation"] == pytest.approx(abs(a.std() - b.std()), rel=1e-9, abs=1e-9)


def test_quantiles_of_infinite_errors_warn_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = measured(np.array([1.0, 2.0, 3.0]), np.array([np.inf, -np.inf, 3.0]))
    assert not math.isfinite(found["median_error"])


def test_the_cosine_is_never_above_one() -> None:
    """A tensor with itself gave 1.0000000000000002 in some sizes."""
    rng = np.random.default_rng(0)
    for size in range(990, 1040):
        a = rng.standard_normal(size)
        for b, limit in ((a, 1.0), (-a, -1.0)):
            cosine = measured(a, b)["cos"]
            assert cosine == pytest.approx(limit, abs=1e-15) and abs(cosine) <= 1


@given(PAIRS, st.sampled_from([0.0, 1e-6, 1.0, 1e3]))
def test_diff3(pair, th1):
    a, b = (x.tolist() for x in pair)
    errors = [abs(x - y) / (abs(y) + 1e-9) if abs(y) > th1 else abs(x - y) for x, y in zip(a, b)]
    found = measured(*pair, th1=th1)
    assert found["diff3_max"] == pytest.approx(max(errors), rel=1e-12)
    assert found["diff3_mean"] == pytest.approx(math.fsum(errors) / len(errors), rel=1e-12)


@given(
    st.tuples(
        *[arrays(np.float64, 4, elements=st.floats(-2, 2) | st.sampled_from([math.nan, math.inf, -math.inf]))] * 2
    ),
    st.sampled_from([None, 0.0, 0.1]),
    st.sampled_from([None, 0.0, 0.5]),
)
def test_all_close_is_numpys(pair, rtol, atol):
    try:
        np.testing.assert_allclose(*pair, rtol=1e-6 if rtol is None else rtol, atol=1e-6 if atol is None else atol)
        expected = 1.0
    except AssertionError:
        expected = 0.0
    assert measured(*pair, rtol=rtol, atol=atol)["all_close"] == expected


@given(st.tuples(*[arrays(np.float64, 5, elements=st.integers(-2, 2).map(float))] * 2))
def test_relative_errors_leave_out_what_they_cannot_tell(pair):
    a, b = pair
    errors = [abs(x - y) / abs(y) if y else 0.0 for x, y in zip(a, b) if y or x == y]
    _, accumulators = tallied(a, b)
    of = {name: m.of(accumulators[m.accumulator]) for name, m in METRICS.items() if m.accumulator in accumulators}
    left_out = accumulators[METRICS["MaxRelativeError"].accumulator].left_out
    assert left_out == sum(1 for x, y in zip(a, b) if not y and x)
    if not errors:
        assert all(math.isnan(of[n]) for n in ("MaxRelativeError", "MeanRelativeError", "AccumulatedRelativeError"))
        return
    assert of["MaxRelativeError"] == pytest.approx(max(errors))
    assert of["AccumulatedRelativeError"] == pytest.approx(sum(errors))
    assert of["MeanRelativeError"] == pytest.approx(sum(errors) / len(errors))


def test_divergence_of_two_distributions():
    a, b = np.array([0.0, 1, 2, 5]), np.array([3.0, 4, 9, 5])
    p, q = (np.maximum((x - x.min()) / np.ptp(x), np.finfo(np.float32).eps) for x in (a, b))
    p, q = p / p.sum(), q / q.sum()
    assert measured(a, b)["KullbackLeiblerDivergence"] == pytest.approx(float(np.sum(p * np.log(p / q))))
    assert measured(np.full(4, 3.0), np.full(4, 4.0))["KullbackLeiblerDivergence"] == 0


@pytest.mark.parametrize(
    ("in_sample", "in_benchmark", "top1"),
    [(CHUNK + 5, CHUNK + 5, 1.0), (CHUNK + 5, 5, 0.0), (5, CHUNK + 5, 0.0), (2 * CHUNK, 0, 0.0), (5, 5, 1.0)],
)
def test_the_largest_of_several_chunks_is_known_by_its_index_in_all(in_sample, in_benchmark, top1):
    a, b = np.zeros((2, 2 * CHUNK + 1))
    a[in_sample] = b[in_benchmark] = 1
    assert measured(a, b)["top1"] == top1


def test_the_first_chunk_counts_where_the_largest_values_are_equal():
    a, b = np.zeros((2, 2 * CHUNK))
    a[[7, CHUNK + 7]] = b[7] = 1
    assert (measured(a, b)["top1"], measured(b, a)["top1"]) == (1.0, 1.0)


def test_chunks_make_no_difference():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(2 * CHUNK + 77) + 1000 for _ in range(2))
    found = measured(a, b)
    assert found["StandardDeviation"] == pytest.approx(abs(a.std() - b.std()), rel=1e-9)
    assert found["MaxAbsoluteError"] == abs(a - b).max() and found["MaxRelativeError"] == (abs(a - b) / abs(b)).max()
    p, q = (np.maximum((x - x.min()) / np.ptp(x), np.finfo(np.float32).eps) for x in (a, b))
    p, q = p / p.sum(), q / q.sum()
    assert found["KullbackLeiblerDivergence"] == pytest.approx(float(np.sum(p * np.log(p / q))), rel=1e-9)


def test_integers_of_64_bits_keep_their_difference():
    for dtype in (np.int64, np.uint64):
        a, b = np.array([2**60 + 1, 2**60, 3], dtype), np.array([2**60, 2**60 + 3, 3], dtype)
        found = measured(a, b)
        assert (found["mae"], found["MaxAbsoluteError"], found["all_close"]) == (4 / 3, 3.0, 1.0)
        assert measured(a, b, th1=0)["all_close"] == 0
    extremes = np.array([-(2**63), 2**63 - 1], np.int64)
    assert measured(extremes, extremes[::-1].copy())["MaxAbsoluteError"] == 2.0**64


def test_zeros_are_shown_honestly():
    zeros, ones = np.zeros(8, np.float32), np.ones(8, np.float32)
    assert math.isnan(measured(zeros, ones)["cos"]) and measured(zeros, ones)["rmse"] == 1
    assert math.isnan(measured(ones, zeros)["cos"]) and measured(ones, zeros)["rmse"] == math.inf
    both = measured(zeros, zeros)
    assert both["mse"] == 0 and math.isnan(both["cos"]) and math.isnan(both["rmse"])
    against_zero = measured(ones, zeros)
    assert against_zero["diff2"] == math.inf and math.isnan(against_zero["MaxRelativeError"])
    assert against_zero["mape"] == pytest.approx(1e9) and against_zero["diff3_max"] == 1


def test_not_finite_is_counted_on_both_sides_and_kept():
    a, b = np.ones(3 * CHUNK, np.float32), np.ones(3 * CHUNK, np.float32)
    a[[1, CHUNK + 1]] = np.nan
    a[2] = np.inf
    b[-1] = -np.inf
    sums = pair_sums(Values(a), Values(b))
    assert (sums.odd.sample_nan, sums.odd.sample_inf, sums.odd.benchmark_nan, sums.odd.benchmark_inf) == (2, 1, 0, 1)
    assert (sums.odd.sample_minus_inf, sums.odd.benchmark_minus_inf, sums.odd.odd_apart) == (0, 1, 4)
    assert all(math.isnan(METRICS[name].of(sums)) for name in SUMMED)


def test_odd_values_at_the_same_places_are_not_apart():
    a = np.array([np.nan, np.inf, -np.inf, 1])
    assert pair_sums(Values(a), Values(a.copy())).odd.odd_apart == 0
    assert pair_sums(Values(a), Values(-a)).odd.odd_apart == 2


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("base", [0.0, 1.0])
def test_no_metric_hides_a_value_that_is_not_finite(odd, side, base):
    pair = [np.array([base, 2.0, 3.0]), np.array([base, 2.0, 3.0])]
    pair[side][0] = odd
    found = measured(*pair)
    assert found.pop("nan_inf") == 1 and found.pop("all_close") == 0
    cosines = {found.pop("cos"), found.pop("CosineSimilarity")}
    assert all(not value or math.isnan(value) for value in cosines)
    assert not {name: value for name, value in found.items() if math.isfinite(value)}


def test_tallies_cannot_change_the_values_of_each_other():
    class Reading(Accumulator):
        def add(self, a, b, d):
            assert np.array_equal(d, a - b) and not d.flags.writeable

    pair_sums(Values(np.arange(9.0)), Values(np.ones(9)), (Reading(Settings()), Reading(Settings())))


def test_sums_are_the_same_with_and_without_tallies():
    a, b = np.random.default_rng(0).standard_normal((2, CHUNK + 5)).astype(np.float32)
    assert tallied(a, b)[0] == pair_sums(Values(a), Values(b))


def test_empty_tensors_have_no_error_and_no_mean():
    found = measured(np.zeros(0), np.zeros(0))
    assert (found["MaxAbsoluteError"], found["diff3_max"], found["all_close"]) == (0, 0, 1)
    assert math.isnan(found["mae"]) and math.isnan(found["KullbackLeiblerDivergence"])


def test_settings_refuse_what_nothing_could_meet():
    for setting in ("th1", "rtol", "atol"):
        with pytest.raises(ConfigError, match=setting):
            Settings(**{setting: -1})
        with pytest.raises(ConfigError, match=setting):
            Settings(**{setting: math.nan})


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
    for name, metric in METRICS.items():
        assert metric.name.lower() == name.lower() and metric.formula
        assert metric.ideal in ((1.0, math.inf) if metric.higher_is_better else (0.0,))
    same = measured(np.arange(5.0), np.arange(5.0))
    assert same == pytest.approx({name: metric.ideal for name, metric in METRICS.items()})


@pytest.mark.parametrize(("value", "close"), [(1e-6, 1.0), (1.1e-6, 0.0)])
def test_th1_is_a_millionth_where_none_is_given(value, close):
    assert measured(np.array([value]), np.array([0.0]))["all_close"] == close
    assert measured(np.array([2e-6]), np.array([1e-6]))["diff3_max"] == pytest.approx(1e-6)  # absolute up to th1
    assert measured(np.array([4e-6]), np.array([2e-6]))["diff3_max"] == pytest.approx(2e-6 / 2.001e-6)


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("diff1", "rmse"),
        ("CosineSimilarity", "cos"),
        ("mae", "MeanAbsoluteError"),
        ("diff2", "RelativeEuclideanDistance"),
    ],
)
def test_an_alias_is_the_same_formula_under_its_own_name(alias, name):
    one, other = METRICS[alias], METRICS[name]
    assert one.of is other.of and one.name == alias != other.name
    assert (one.ideal, one.higher_is_better) == (other.ideal, other.higher_is_better)


def of(name, a, b):
    return measured(np.asarray(a, np.float64), np.asarray(b, np.float64))[name]


def test_the_metrics_of_polygraphy_and_onnxruntime():
    rng = np.random.default_rng(3)
    b = rng.standard_normal(70000)
    a = b + rng.standard_normal(70000) * 0.01
    errors = np.abs(a - b)
    assert of("sqnr", a, b) == pytest.approx(20 * np.log10(np.linalg.norm(b) / np.linalg.norm(a - b)))
    assert of("psnr", a, b) == pytest.approx(20 * np.log10(np.ptp(b) / np.sqrt(np.mean(errors**2))))
    assert of("median_error", a, b) == pytest.approx(np.median(errors), rel=1e-6)
    assert of("error_p99", a, b) == pytest.approx(np.quantile(errors, 0.99), rel=1e-6)
    assert of("sqnr", b, b) == of("psnr", b, b) == np.inf


SQUARES, ABSOLUTE = {"mse"}, {"mae", "MeanAbsoluteError", "MaxAbsoluteError", "RootMeanSquareError"}
ABSOLUTE |= {"StandardDeviation", "median_error", "error_p99"}


@pytest.mark.parametrize("scale", [2.0**130, 2.0**600, 2.0**664, 2.0**1020])
def test_a_metric_of_huge_values_is_right_or_shows_that_it_overflowed(scale: float) -> None:
    """A power of two scales every value exactly, so each metric follows from the one of ordinary values. One that has
    overflowed is NaN, or infinite where less is better: 0.001 of 1e308 was an RMSE of 0."""
    rng = np.random.default_rng(1)
    b = rng.uniform(1, 2, 1000) * rng.choice([-1, 1], 1000)
    a = b * (1 + 1e-3 * rng.standard_normal(1000))
    ordinary = measured(a, b, th1=0.5)
    for name, value in measured(a * scale, b * scale, th1=0.5).items():
        if math.isnan(value) or (math.isinf(value) and not METRICS[name].higher_is_better):
            assert scale > 2.0**500, name
            continue
        expected = ordinary[name] * (scale * scale if name in SQUARES else scale if name in ABSOLUTE else 1.0)
        assert value == pytest.approx(expected, rel=1e-6), name


def test_noise_is_not_hidden_by_a_signal_that_overflows() -> None:
    b = np.array([1e200, -1e200, 5e199])
    for name in ("sqnr", "psnr"):
        assert math.isnan(of(name, b + 1e100 * np.sign(b) * 1e85, b)), name
        assert of(name, b, b) == np.inf or math.isnan(of(name, b, b)), name


def test_equal_powers_are_no_decibels() -> None:
    assert str(of("sqnr", [2.0, 0.0], [1.0, 0.0])) == "0.0"


def test_the_largest_values_places_across_chunks():
    b = np.zeros(100_000)
    b[[5, 40_000, 70_000, 99_999, 60]] = [9, 8, 7, 6, 5]
    a = b.copy()
    assert of("top1", a, b) == of("top5", a, b) == 1
    a[60], a[61] = 0, 4
    assert (of("top1", a, b), of("top5", a, b)) == (1, 0.8)
    a[40_000] = 10
    assert of("top1", a, b) == 0
