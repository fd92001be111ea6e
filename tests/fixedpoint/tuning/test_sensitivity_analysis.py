"""The sensitivity analysis measures on one session what the integers of many fixed models give, nearly."""

from dataclasses import replace

import numpy as np
import pytest
from small_nets import conv, model, node, residual_net, run_all, weights

from sgsdump.comparison.metrics import Sums
from sgsdump.errors import InputError, ValuesError
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.quantisation.objective import error_of, output_error
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import measure_ranges
from sgsdump.fixedpoint.quantisation.simulation import simulate
from sgsdump.fixedpoint.tuning import sensitivity_analysis
from sgsdump.fixedpoint.tuning.sensitivity_analysis import SensitivityAnalysis
from sgsdump.sidecars.input_config import InputConfig, ModelInput, ModelOutput
from sgsdump.tensors.types import Range, to_nhwc

CONFIG = InputConfig((ModelInput("data", "RGB", "RGB", (127.0,) * 3, (128.0,) * 3),), (ModelOutput("prob", True),))
EVERY = {"r1", "pool", "flat"}
LAYER = {"r1": ("c2", "r2"), "pool": ("c3", "sig"), "flat": ("fc", "fc")}


def raw(seed):
    return {"data": np.random.default_rng(seed).integers(0, 256, (1, 3, 8, 8)).astype(np.float32)}


def normalised(seed):
    return {"data": (raw(seed)["data"] - 127) / 128}


def feeds(*seeds):
    return [(str(seed), normalised(seed), raw(seed)) for seed in seeds]


@pytest.fixture(scope="module")
def float_model():
    return simplify(residual_net())


@pytest.fixture(scope="module")
def ranges(float_model):
    return measure_ranges(float_model, [(str(s), normalised(s)) for s in range(3)])


@pytest.fixture(scope="module")
def plain(float_model, ranges):
    """(raised, seed) -> every tensor of the fixed model."""

    def run(raised, seed):
        fixed = make_fixed(float_model, ranges, replace(CONFIG, tensor_arrays=tuple(sorted(raised))))
        records = simulate(replace(float_model, proto=fixed.proto), raw(seed)).records
        return {record.name: record.tensor.real() for record in records if record.io == "out"}

    return run


def relative(pairs):
    """Σ|a-b| / Σ|b| over all pairs, in float64."""
    pairs = [(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in pairs]
    return sum(np.abs(a - b).sum() for a, b in pairs) / sum(np.abs(b).sum() for _, b in pairs)


def test_sensitivity_is_what_the_integers_give(float_model, ranges, plain):
    trial = SensitivityAnalysis(float_model, ranges, CONFIG)
    seen: list[int] = []
    found = trial.measure(feeds(7, 8), seen.append)
    assert trial.judged == ["fc"] and found.logits == {"fc"}
    assert seen[-1] == 2 * (2 + 2 * 3) == len(seen) + 2 and found.runs == seen[-1] and found.pictures == 2
    real = {seed: {n: to_nhwc(a) for n, a in run_all(float_model.proto, normalised(seed)).items()} for seed in (7, 8)}
    best = {seed: plain(EVERY, seed) for seed in (7, 8)}

    def weighed(values, against):
        """The logits of the Softmax by its probabilities."""
        p = np.exp(against - against.max())
        return (values * p / p.sum(), against * p / p.sum())

    def error(raised, name, against):
        pairs = [(plain(raised, s)[name], against[s][name]) for s in (7, 8)]
        return pytest.approx(relative([weighed(*pair) for pair in pairs] if name == "fc" else pairs), rel=0.2)

    assert output_error(found.all_8) == error(set(), "fc", real)
    assert output_error(found.all_16) == error(EVERY, "fc", real)
    assert [sensitivity.domain.name for sensitivity in found.sensitivities] == ["r1", "pool", "flat"]
    for sensitivity in found.sensitivities:
        name, layer = LAYER[sensitivity.domain.name]
        lowered, raised = EVERY - {sensitivity.domain.name}, {sensitivity.domain.name}
        assert dict(sensitivity.own) == {name: error(lowered, layer, best)}
        assert dict(sensitivity.inherited) == {name: error(raised, layer, real)}
        assert sensitivity.brings == error(lowered, "fc", best)
        assert sensitivity.left == error(raised, "fc", real)
    tried = trial.try_plan(["pool", "r1"], feeds(7, 8))
    assert output_error(tried) == error({"pool", "r1"}, "fc", real)


def test_no_picture(float_model, ranges):
    with pytest.raises(InputError, match="no image"):
        SensitivityAnalysis(float_model, ranges, CONFIG).measure([])


def test_a_convolution_without_range_stays_float(float_model, ranges):
    partial = {name: found for name, found in ranges.items() if name not in ("flat", "gap", "sig")}
    found = SensitivityAnalysis(float_model, partial, CONFIG).measure(feeds(7))
    assert [sensitivity.brings == 0 for sensitivity in found.sensitivities] == [False, False, True]


def test_a_picture_without_range_stays_float_and_is_fed_as_float(float_model, ranges):
    partial = {name: found for name, found in ranges.items() if name != "data"}
    found = SensitivityAnalysis(float_model, partial, CONFIG).measure(feeds(7))
    assert output_error(found.all_16) < 0.001


def test_a_single_domain_alone_is_the_whole_model():
    nodes = [conv("c1", "data"), node("Relu", ["c1"], "r1"), conv("prob", "r1")]
    constants = {**weights("c1", (4, 3, 1, 1)), **weights("prob", (2, 4, 1, 1))}
    small = simplify(model(nodes, constants, {"data": (1, 3, 8, 8)}, ["prob"]))
    trial = SensitivityAnalysis(small, measure_ranges(small, [("", normalised(0))]), CONFIG)
    found = trial.measure(feeds(1, 2))
    assert trial.runs == 3 and found.runs == 6 and not found.logits
    assert found.sensitivities[0].left == output_error(found.all_16) < output_error(found.all_8)


def test_outputs_that_the_ranges_call_zero_are_refused_before_any_run(float_model, ranges):
    trial = SensitivityAnalysis(float_model, ranges, CONFIG)
    trial.trial.ranges = {**ranges, **{name: Range.of(-1e-9, 1e-9) for name in trial.judged}}
    with pytest.raises(ValuesError, match="zero or empty on every image"):
        trial.measure(pytest.fail(f"run {number}") for number in range(1))


def sums(d1, b1):
    return Sums(1, b1, b1, b1, d1, d1, b1)


def test_the_output_error_is_the_mean_of_the_outputs_that_are_not_zero():
    assert output_error({"a": sums(1, 4), "b": sums(3, 4), "zero": sums(2, 0)}) == 0.5
    assert error_of(sums(0, 0)) == 0
    with pytest.raises(ValuesError, match="zero or empty on every image"):
        output_error({"zero": sums(2, 0)})
    with pytest.raises(ValuesError, match="no operator of the model computes a numeric output"):
        output_error({})
    with pytest.raises(ValuesError, match="'b' holds NaN"):
        output_error({"a": sums(1, 4), "b": sums(float("nan"), 4)})


def test_domains_measured_one_by_one_give_the_same(float_model, ranges, monkeypatch):
    together = SensitivityAnalysis(float_model, ranges, CONFIG)
    monkeypatch.setattr(sensitivity_analysis, "PART_BYTES", 1)
    alone = SensitivityAnalysis(float_model, ranges, CONFIG)
    first, second = (analysis.measure(feeds(0, 1)) for analysis in (together, alone))
    assert second.runs == 2 * alone.runs == 2 * (together.runs + 2 * (len(EVERY) - 1))
    assert replace(second, runs=first.runs) == first
    assert together.try_plan(["pool"], feeds(0)) == alone.try_plan(["pool"], feeds(0))


def test_many_domains_are_ranked_on_the_first_pictures_and_the_head_is_measured_on_all(
    float_model, ranges, monkeypatch
):
    trial = SensitivityAnalysis(float_model, ranges, CONFIG)
    every, first = trial.measure(feeds(3, 4, 5)), trial.measure(feeds(3))
    monkeypatch.setattr(sensitivity_analysis, "RANKED", len(EVERY))
    monkeypatch.setattr(sensitivity_analysis, "HEAD", 1)
    seen: list[int] = []
    found = trial.measure(feeds(3, 4, 5), seen.append)
    assert trial.ranked_on == found.ranked_on == 1 and found.pictures == 3
    assert seen[-1] == trial.most_runs(3) >= found.runs < every.runs
    assert (found.all_8, found.all_16) == (every.all_8, every.all_16)
    loudest = max(first.sensitivities, key=lambda each: each.brings).domain.name
    gives_most = min(first.sensitivities, key=lambda each: each.left).domain.name
    share = output_error(every.all_8) / output_error(first.all_8)
    others = 0
    for own, on_all, on_first in zip(found.sensitivities, every.sensitivities, first.sensitivities):
        if own.domain.name in (loudest, gives_most):
            assert own == on_all
        else:
            others += 1
            assert own.left == pytest.approx(on_first.left * share) != on_all.left
            assert dict(own.own) == dict(on_first.own)
    assert others
