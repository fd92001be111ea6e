"""The float approximation of a plan rounds as the hardware does: its error is the integers'."""

import numpy as np
import pytest
from small_nets import conv, model, node, weights

from sgsdump.executors.onnx_runtime.repeated_graph import WholeGraph
from sgsdump.fixedpoint.quantisation.calibration import calibrate
from sgsdump.fixedpoint.quantisation.float_model import deployed, simplify
from sgsdump.fixedpoint.quantisation.ranges.statistics import side_ranges
from sgsdump.fixedpoint.quantisation.trials.hardware_rounding import OnHardware
from sgsdump.fixedpoint.quantisation.trials.integer_outputs import FixedOutputs
from sgsdump.fixedpoint.quantisation.trials.plan_trial import PlanTrial, words_of
from sgsdump.fixedpoint.tuning.integer_scores import fixed_of
from sgsdump.models.passes.rewrites import mark_outputs
from sgsdump.sidecars.input_config import InputConfig, ModelInput, ModelOutput

CONFIG = InputConfig((ModelInput("data", "RGB", "RGB", (127.0,) * 3, (128.0,) * 3),), (ModelOutput("d", True),))
SIZE = 16


def channels(name, seed, low, high):
    """A constant of one value per channel."""
    return {name: np.random.default_rng(seed).uniform(low, high, (1, 8, 1, 1)).astype(np.float32)}


def net(middle, constants):
    """Convolutions with ``middle`` from the second one's output ``b`` to ``m``. The picture's, always in 8 bits, loses
    nothing by them."""
    given = {**weights("a", (8, 3, 3, 3), 1), **weights("b", (8, 8, 3, 3), 2), **weights("c", (8, 8, 1, 1), 3)}
    given |= {**weights("d", (6, 8, 3, 3), 4), **constants}
    whole = np.random.default_rng(8).integers(-126, 127, given["a.w"].shape)
    whole[0, 0, 0, 0] = 127
    given["a.w"] = (whole * 0.01).astype(np.float32)
    nodes = [conv("a", "data", pads=[1] * 4), node("Relu", ["a"], "ra"), conv("b", "ra", pads=[1] * 4), *middle]
    nodes += [conv("c", "m"), node("Relu", ["c"], "rc"), conv("d", "rc", pads=[1] * 4)]
    return simplify(model(nodes, given, {"data": (1, 3, SIZE, SIZE)}, ["d"]))


def kept_apart():
    """A BatchNormalization after a Relu, which no convolution takes in: MUL and ADD."""
    nodes = [node("Relu", ["b"], "rb"), node("Mul", ["rb", "k"], "rk"), node("Add", ["rk", "o"], "m")]
    return net(nodes, {**channels("k", 5, 0.2, 3), **channels("o", 6, -2, 2)})


def silu():
    nodes = [node("Mul", ["b", "w"], "s"), node("Sigmoid", ["s"], "g"), node("Mul", ["s", "g"], "m")]
    return net(nodes, channels("w", 7, 4, 9))


def plain():
    return net([node("Relu", ["b"], "m")], {})


def pictures():
    generator = np.random.default_rng(0)
    for seed in range(4):
        raw = {"data": generator.integers(0, 256, (1, 3, SIZE, SIZE)).astype(np.float32)}
        yield str(seed), {"data": (raw["data"] - 127) / 128}, raw


def errors(network, plan_of, hardware):
    """Of a plan in float and in integers: sum((fixed - float)^2) over all pictures."""
    feeds = list(pictures())
    found = calibrate(network, [(label, feed) for label, feed, _ in feeds], CONFIG, "L1")
    side = side_ranges(found.statistics)
    trial = PlanTrial(network, found.ranges, CONFIG, threads=1, hardware=OnHardware(side) if hardware else None)
    plan = plan_of([domain.name for domain in trial.domains])
    integers = FixedOutputs(network, fixed_of(trial, words_of(trial, plan)).proto, ["d"])
    floats = WholeGraph(mark_outputs(deployed(network), ["d"]), 1)
    searched = exact = 0.0
    for _, feed, raw in feeds:
        real = floats.run(feed, ["d"])["d"].astype(np.float64)
        searched += float(np.square(trial.run(plan, raw, ["d"])["d"] - real).sum())
        exact += float(np.square(integers.run(feed, raw)["d"] - real).sum())
    return searched, exact


def every(names):
    return frozenset(names)


def none(names):
    return frozenset()


@pytest.mark.parametrize("network", [plain, kept_apart, silu])
@pytest.mark.parametrize("plan", [none, every])
def test_the_error_of_a_plan_is_the_integers(network, plan):
    searched, exact = errors(network(), plan, True)
    assert searched == pytest.approx(exact, rel=0.1)


@pytest.mark.parametrize(("network", "plan"), [(plain, every), (kept_apart, none), (silu, every)])
def test_without_it_the_error_is_another(network, plan):
    searched, exact = errors(network(), plan, False)
    assert searched != pytest.approx(exact, rel=0.15)
