"""One graph for every plan gives what the fake-quantised model of that plan gives, to the last bit."""

from dataclasses import replace

import numpy as np
import pytest
from fake_quantised import fake_quantised
from small_nets import residual_net

from sgsdump.quantisation.float_model import simplify
from sgsdump.quantisation.ranges.measured_ranges import measure_ranges
from sgsdump.quantisation.simulation import simulate
from sgsdump.quantisation.trials.plan_trial import PlanTrial
from sgsdump.sidecars.input_config import InputConfig, ModelInput, ModelOutput

CONFIG = InputConfig((ModelInput("data", "RGB", "RGB", (127.0,) * 3, (128.0,) * 3),), (ModelOutput("prob", True),))


def raw(seed):
    return {"data": np.random.default_rng(seed).integers(0, 256, (1, 3, 8, 8)).astype(np.float32)}


@pytest.fixture(scope="module")
def float_model():
    return simplify(residual_net())


@pytest.fixture(scope="module")
def ranges(float_model):
    return measure_ranges(float_model, [(str(s), {"data": (raw(s)["data"] - 127) / 128}) for s in range(3)])


def plain_outputs(model, ranges, raised, per_channel):
    config = replace(CONFIG, tensor_arrays=tuple(raised))
    simulation = simulate(fake_quantised(model, ranges, config, per_channel), raw(7))
    list(simulation.records)
    return simulation.outputs


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("raised", [(), ("r1",), ("pool", "flat"), ("r1", "pool", "flat")])
def test_every_plan_is_the_fake_quantised_model_of_that_plan(float_model, ranges, raised, per_channel):
    trial = PlanTrial(float_model, ranges, CONFIG, per_channel)
    expected = plain_outputs(float_model, ranges, raised, per_channel)
    np.testing.assert_array_equal(trial.run(raised, raw(7))["prob"], expected["prob"])


def test_domains_and_rates(float_model, ranges):
    trial = PlanTrial(float_model, ranges, CONFIG)
    assert [d.name for d in trial.domains] == ["r1", "pool", "flat"]
    assert [d.weights for d in trial.domains] == [64, 432, 30]
    assert trial.fixed_weights == 216
    assert trial.rate([]) == 0.5
    assert trial.rate(["pool"]) == (742 + 432) / (2 * 742)
