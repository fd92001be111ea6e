"""8-bit views of tensors: what they keep of both sides, and their size."""

import base64
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgsdump.comparison.compare import compare
from sgsdump.dumps.dump import Dump, Record
from sgsdump.reports.report import Context, report_of, with_tensors
from sgsdump.reports.tensors.planes import pair_of, pair_planes, records_of
from sgsdump.reports.tensors.views import MOST_SIDE, NOT_FINITE, bars_of, view_of, views_of
from sgsdump.tensors.tensor import Tensor

RANDOM = np.random.default_rng(5)


def pair(sample, benchmark, layouts=("NCHW", "NCHW")):
    """The row of two arrays, and the dumps."""
    dumps = [
        Dump([Record("out", 0, 0, "Conv", Tensor.of("x", values.astype(np.float32), layout=layout))])
        for values, layout in zip((sample, benchmark), layouts)
    ]
    return compare(*dumps).rows[0], *dumps


def planes(sample, benchmark, layouts=("NCHW", "NCHW")):
    row, *dumps = pair(sample, benchmark, layouts)
    return pair_planes(pair_of(row, *map(records_of, dumps)), row.retried)


def read(view, place):
    """Sample, benchmark and largest possible error of a plane, as the page computes them."""
    low, high, most = view.scales[place]
    benchmark = low + view.benchmark[place] / 254.0 * (high - low)
    difference = -most + view.difference[place] / 254.0 * 2 * most
    return benchmark + difference, benchmark, (high - low) / 508 + most / 254


@given(st.integers(1, 5), st.integers(1, 6), st.integers(2, 7), st.integers(0, 3))
def test_a_small_tensor_is_kept_as_a_whole(channels, height, width, seed):
    random = np.random.default_rng(seed)
    benchmark = random.normal(size=(1, channels, height, width))
    sample = benchmark + random.normal(size=benchmark.shape)
    view = view_of(planes(sample, benchmark), 10**6)
    arrays = sample.reshape(-1, *view.size), benchmark.reshape(-1, *view.size)
    assert sorted(view.numbers) == list(range(view.count)) == list(range(len(arrays[0])))
    assert list(view.errors) == pytest.approx(np.abs(arrays[0] - arrays[1]).sum(axis=(1, 2)), rel=1e-5)
    assert list(view.numbers) == sorted(view.numbers, key=lambda number: -view.errors[number])
    for place, number in enumerate(view.numbers):
        kept, reference, error = read(view, place)
        assert np.abs(kept - arrays[0][number]).max() <= error + 1e-6
        assert np.abs(reference - arrays[1][number]).max() <= error + 1e-6
        worst = np.abs(arrays[0][number] - arrays[1][number])
        assert worst[tuple(view.places[place])] == pytest.approx(worst.max(), rel=1e-5)


def test_the_wrong_channel_comes_first_and_the_wrong_row_stays_visible():
    benchmark = RANDOM.normal(size=(1, 16, 401, 300))
    sample = benchmark.copy()
    sample[0, 11, 233] += 3.0
    view = view_of(planes(sample, benchmark), 200_000)
    assert view.numbers[0] == 11 and len(view.numbers) < 16
    assert view.places[0][0] == 233
    height, width = view.benchmark.shape[1:]
    assert height <= MOST_SIDE and width <= MOST_SIDE
    shown = read(view, 0)[0] - read(view, 0)[1]
    assert (shown[233 * height // 401] > 2.9).all() and np.abs(np.delete(shown, 233 * height // 401, 0)).max() < 0.1


@pytest.mark.parametrize("layouts", [("NHWC", "NCHW"), ("NCHW", "NHWC")])
def test_different_layouts_show_the_same_plane(layouts):
    benchmark = RANDOM.normal(size=(1, 5, 6, 7))
    sample = benchmark.copy()
    sample[0, 3, 2, 4] += 9.0
    stored = [v if layout == "NCHW" else v.transpose(0, 2, 3, 1) for v, layout in zip((sample, benchmark), layouts)]
    view = view_of(planes(*stored, layouts), 10**6)
    assert view.noun == "channel" and view.numbers[0] == 3 and list(view.places[0]) == [2, 4]


def test_attention_is_a_matrix_per_head_and_a_vector_is_a_vector():
    attention = RANDOM.normal(size=(1, 8, 12, 12))
    view = view_of(planes(attention, attention + 0.1), 10**6)
    assert view.count == 8 and view.size == (12, 12) and not view.is_vector
    vector = RANDOM.normal(size=(1, 5000))
    view = view_of(planes(vector, vector + 0.1), 10**6)
    assert view.is_vector and view.count == 1 and view.size == (1, 5000) and view.benchmark.shape[2] <= 2048


def test_nan_and_infinity_are_told():
    benchmark = RANDOM.normal(size=(1, 2, 4, 4))
    sample = benchmark.copy()
    sample[0, 1, 2, 3] = np.nan
    sample[0, 0, 0, 0] = np.inf
    view = view_of(planes(sample, benchmark), 10**6)
    at = {number: place for place, number in enumerate(view.numbers)}
    assert view.difference[at[1], 2, 3] == NOT_FINITE and view.difference[at[0], 0, 0] == NOT_FINITE
    assert (view.difference == NOT_FINITE).sum() == 2 and np.isfinite(view.scales).all()
    assert list(view.places[at[1]]) == [2, 3]
    assert "nan" in view.data()["errors"] and "inf" in view.data()["errors"]


def test_equal_constant_tensors():
    constant = np.full((1, 2, 3, 3), 4.0)
    view = view_of(planes(constant, constant), 10**6)
    assert (view.scales[:, 2] == 0).all() and len(view.numbers) == 2


def test_the_views_of_a_comparison_are_within_the_budget():
    names, records = [f"conv{i}" for i in range(40)], ([], [])
    for index, name in enumerate(names):
        benchmark = RANDOM.normal(size=(1, 8, 50, 50)).astype(np.float32)
        values = benchmark + np.float32(0.5 if index == 7 else 0.001 * index)
        for side, array in zip(records, (values, benchmark)):
            if index:
                side.append(Record("in", 0, index, "Conv", side[-1].tensor))
            side.append(Record("out", 0, index, "Conv", Tensor.of(name, array, layout="NCHW")))
    dumps = list(map(Dump, records))
    comparison = compare(*dumps)
    for budget in (0, 5000, 200_000, 10**7):
        views = views_of(comparison.rows, *dumps, {row.name: row.rise for row in comparison.rows}, budget=budget)
        size = sum(len(view.data()["benchmark"]) + len(view.data()["difference"]) for view in views.values())
        assert size <= budget
        assert bool(views) == (budget > 5000)
    assert {"conv7", "conv39"} <= views.keys() and len(views) <= 21


def test_rows_with_statistics_alone_have_no_view():
    row, sample, benchmark = pair(np.ones((2, 3)), np.ones((2, 3)))
    assert pair_of(row.replaced(sample_name="gone"), records_of(sample), records_of(benchmark)) is None


def test_bars_of_many_planes_keep_the_largest():
    errors = np.zeros(5000)
    errors[4321] = 9.0
    bars = bars_of(errors)
    assert len(bars) <= 512 and bars.max() == 9.0


def test_data_for_the_script_is_bytes_in_base64():
    data = view_of(planes(np.zeros((1, 2, 3, 4)), np.ones((1, 2, 3, 4))), 10**6).data()
    assert len(base64.b64decode(data["difference"])) == 2 * 3 * 4 and data["grid"] == [3, 4]


def test_measured_figures_choose_the_layers_before_the_rise():
    """25 layers whose error rises alike; the one that was measured to cause the error is among the 20 with a view."""
    records: tuple = ([], [])
    for index in range(25):
        benchmark = RANDOM.normal(size=(1, 2, 3, 3)).astype(np.float32)
        for side, array in zip(records, (benchmark * np.float32(1 + 0.2 / (index + 1)), benchmark)):
            side.append(Record("out", 0, index, "Conv", Tensor.of(f"conv{index}", array, layout="NCHW")))
    sample, benchmark = map(Dump, records)
    context = Context(sample=sample, benchmark=benchmark, page_budget=10**6)
    comparison = compare(sample, benchmark)
    report = report_of(comparison, context=context)
    late = next(layer for layer in report.layers if layer.name not in report.tensors)
    measured = replace(late, figures=replace(late.figures, gives_back=0.9))
    layers = tuple(measured if layer is late else layer for layer in report.layers)
    assert late.name in with_tensors(replace(report, layers=layers), comparison, context).tensors
