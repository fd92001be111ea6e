"""Details of a layer: numpy's own histogram of the same bins, plain sums, and pictures merged against all at once."""

import numpy as np
import pytest

from sgsdump.comparison.binned import Binned, narrowest_bins
from sgsdump.comparison.compare import compare
from sgsdump.comparison.details import BINS, BLOCK, ERROR_BINS, HEAT, details_of, merged, planes_of
from sgsdump.comparison.merge import merge
from sgsdump.dumps.dump import Dump, Record
from sgsdump.tensors.tensor import Tensor, Values


def tensors(shape, seed=0, size=1.0):
    random = np.random.default_rng(seed)
    benchmark = (random.normal(size=shape) * size).astype(np.float32)
    return benchmark + random.normal(size=shape).astype(np.float32) * np.float32(0.01), benchmark


def details(sample, benchmark, layout="NHWC"):
    return details_of(Values(sample), Values(benchmark), layout)


@pytest.mark.parametrize(
    "shape", [(1, 7, 9, 5), (2, 3, 130, 90), (4, 100), (7,), (), (2, 3, 5, 7, 2), (1, 1, BLOCK + 3, 2)]
)
def test_the_bins_are_those_of_numpy(shape):
    sample, benchmark = tensors(shape)
    found = details(sample, benchmark)
    for counts, values in ((found.sample, sample), (found.benchmark, benchmark)):
        assert counts.tolist() == np.histogram(values, len(counts), found.edges)[0].tolist()
        assert counts.sum() == values.size
    error = sample.astype(np.float64) - benchmark
    assert found.errors.tolist() == np.histogram(error, len(found.errors), found.error_edges)[0].tolist()
    by_value = np.histogram(benchmark, len(found.benchmark), found.edges, weights=np.abs(error))[0]
    np.testing.assert_allclose(found.error_by_value, by_value, rtol=1e-9)
    assert len(found.sample) <= BINS and len(found.errors) <= ERROR_BINS
    if sample.size > 1000:
        assert len(found.sample) > BINS // 2 - 2


@pytest.mark.parametrize(("layout", "axes"), [("NHWC", (0, 1, 2)), ("NCHW", (0, 2, 3))])
def test_channels_and_heat_are_plain_sums(layout, axes):
    sample, benchmark = tensors((2, 40, 66, 50))
    found = details(sample, benchmark, layout)
    error = np.abs(sample.astype(np.float64) - benchmark)
    np.testing.assert_allclose(found.channels[:, 0], error.sum(axis=axes))
    np.testing.assert_allclose(found.channels[:, 1], np.abs(benchmark.astype(np.float64)).sum(axis=axes))
    plane = error.mean(axis=(0, 3) if layout == "NHWC" else (0, 1))
    assert found.heat.size == plane.shape and found.heat.mean.shape == tuple(min(size, HEAT) for size in plane.shape)
    rows, columns = (np.arange(size) * parts // size for size, parts in zip(plane.shape, found.heat.mean.shape))
    expected = plane[rows == 5][:, columns == 31].mean()
    assert found.heat.mean[5, 31] == pytest.approx(expected)
    assert found.heat.error == pytest.approx(error.sum() / np.abs(benchmark.astype(np.float64)).sum())


def test_pictures_merged_are_one_pass_over_all_of_them():
    pairs = [tensors((1, 6, 8, 4), seed, size) for seed, size in enumerate((1.0, 300.0, 1e-3))]
    together = merged([details(*pair) for pair in pairs], ["a", "b", "c"])
    whole = details(*(np.concatenate(side) for side in zip(*pairs)))
    for name in ("sample", "benchmark", "errors"):
        assert getattr(together, name).tolist() == getattr(whole, name).tolist()
    assert (together.edges, together.error_edges) == (whole.edges, whole.error_edges)
    np.testing.assert_allclose(together.error_by_value, whole.error_by_value)
    np.testing.assert_allclose(together.channels, whole.channels)
    assert together.heat.picture == "c"  # the smallest values have the largest relative error
    assert together.heat.mean.tolist() == details(*pairs[2]).heat.mean.tolist()


def test_order_does_not_matter():
    parts = [details(*tensors((1, 5, 5, 3), seed, 10.0 ** (seed - 3))) for seed in range(6)]
    one, two = merged(parts), merged(parts[::-1])
    assert one.edges == two.edges and one.sample.tolist() == two.sample.tolist()


def test_nan_and_infinity_are_in_no_bin_but_seen():
    sample, benchmark = tensors((1, 4, 4, 3))
    sample[0, 0, 0, 1], sample[0, 3, 3, 2], benchmark[0, 1, 1, 0] = np.nan, np.inf, -np.inf
    found = details(sample, benchmark)
    assert found.sample.sum() == 46 and found.benchmark.sum() == 47 and found.errors.sum() == 45
    assert not np.isfinite(found.channels[:, 0]).any() and not np.isfinite(found.heat.mean[0, 0])
    assert np.isfinite(found.heat.mean).sum() == 13


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nothing_finite(value):
    bad = np.full((1, 2, 2, 2), value, np.float32)
    found = details(bad, bad)
    assert found.sample.size == found.benchmark.size == found.errors.size == 0
    again = merged([found, details(*tensors((1, 2, 2, 2)))])
    assert again.sample.sum() == 8


@pytest.mark.parametrize("value", [0.0, 1e-38, -3.0, 3e38, 1 / 3])
def test_a_constant_tensor_has_one_bin(value):
    constant = np.full((1, 3, 3, 2), value, np.float32)
    found = details(constant, constant)
    assert found.sample.tolist() == [18] and found.errors.tolist() == [18]
    assert found.edges[0] <= float(constant[0, 0, 0, 0]) < found.edges[1] and not found.heat.mean.any()


def test_an_empty_tensor():
    assert details(np.zeros((1, 0, 4, 2), np.float32), np.zeros((1, 0, 4, 2), np.float32)).sample.size == 0


def test_bins_become_coarser_without_loss():
    exponent, first, last = narrowest_bins(-1.0, 1.0, 8)
    fine = Binned(exponent, first, np.arange(1.0, last - first + 2)[None])
    for wider in (exponent + 1, exponent + 2, exponent + 9):
        coarse = fine.coarser(wider)
        assert coarse.rows.sum() == fine.rows.sum()
        assert coarse.edges[0] <= fine.edges[0] and coarse.edges[1] >= fine.edges[1]


def test_height_and_width_are_told_by_the_shape_where_the_layout_is_not_known():
    assert planes_of((1, 120, 160, 16), None).shape == (1, 16, 120, 160)
    assert planes_of((1, 16, 120, 160), None).shape == (1, 16, 120, 160)
    assert planes_of((1, 16, 120, 160), "NHWC").shape == (1, 160, 16, 120)


def test_compare_gives_details_and_merge_merges_them():
    def dump(values):
        return Dump([Record("out", 0, 0, "Conv", Tensor.of("conv", values, layout="NCHW"))])

    pairs = [tensors((1, 4, 6, 6), seed) for seed in range(3)]
    runs = {str(i): compare(dump(a), dump(b), details=True) for i, (a, b) in enumerate(pairs)}
    (row,) = merge(runs).rows
    assert row.details.sample.sum() == 3 * 144
    assert row.details.heat.picture == row.runs.worst
    assert compare(dump(pairs[0][0]), dump(pairs[0][1])).rows[0].details is None
