"""The error against onnxruntime's QuantizeLinear, the choice where the answer is known, the search spelt out."""

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from sgsdump.fixedpoint.quantisation.ranges import statistics
from sgsdump.fixedpoint.quantisation.ranges.statistics import (
    DEEPEST,
    ENTROPY,
    GRID,
    MIN_MAX,
    MSE,
    PERCENTILE,
    PERCENTILES,
    _divergence,
    _least_error,
    _percentiles,
    count_values,
    proposals,
    squared_error,
    squared_errors,
)
from sgsdump.fixedpoint.quantisation.tensor_scales import uint8_quant


def by_onnxruntime(values, low, high):
    """What UINT8 makes of values, by the operators that the fixed model holds."""
    quant = uint8_quant(low, high)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    constants = [
        helper.make_tensor("s", TensorProto.FLOAT, [], [quant.scale]),
        helper.make_tensor("z", TensorProto.UINT8, [], [quant.zero_point]),
    ]
    shape = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    graph = helper.make_graph(nodes, "g", shape[:1], shape[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return ort.InferenceSession(model.SerializeToString()).run(None, {"x": values})[0]


@pytest.mark.parametrize("ends", [(-1.0, 3.0), (0.0, 1.0), (-0.2, 0.1), (-2.0, 0.0)])
def test_the_error_is_that_of_the_fixed_model(ends):
    values = np.random.default_rng(0).normal(0, 1, 2000).astype(np.float32)
    expected = ((by_onnxruntime(values, *ends) - values) ** 2).sum()
    assert squared_error(values.astype(np.float64), np.ones(2000), *ends) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("ends", [(-4.0, 4.0), (-2.0, 3.0)])
def test_the_error_over_the_histogram_is_close_to_that_of_the_values(ends):
    values = np.random.default_rng(1).normal(0, 1, 100_000).astype(np.float32)
    expected = ((by_onnxruntime(values, *ends) - values) ** 2).sum()
    assert squared_error(*count_values(values).filled(), *ends) == pytest.approx(expected, rel=0.03)


def propose(values):
    array = np.asarray(values, np.float32)
    return proposals(count_values(array), float(array.min()), float(array.max()))


def test_kinds_that_cannot_be_worth_it_are_not_looked_for():
    values = np.append(np.random.default_rng(3).normal(0, 1, 5_000), 6.0).astype(np.float32)
    counted, ends = count_values(values), (float(values.min()), 6.0)
    every = proposals(counted, *ends)
    share = every[-1].error / every[0].error
    assert proposals(counted, *ends, share * 1.01) == every
    assert proposals(counted, *ends, share * 0.99) == [every[0], every[-1]]


def test_an_even_distribution_is_left_alone():
    first, *others = propose(np.random.default_rng(2).uniform(-1, 1, 50_000))
    assert first.kind == MIN_MAX
    assert all(other.error >= 0.95 * first.error for other in others)


def test_a_lone_outlier_is_clipped_by_each_kind():
    values = np.append(np.random.default_rng(3).normal(0, 1, 500_000), 20.0)
    first, *others = propose(values)
    assert (first.low, first.high) == (pytest.approx(values.min()), 20.0)
    assert {other.kind for other in others} == {PERCENTILE, ENTROPY, MSE}
    assert all(other.high < 17 and other.error < 0.8 * first.error for other in others)


def test_mse_is_never_worse_than_min_max_and_ends_stay_inside():
    rng = np.random.default_rng(4)
    for values in (rng.exponential(1, 20_000), rng.standard_t(2, 20_000), np.maximum(rng.normal(0, 1, 20_000), 0)):
        found = {proposal.kind: proposal for proposal in propose(values)}
        assert found[MSE].error <= found[MIN_MAX].error
        for proposal in found.values():
            assert found[MIN_MAX].low <= proposal.low <= 0 <= proposal.high <= found[MIN_MAX].high


def test_constant_and_zero_tensors_have_one_proposal():
    assert len(propose(np.zeros(10))) == 1
    assert all(np.isfinite(p.error) for p in propose(np.full(10, 3.0)))


def test_the_documented_numbers():
    assert PERCENTILES == (0.001e-2, 0.01e-2, 0.1e-2)
    assert DEEPEST == 0.2 and (GRID[0], GRID[-1], len(GRID)) == (1.0, 0.2, 81)


def test_percentiles_leave_out_that_share_at_each_end():
    """Of 100 000 values 1, 10 and 100 at each end, whatever else is zero; never past 0."""
    values = np.arange(1, 50_001) - 0.5
    both = np.concatenate([-values[::-1], values])
    ends = list(_percentiles(both, np.ones(100_000, np.int64), 0, -50_000.0, 50_000.0))
    assert ends == [(-49_998.5, 49_998.5), (-49_989.5, 49_989.5), (-49_899.5, 49_899.5)]
    ends = list(_percentiles(values[:100], np.ones(100, np.int64), 999_900, 0.0, 100.0))
    assert ends == [(0.0, 89.5), (0.0, 0.0), (0.0, 0.0)]
    assert next(_percentiles(values[:10], np.ones(10, np.int64), 0, 0.0, 9.0)) == (0.0, 9.0)


def test_ends_go_no_deeper_than_a_fifth_of_the_range():
    values = np.append(np.random.default_rng(5).normal(0, 0.001, 100_000), [-1.0, 1.0])
    found = {proposal.kind: proposal for proposal in propose(values)}
    assert (found[ENTROPY].low, found[ENTROPY].high) == (pytest.approx(-0.2), pytest.approx(0.2))


def divergence(values, low, high):
    """TensorRT's, written out: clipped values count at the ends, each step's count spreads over its filled bins."""
    histogram = count_values(np.asarray(values, np.float32))
    middles, counts = histogram.filled()
    inside = (middles >= low) & (middles <= high)
    kept = counts[inside].astype(float)
    p = kept.copy()
    p[0] += counts[middles < low].sum()
    p[-1] += counts[middles > high].sum()
    steps = np.round((middles[inside] - low) / ((high - low) / 255))
    q = np.array([kept[steps == step].mean() for step in steps])
    p, q = p / p.sum(), q / q.sum()
    return float((p * np.log(p / q)).sum())


@pytest.mark.parametrize("seed", range(3))
def test_entropy_is_the_clipping_of_least_divergence(seed):
    values = np.random.default_rng(seed).standard_t(3, 5_000)
    low, high = float(np.float32(values.min())), float(np.float32(values.max()))
    parts = np.linspace(1.0, 0.2, 81)[::2]
    best = min(parts, key=lambda part: divergence(values, low * part, high * part))
    found = {proposal.kind: proposal for proposal in propose(values)}[ENTROPY]
    assert (found.low, found.high) == (pytest.approx(low * best), pytest.approx(high * best))


@pytest.mark.parametrize(("bins", "kinds"), [(2, 1), (3, 4)])
def test_a_range_of_two_bins_is_left_alone(bins, kinds):
    width = count_values(np.array([1.0], np.float32)).width
    values = np.array([1.0] * 10 + [1e-7], np.float32)
    assert len(proposals(count_values(values), 0.0, bins * width)) == kinds


def test_a_range_of_no_width_costs_every_value_whole():
    assert squared_error(np.array([3.0, 4.0]), np.array([1, 2]), 0.0, 0.0) == 41.0


@pytest.mark.parametrize("part", [1.0, 0.9, 0.5, 0.2])
def test_the_divergence_is_tensorrts(part):
    values = np.random.default_rng(9).standard_t(3, 5_000).astype(np.float32)
    low, high = part * float(values.min()), part * float(values.max())
    histogram = count_values(values)
    middles = (np.arange(8192) - 4096 + 0.5) * histogram.width
    inside = np.flatnonzero((histogram.counts > 0) & (middles >= low) & (middles <= high))
    expected = divergence(values, low, high)
    assert _divergence(histogram.counts, middles, inside, low, high) == pytest.approx(expected, rel=1e-9)


def test_entropy_does_not_clip_down_to_a_single_bin():
    found = {proposal.kind: proposal for proposal in propose([0.1] * 1000 + [1.0] * 5)}[ENTROPY]
    assert found.high == 1.0


def test_the_ends_are_refined_twice():
    """Here the lower end gains only after the upper one has moved."""
    rng = np.random.default_rng(12)
    values = np.concatenate([rng.standard_t(2, 3000), -rng.exponential(2, 1000)]).astype(np.float32)
    found = {proposal.kind: proposal for proposal in propose(values)}[MSE]
    counted = count_values(values).filled()
    for part in GRID:
        assert squared_error(*counted, float(values.min()) * part, found.high) >= squared_error(
            *counted, found.low, found.high
        )


def spelt_out(values, counts, low, high):
    """Both ends together, then twice the low end and the high end alone, keeping what is there when nothing is less."""

    def least(ends):
        return min(ends, key=lambda each: squared_error(values, counts, *each))

    ends = least([(low * part, high * part) for part in GRID])
    for _ in range(2):
        ends = least([ends, *((low * part, ends[1]) for part in GRID)])
        ends = least([ends, *((ends[0], high * part) for part in GRID)])
    return ends


@pytest.mark.parametrize("seed", [29, 36, 38, 156, *range(8)])
def test_the_ends_are_drawn_in_together_and_then_each_twice(seed):
    """In the first four the second round finds less where the first has raised the low end."""
    rng = np.random.default_rng(seed)
    count = rng.integers(3, 9)
    values = np.sort(rng.uniform(-1, 1, count) * rng.uniform(0.1, 1, count))
    counts = (10 ** rng.uniform(0, 5, count)).astype(np.int64)
    low, high = min(values[0] - 0.01, 0.0), max(values[-1] + 0.01, 0.0)
    assert _least_error(values, counts, low, high) == spelt_out(values, counts, low, high)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_error_of_a_proposal_is_a_share_of_the_values_mean_square(scale):
    values = (np.random.default_rng(0).standard_t(3, 20_000) * scale).astype(np.float32)
    histogram = count_values(values)
    middles, counts = histogram.filled()
    made = proposals(histogram, float(values.min()), float(values.max()))
    assert [one.kind for one in made] == ["min_max", "percentile", "entropy", "mse"]
    for one in made:
        share = squared_error(middles, counts, one.low, one.high) / float(counts @ middles**2)
        assert one.error == pytest.approx(share, rel=1e-12) and 0 < one.error < 1
        assert values.min() <= one.low <= 0 <= one.high <= values.max()
    assert made[3].error == min(one.error for one in made)


def test_ends_that_are_tried_together_have_the_errors_of_each_alone():
    rng = np.random.default_rng(3)
    values, counts = rng.normal(0, 2, 400), rng.integers(1, 99, 400).astype(np.float64)
    ends = [(-abs(low), abs(high)) for low, high in rng.normal(0, 3, (19, 2))] + [(0.0, 0.0)]
    assert squared_errors(values, counts, ends) == [spelt_error(values, counts, *each) for each in ends]


def spelt_error(values, counts, low, high):
    scale = (high - low) / 255
    if not scale:
        return float(counts @ values**2)
    zero = np.round(-low / scale)
    return float(counts @ (np.clip(np.round(values / scale), -zero, 255 - zero) * scale - values) ** 2)


def test_a_tail_that_is_all_zeros_ends_at_zero():
    ends = list(_percentiles(np.array([-3.0, 2.0]), np.array([1, 1]), 999_998, -3.0, 2.0))
    assert ends == [(0.0, 0.0)] * 3


def test_no_range_is_tried_beyond_what_was_seen(monkeypatch):
    tried = []

    def recorded(values, counts, ends):
        tried.extend(ends)
        return squared_errors(values, counts, ends)

    monkeypatch.setattr(statistics, "squared_errors", recorded)
    values = np.random.default_rng(0).standard_t(3, 2000).astype(np.float32)
    low, high = float(values.min()), float(values.max())
    proposals(count_values(values), low, high)
    assert len(tried) > 2 * statistics.GRID.size
    assert all(low <= each[0] <= 0 <= each[1] <= high for each in tried)


@pytest.mark.parametrize(("low", "high"), [(0.0, 9.0), (-9.0, 0.0), (-9.0, 7.0)])
def test_no_ends_are_tried_twice(monkeypatch, low, high):
    tried = []
    monkeypatch.setattr(
        statistics, "squared_errors", lambda v, c, ends: tried.extend(ends) or squared_errors(v, c, ends)
    )
    values = np.random.default_rng(0).standard_t(2, 2000).clip(low, high)
    _least_error(values, np.ones(2000), low, high)
    assert len(tried) == len(set(tried)) and (len(tried) == GRID.size) == (low * high == 0)
