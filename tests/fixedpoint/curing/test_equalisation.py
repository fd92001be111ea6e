"""The noise of 8 bits by its formula, and the factors that make it least: against sampled noise, gradients by
differences, and searches by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from small_nets import conv, loud_net, model, node, run_all, weights

from sgsdump.fixedpoint.curing.channels import ChannelFigures
from sgsdump.fixedpoint.curing.equalisation import (
    GAIN,
    SHARPNESS,
    WIDEST,
    Bounds,
    _pulls,
    _Terms,
    _within_ratio,
    equalising_factors,
)
from sgsdump.fixedpoint.curing.noise import Layer, Noise, full_steps, layers_of, sums_step, weight_scales
from sgsdump.fixedpoint.curing.ranges import margins
from sgsdump.fixedpoint.curing.scaling import Scaling, scaling_of
from sgsdump.fixedpoint.quantisation.quant_plan import WIDEST_RATIO


def noise_of(proto: onnx.ModelProto, per_channel: bool = True):
    figures = {}
    feed = {"x": np.random.default_rng(9).normal(size=(1, 3, 8, 8)).astype(np.float32)}
    for name, array in {**run_all(proto, feed), **feed}.items():
        flat = np.moveaxis(array, 1, 0).reshape(array.shape[1], -1).astype(np.float64)
        figures[name] = ChannelFigures(flat.min(axis=1), flat.max(axis=1), (flat**2).mean(axis=1), flat.mean(axis=1))
    scaling = scaling_of(proto, {name: each.top for name, each in figures.items()})
    return scaling, layers_of(proto, scaling, figures), Noise(figures, per_channel)


def rounding_noise(layers, noise, factors) -> float:
    """Of inputs and weights."""
    return sum(sum(noise.parts(layer, factors)[:2]) for layer in layers)


def by_differences(noise, logs: np.ndarray, classes: list[int]) -> tuple[np.ndarray, float]:
    """The slope of a noise by the logarithm of each factor, and the noise."""
    ends = [[noise(np.exp(logs + away * np.eye(logs.size)[c])) for away in (1e-5, -1e-5)] for c in classes]
    return np.array([(more - less) / 2e-5 for more, less in ends]), ends[0][0]


def test_the_noise_is_that_of_uniform_rounding() -> None:
    """b's input moved by uniform noise of a step of its range; its weights by the formula."""
    proto = loud_net(2.0).proto
    scaling, layers, noise = noise_of(proto)
    (layer,) = (each for each in layers if each.node.output[0] == "c")
    inputs, weighted, _ = noise.by_channel(layer, np.ones(scaling.size))
    rng, read = np.random.default_rng(0), noise.figures["rb"]
    weight = numpy_helper.to_array(next(t for t in proto.graph.initializer if t.name == "c.w"))[:, :, 0, 0]
    weight = weight.astype(np.float64)
    step = read.high.max() / 255
    moved = rng.uniform(-step / 2, step / 2, (200_000, 6)) @ weight.T
    np.testing.assert_allclose(inputs, (moved**2).mean(axis=0), rtol=0.02)
    np.testing.assert_allclose(inputs, step**2 / 12 * (weight**2).sum(axis=1), rtol=1e-6)
    whole = np.where(read.top > 0, read.top, read.top.max())  # a channel of zeros has its tensor's
    np.testing.assert_allclose(full_steps(read) * 255, whole, rtol=1e-12)
    steps = np.abs(weight).max(axis=1) / 127
    np.testing.assert_allclose(weighted, steps**2 / 12 * read.power.sum(), rtol=1e-6)


def test_a_channel_of_next_to_nothing_has_its_tensors_step() -> None:
    """1e-44 over 255 is 0 in float32, and what is divided by it no number."""
    top = np.array([2.0, 1e-44, 0.0, 1e-6])
    steps = full_steps(ChannelFigures(np.zeros(4), top, top**2, top))
    np.testing.assert_allclose(steps * 255, [2, 2, 2, 1e-6])
    assert (steps.astype(np.float32) > 0).all()


def test_scales_of_weights_follow_the_hardwares_rules() -> None:
    tops = np.array([1.0, 0.5, 0.25])
    np.testing.assert_allclose(weight_scales(tops, True), tops / 127)
    np.testing.assert_allclose(weight_scales(tops, False), 1 / 127)
    np.testing.assert_allclose(
        weight_scales(np.array([1.0, 1 / 2000]), True), 1 / 127
    )  # too far apart for a multiplier
    np.testing.assert_allclose(weight_scales(np.array([1.0, 0.0]), True), [1 / 127, 0.5 / 127])
    assert sums_step(np.array([1.0, 1e-3]), np.array([8192.0, 8.192])) == 0  # fits 13 bits
    assert sums_step(np.array([1.0, 1e-3]), np.array([1.0, 16.0])) == 2  # 16000 needs 14


def test_equalising_lowers_the_noise_and_room_costs_its_share() -> None:
    scaling, layers, noise = noise_of(loud_net(60.0).proto)
    ones = np.ones(scaling.size)
    factors = equalising_factors(scaling, layers, noise)
    before, after = (sum(noise.of(layer, f) for layer in layers) for f in (ones, factors))
    assert after < 0.1 * before
    wider = margins(layers, noise, factors)
    assert all(1 <= factor <= 2 for factor in wider.values()) and max(wider.values()) > 1


@pytest.mark.parametrize("per_channel", [True, False])
def test_the_way_down_is_the_noises_own_gradient(per_channel: bool) -> None:
    """By differences, at factors far from a tie of two channels for a maximum; smooth maxima are sharpest last."""
    scaling, layers, noise = noise_of(loud_net(3.0).proto, per_channel)
    free = [c for c in range(scaling.size) if c not in scaling.fixed]
    logs = np.zeros(scaling.size)
    logs[free] = np.random.default_rng(4).normal(0, 0.3, len(free))
    grows, falls = _pulls([_Terms.of(layer, noise) for layer in layers], logs, 12, per_channel)
    slopes, whole = by_differences(lambda factors: rounding_noise(layers, noise, factors), logs, free)
    np.testing.assert_allclose(2 * (grows - falls)[free], slopes, rtol=0, atol=2e-3 * whole)


def sums_noise(layers, noise, factors) -> float:
    """Of sums that keep 13 bits of the furthest: step of the sums (2^K Δ δ)² / 12 with 2^K Δ = max R / δ / 2^13, and
    that mean of 4^k for k from 0 to 1 more that whole powers of two lose."""
    whole = 0.0
    for layer in layers:
        a, b, read = factors[layer.before], factors[layer.after], noise.figures[layer.node.input[0]]
        scales = (layer.largest / a).max(axis=1) / 127
        scales = scales if noise.per_channel else (scales * b).max() / b
        step = ((a * read.high).max() - min((a * read.low).min(), 0.0)) / 255
        furthest = (layer.reach / scales).max() / 2**13
        if furthest > step:
            whole += 1.5 / np.log(2) * float(layer.counts @ (furthest * scales) ** 2) / 12
    return whole


@pytest.mark.parametrize("per_channel", [True, False])
def test_sums_that_lose_bits_are_part_of_the_way_down(per_channel: bool) -> None:
    """b's sums reach 100 times as far, and lose more bits; sums that fit 13 bits are exact."""
    scaling, layers, noise = noise_of(loud_net(3.0).proto, per_channel)
    small, smaller = ([replace(each, reach=each.reach * k) for each in layers] for k in (1e-4, 5e-5))
    exact, same = (
        _pulls([_Terms.of(each, noise) for each in some], np.zeros(scaling.size), 12, per_channel)
        for some in (small, smaller)
    )
    np.testing.assert_array_equal(exact, same)
    layers = [replace(each, reach=each.reach * 100) if each.node.output[0] == "b" else each for each in layers]
    free = [c for c in range(scaling.size) if c not in scaling.fixed]
    logs = np.zeros(scaling.size)
    logs[free] = np.random.default_rng(4).normal(0, 0.3, len(free))
    share = sums_noise(layers, noise, np.exp(logs)) / rounding_noise(layers, noise, np.exp(logs))
    assert share > 0.05
    grows, falls = _pulls([_Terms.of(layer, noise) for layer in layers], logs, 12, per_channel)
    both = lambda factors: rounding_noise(layers, noise, factors) + sums_noise(layers, noise, factors)  # noqa: E731
    slopes, whole = by_differences(both, logs, free)
    np.testing.assert_allclose(2 * (grows - falls)[free], slopes, rtol=0, atol=2e-3 * whole)


@pytest.mark.parametrize("per_channel", [True, False])
def test_no_single_channel_can_be_drawn_to_less_noise(per_channel: bool) -> None:
    scaling, layers, noise = noise_of(loud_net(4.0).proto, per_channel)
    factors = equalising_factors(scaling, layers, noise)
    least = rounding_noise(layers, noise, factors)
    for c in set(range(scaling.size)) - scaling.fixed:
        for times in (0.8, 1.25):
            moved = factors.copy()
            moved[c] *= times
            assert rounding_noise(layers, noise, moved) > 0.99 * least


def test_of_two_channels_the_best_pair_is_found() -> None:
    """One free ratio: searched in steps of a thousandth."""
    constants = {**weights("a", (2, 3, 1, 1), 1), **weights("b", (3, 2, 1, 1), 2)}
    constants["a.w"][1] *= 9
    nodes = [conv("a", "x"), node("Relu", ["a"], "r"), conv("b", "r")]
    scaling, layers, noise = noise_of(model(nodes, constants, {"x": (1, 3, 8, 8)}, ["b"]).proto)
    first, second = scaling.classes["r"]
    ones = np.ones(scaling.size)

    def at(ratio: float) -> float:
        factors = ones.copy()
        factors[second] = ratio
        return rounding_noise(layers, noise, factors)

    factors = equalising_factors(scaling, layers, noise)
    least = min(at(ratio) for ratio in np.exp(np.arange(-4, 4, 0.001)))
    assert at(factors[second] / factors[first]) < 1.01 * least < at(1.0)
    assert all(factors[c] == 1 for c in scaling.fixed)


def test_a_network_without_noise_stays_as_it_is() -> None:
    scaling, _, noise = noise_of(loud_net(2.0).proto)
    np.testing.assert_array_equal(equalising_factors(scaling, [], noise), 1.0)


def test_an_output_without_weights_is_left_out_of_it() -> None:
    """A pruned channel: its scale is the SDK's own, and its bias reaches far beside none."""
    proto = loud_net(60.0).proto
    for tensor in proto.graph.initializer:
        if tensor.name in ("a.w", "b.w"):
            values = numpy_helper.to_array(tensor).copy()
            values[3] = 0
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    for per_channel in (True, False):
        scaling, layers, noise = noise_of(proto, per_channel)
        factors = equalising_factors(scaling, layers, noise)
        before, after = (rounding_noise(layers, noise, f) for f in (np.ones(scaling.size), factors))
        assert np.isfinite(factors).all() and after < 0.3 * before


def test_channels_that_are_alike_already_are_left_alone(monkeypatch) -> None:
    """Noise that falls by less than two hundredths."""
    scaling, layers, noise = noise_of(loud_net(4.0).proto)
    ones = np.ones(scaling.size)
    before = rounding_noise(layers, noise, ones)
    factors = equalising_factors(scaling, layers, noise)
    gain = 1 - rounding_noise(layers, noise, factors) / before
    assert GAIN == 0.02 < gain
    monkeypatch.setattr("sgsdump.fixedpoint.curing.equalisation.GAIN", gain * 0.95)
    assert not np.array_equal(equalising_factors(scaling, layers, noise), ones)
    monkeypatch.setattr("sgsdump.fixedpoint.curing.equalisation.GAIN", gain * 1.05)
    np.testing.assert_array_equal(equalising_factors(scaling, layers, noise), ones)


def test_scales_of_weights_are_drawn_no_further_apart_than_a_multiplier_holds() -> None:
    """An output channel of small weights and a large bias is drawn down, and its weights with it: further than
    WIDEST_RATIO below the others all would get the largest scale."""
    proto = loud_net(1.0).proto
    for tensor in proto.graph.initializer:
        if tensor.name in ("b.w", "b.b"):
            values = numpy_helper.to_array(tensor).copy()
            values[2] = values[2] / 100 if tensor.name == "b.w" else 30.0
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    scaling, layers, noise = noise_of(proto)
    factors = equalising_factors(scaling, layers, noise)
    assert factors[scaling.classes["rb"]][2] < 0.5 * factors[scaling.classes["rb"]].max()
    for layer in layers:
        tops = (layer.largest / factors[layer.before]).max(axis=1) * factors[layer.after]
        assert tops.max() <= WIDEST_RATIO * tops.min()


def held(limits: dict[int, float], fixed: frozenset[int] = frozenset()) -> Bounds:
    return Bounds.of(Scaling({"t": np.arange(3)}, fixed, limits, ()))


def test_scales_are_raised_to_half_of_what_is_possible_but_for_those_held() -> None:
    """Of three outputs two are 2,000 times below the third, as factors have drawn them; one of them is held."""
    layer = Layer(None, np.array([0]), np.array([1, 2, 3]), *(np.ones((3, 1)),) * 2, 1, *(np.ones(3),) * 2)  # type: ignore[arg-type]
    figures = ChannelFigures(np.zeros(1), np.ones(1), np.ones(1), np.zeros(1))
    noise = Noise({"x": figures})
    layer = replace(layer, node=helper.make_node("Conv", ["x", "w"], ["y"]))
    logs, free = np.log([1.0, 1.0, 1 / 2000, 1 / 2000]), np.array([True, True, True, False])
    raised = np.exp(_within_ratio([_Terms.of(layer, noise)], logs, free))
    np.testing.assert_allclose(raised, [1, 1, 2 / WIDEST_RATIO, 1 / 2000])
    far = replace(layer, largest=np.array([[1.0], [1 / 2000], [1.0]]))  # as it was given, it stays
    np.testing.assert_array_equal(_within_ratio([_Terms.of(far, noise)], np.zeros(4), free), 0)
    exact = _Terms.of(layer, Noise({"x": figures}, exact=frozenset(["x"])))
    assert not exact.inputs.any() and _Terms.of(layer, noise).inputs.all()


def test_channels_are_not_drawn_further_apart_than_a_multiplier_holds() -> None:
    factors = np.exp(held({}).within(np.log([1e-6, 1.0, 1e3])))
    assert factors.max() / factors.min() == pytest.approx(WIDEST) and WIDEST == 256
    assert factors.prod() == pytest.approx(1), "nothing holds the whole"
    beside = held({}, frozenset([0])).within(np.log([1.0, 2.0, 4.0]))
    np.testing.assert_allclose(np.exp(beside), [1, 2, 4])


def test_a_clip_bounds_its_channels_and_they_are_never_shrunk() -> None:
    np.testing.assert_allclose(np.exp(held({1: 1.5, 2: 1.5}).within(np.log([0.1, 0.5, 10.0]))), [0.1, 1.0, 1.5])


def test_a_channel_hardly_seen_is_not_drawn_as_if_it_could_not_be_louder() -> None:
    _, layers, noise = noise_of(loud_net(60.0).proto)
    (term,) = (_Terms.of(layer, noise) for layer in layers if layer.node.output[0] == "b")
    read = noise.figures["ra"].high
    assert (read < read.max() / 8).sum() > 1
    expected = np.where(read > 0, np.maximum(read, read.max() / 8), 0)
    np.testing.assert_allclose(term.high * 255, expected)
    assert not term.low.any()


def test_maxima_grow_sharp() -> None:
    assert list(SHARPNESS) == sorted(SHARPNESS) and 2 ** SHARPNESS[0] == 8 and 2 ** SHARPNESS[-1] == 128
