"""The expected error against a simulated one, and what is clipped and what is not."""

import numpy as np
import pytest
from small_nets import conv, model, node

from sgsdump.models.graph import Graph
from sgsdump.quantisation.analysis import output_rows
from sgsdump.quantisation.ranges import weight_fit
from sgsdump.quantisation.ranges.statistics import Moments
from sgsdump.quantisation.ranges.weight_fit import GRID, WORTH, _errors, _inputs, fit_weight


def net(weight, **attributes):
    constants = {"c.w": weight.astype(np.float32), "c.b": np.zeros(weight.shape[0], np.float32)}
    channels = weight.shape[1] * attributes.get("group", 1)
    return Graph(model([conv("c", "data", **attributes)], constants, {"data": (1, channels, 4, 4)}, ["c"]).proto)


def outlier_weights(seed=0):
    weight = np.random.default_rng(seed).normal(0, 0.1, (4, 16, 3, 3))
    weight[2, 5, 1, 1] = 3.0
    return weight


def moments(channels, mean=0.5, energy=1.0):
    return Moments(np.full(channels, mean), np.full(channels, energy), 1)


def met(graph, layer, shape, given):
    """Mean and energy of the input that each weight meets."""
    meets, channels = _inputs(graph, layer, shape, given)
    return [each[np.broadcast_to(meets(slice(None)), shape)] for each in channels]


def test_the_expected_error_is_what_random_inputs_give():
    rng = np.random.default_rng(1)
    graph = net(outlier_weights())
    (layer,) = graph.nodes
    mean, deviation = rng.uniform(-1, 1, 16), rng.uniform(0.1, 2, 16)
    given = Moments(mean, mean**2 + deviation**2, 1)
    rows = output_rows(graph, layer)
    top = 0.7 * np.abs(rows).max(axis=1)
    means, energies = met(graph, layer, rows.shape, given)
    expected = _errors(rows, top, means, energies - means**2)
    scale = top[:, None] / 127
    change = np.clip(np.round(rows / scale), -127, 127) * scale - rows
    inputs = rng.normal(np.repeat(mean, 9), np.repeat(deviation, 9), (40_000, 144))
    np.testing.assert_allclose(expected, ((inputs @ change.T) ** 2).mean(axis=0), rtol=0.05)


def test_plain_weights_keep_their_range():
    graph = net(np.random.default_rng(2).uniform(-1, 1, (4, 3, 3, 3)))
    found = fit_weight(graph, graph.nodes[0], moments(3))
    rows = output_rows(graph, graph.nodes[0])
    assert found.wide is None
    np.testing.assert_array_equal(found.min, rows.min(axis=1))
    np.testing.assert_array_equal(found.max, rows.max(axis=1))


def test_a_weight_that_meets_nothing_is_clipped_and_int16_keeps_it():
    energy = np.ones(16)
    energy[5] = 1e-6
    graph = net(outlier_weights())
    found = fit_weight(graph, graph.nodes[0], Moments(np.zeros(16), energy, 1))
    assert found.max[2] < 2.0 and found.at(np.dtype(np.int8)) is found
    assert found.at(np.dtype(np.int16)).max[2] == 3.0


def test_the_inputs_of_groups_and_of_fully_connected_layers():
    graph = net(np.zeros((6, 1, 3, 3)), group=6)
    mean, _ = met(graph, graph.nodes[0], (6, 9), Moments(np.arange(6.0), np.ones(6), 1))
    np.testing.assert_array_equal(mean, np.repeat(np.arange(6.0), 9).reshape(6, 9))
    graph = net(np.zeros((4, 2, 1, 1)), group=2)
    mean, _ = met(graph, graph.nodes[0], (4, 2), Moments(np.arange(4.0), np.ones(4), 1))
    assert mean.tolist() == [[0, 1], [0, 1], [2, 3], [2, 3]]
    for op, shape, attributes in (("Gemm", (5, 3), {"transB": 1}), ("MatMul", (3, 5), {})):
        constants = {"w": np.zeros(shape, np.float32)}
        proto = model([node(op, ["data", "w"], "y", **attributes)], constants, {"data": (1, 3)}, ["y"]).proto
        rows = output_rows(Graph(proto), Graph(proto).nodes[0])
        mean, _ = met(Graph(proto), Graph(proto).nodes[0], rows.shape, Moments(np.arange(3.0), np.ones(3), 1))
        assert mean.tolist() == [[0, 1, 2]] * 5


@pytest.mark.parametrize("given", [None, Moments(np.zeros(16), np.zeros(16), 0)])
def test_without_figures_every_input_counts_alike(given):
    graph = net(outlier_weights())
    found = fit_weight(graph, graph.nodes[0], given)
    assert np.isfinite(found.min).all() and (found.max[2] == 3.0)


def test_the_documented_numbers():
    assert WORTH == 0.8
    assert (GRID[0], GRID[-1], len(GRID)) == (1.0, 0.5, 51)


def by_hand(row, mean=0.0, spread=1.0):
    """The best of the grid whose error is at most 0.8 of that of max|w|."""

    def error(top):
        change = np.clip(np.round(row / (top / 127)), -127, 127) * (top / 127) - row
        return (change**2 * spread).sum() + (change * mean).sum() ** 2

    top = np.abs(row).max()
    worth = [t for t in top * np.linspace(1, 0.5, 51)[1:] if error(t) <= 0.8 * error(top)]
    return min(worth, key=error, default=top)


@pytest.mark.parametrize("seed", range(12))
def test_the_range_is_the_one_of_least_error_where_that_is_worth_it(seed):
    rows = np.random.default_rng(seed).standard_t(2.5 + seed, (8, 400)).astype(np.float32).astype(np.float64)
    graph = net(rows.reshape(8, 400, 1, 1))
    found = fit_weight(graph, graph.nodes[0], None)
    tops = [by_hand(row) for row in rows]
    np.testing.assert_allclose(found.max, np.minimum(rows.max(axis=1), tops), rtol=1e-12)
    np.testing.assert_allclose(found.min, np.maximum(rows.min(axis=1), -np.array(tops)), rtol=1e-12)


@pytest.mark.parametrize(("group", "known"), [(1, True), (2, False)])
def test_the_inputs_of_a_transposed_convolution(group, known):
    constants = {"w": np.zeros((4, 6 // group, 2, 2), np.float32)}
    attributes = {"group": group} if group > 1 else {}
    proto = model([node("ConvTranspose", ["x", "w"], "y", **attributes)], constants, {"x": (1, 4, 3, 3)}, ["y"]).proto
    graph = Graph(proto)
    shape = output_rows(graph, graph.nodes[0]).shape
    mean, energy = met(graph, graph.nodes[0], shape, Moments(np.arange(4.0), np.full(4, 9.0), 1))
    row = np.repeat(np.arange(4.0), 4).tolist() if known else [0.0] * 16
    assert mean.tolist() == [row] * (6 // group) and (energy == (9 if known else 1)).all()


@pytest.mark.parametrize("seed", range(4))
def test_the_range_follows_the_mean_and_spread_of_the_inputs(seed):
    rng = np.random.default_rng(seed)
    rows = rng.standard_t(3, (8, 200)).astype(np.float32).astype(np.float64)
    mean, spread = rng.uniform(-2, 2, 200), rng.uniform(0.01, 0.1, 200)
    graph = net(rows.reshape(8, 200, 1, 1))
    found = fit_weight(graph, graph.nodes[0], Moments(7 * mean, 7 * (mean**2 + spread), 7))
    tops = [by_hand(row, mean, spread) for row in rows]
    assert any(top < np.abs(row).max() for top, row in zip(tops, rows))
    np.testing.assert_allclose(found.max, np.minimum(rows.max(axis=1), tops), rtol=1e-12)


def test_what_is_beyond_the_range_is_clipped_to_127_on_both_sides():
    errors = _errors(np.array([[-2.0], [2.0]]), np.array([1.0, 1.0]), np.zeros((2, 1)), np.ones((2, 1)))
    assert errors.tolist() == [1.0, 1.0]


def test_weights_of_inputs_that_are_always_zero_keep_their_range():
    graph = net(outlier_weights())
    found = fit_weight(graph, graph.nodes[0], Moments(np.zeros(16), np.zeros(16), 10))
    assert found.wide is None and found.max[2] == 3.0


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("size", [1, 300, 1000])
def test_weights_taken_block_by_block_have_the_same_ranges(monkeypatch, group, size):
    rng = np.random.default_rng(5)
    graph = net(rng.standard_t(3, (12, 16, 3, 3)), group=group)
    mean = rng.uniform(0, 1, 16 * group)
    given = Moments(mean, mean**2 + rng.uniform(0.1, 1, 16 * group), 1)
    whole = fit_weight(graph, graph.nodes[0], given)
    monkeypatch.setattr(weight_fit, "BLOCK", size)
    found = fit_weight(graph, graph.nodes[0], given)
    assert whole.wide is not None and found.same(whole)


def test_a_channel_is_given_up_no_sooner_than_it_has_nothing_to_gain(monkeypatch):
    rng = np.random.default_rng(6)
    graph = net(rng.standard_t(3, (64, 16, 3, 3)))
    given = Moments(np.full(16, 0.3), rng.uniform(0.1, 1, 16) + 0.09, 1)
    early = fit_weight(graph, graph.nodes[0], given)
    monkeypatch.setattr(weight_fit, "ALMOST", 0.0)
    assert fit_weight(graph, graph.nodes[0], given).same(early)
