"""One graph for every plan gives what the fake-quantised model of that plan gives, to the last bit."""

from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from fake_quantised import fake_quantised
from small_nets import conv, model, node, residual_net, weights
from vendor_probes import Probe

from sgsdump.executors.onnx_runtime.repeated_graph import StagedGraph
from sgsdump.fixedpoint.quantisation.calibration import calibrate
from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.quantisation.quant_plan import Choice, PlanScales, decide
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import measure_ranges
from sgsdump.fixedpoint.quantisation.ranges.statistics import side_ranges
from sgsdump.fixedpoint.quantisation.simulation import simulate
from sgsdump.fixedpoint.quantisation.trials.hardware_rounding import OnHardware
from sgsdump.fixedpoint.quantisation.trials.plan_trial import Domain, PlanTrial
from sgsdump.fixedpoint.quantisation.trials.plan_walk import PlanWalk, _starts
from sgsdump.sidecars.input_config import InputConfig, ModelInput, ModelOutput
from sgsdump.tensors.types import Range

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


@pytest.mark.parametrize("raised", [(), ("t2",), ("r3",), ("t2", "r3", "flat")])
@pytest.mark.parametrize("part", [1, 0.4])
def test_narrow_ranges_cut_off_at_both_ends_behind_relus_movers_and_neither(raised, part):
    """A domain of a Relu, of a convolution without one and of what moves both: its zero point is not 0."""
    constants = {**weights("c1", (4, 3, 3, 3), 1), **weights("c2", (4, 3, 1, 1), 2), **weights("c3", (6, 8, 1, 1), 3)}
    constants |= {**weights("c4", (5, 6, 8, 8), 4), **weights("fc", (7, 5), 5)}
    nodes = [
        conv("c1", "data", pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], "r1"),
        conv("c2", "data"),
        node("Concat", ["r1", "c2"], "cat", axis=1),
        node("Transpose", ["cat"], "t1", perm=[0, 1, 3, 2]),
        node("Transpose", ["t1"], "t2", perm=[0, 1, 3, 2]),
        conv("c3", "t2"),
        node("Relu", ["c3"], "r3"),
        conv("c4", "r3"),
        node("Flatten", ["c4"], "flat"),
        node("Gemm", ["flat", "fc.w", "fc.b"], "fc", transB=1),
    ]
    net = simplify(model(nodes, constants, {"data": (1, 3, 8, 8)}, ["fc", "t2"]))
    config = replace(CONFIG, outputs=(ModelOutput("fc", True), ModelOutput("t2", True)))
    feeds = [(str(s), {"data": (raw(s)["data"] - 127) / 128}) for s in range(3)]
    found = {
        name: each if name in constants or name == "data" else Range.of(part * each.low, part * each.high)
        for name, each in measure_ranges(net, feeds).items()
    }
    trial = PlanTrial(net, found, config)
    simulation = simulate(fake_quantised(net, found, replace(config, tensor_arrays=raised)), raw(7))
    list(simulation.records)
    outputs = trial.run(raised, raw(7))
    assert len(np.unique(outputs["t2"])) > 50 and len(np.unique(outputs["fc"])) > 1
    for name, values in outputs.items():
        np.testing.assert_array_equal(values, simulation.outputs[name])
    kinds = [each.op_type for each in trial.every_plan.graph.node]
    assert (kinds.count("FusedConv"), kinds.count("Relu")) == (2, 0)
    assert "t1#scale" not in trial.parameters(frozenset())


@pytest.mark.parametrize(
    ("shape", "left"),
    [((1, 4, 1, 1), []), ((1, 1, 1, 1), ["Mul", "Add"]), ((4, 1, 8), ["Mul", "Add"]), ((1, 4, 8, 1), ["Mul", "Add"])],
)
def test_a_factor_and_an_addend_of_each_channel_are_one_pass_to_the_same_bits(shape, left):
    """Where they are of a convolution's channels and nothing else."""
    rng = np.random.default_rng(3)
    constants = {**weights("c1", (4, 3, 3, 3), 1), **weights("c2", (5, 4, 8, 8), 2)}
    constants |= {name: rng.normal(0, 2, shape).astype(np.float32) for name in ("factor", "addend")}
    nodes = [
        conv("c1", "data", pads=[1, 1, 1, 1]),
        node("Mul", ["c1", "factor"], "scaled"),
        node("Add", ["scaled", "addend"], "moved"),
        conv("c2", "moved"),
    ]
    net = simplify(model(nodes, constants, {"data": (1, 3, 8, 8)}, ["c2"]))
    config = replace(CONFIG, outputs=(ModelOutput("c2", True),))
    found = measure_ranges(net, [(str(s), {"data": (raw(s)["data"] - 127) / 128}) for s in range(3)])
    trial = PlanTrial(net, found, config)
    simulation = simulate(fake_quantised(net, found, config), raw(7))
    list(simulation.records)
    outputs = trial.run((), raw(7))["c2"]
    assert len(np.unique(outputs)) > 1
    np.testing.assert_array_equal(outputs, simulation.outputs["c2"])
    kinds = [each.op_type for each in trial.every_plan.graph.node]
    assert [kind for kind in kinds if kind in ("Mul", "Add")] == left
    assert kinds.count("BatchNormalization") == (0 if left else 1)


def test_domains_and_rates(float_model, ranges):
    trial = PlanTrial(float_model, ranges, CONFIG)
    assert [d.name for d in trial.domains] == ["r1", "pool", "flat"]
    assert [d.weights for d in trial.domains] == [64, 432, 30]
    assert trial.fixed_weights == 216
    assert trial.rate([]) == 0.5
    assert trial.rate(["pool"]) == (742 + 432) / (2 * 742)


@pytest.mark.parametrize(
    ("fixed", "domains", "raised", "rate"),
    [(0, [], "", 0.5), (10, [], "", 0.5), (0, [6, 4], "a", 0.8), (0, [6, 4], "ab", 1.0), (10, [6, 4], "b", 0.6)],
)
def test_the_rate_is_0_5_for_all_8_bits_and_without_weights(fixed, domains, raised, rate):
    of_sizes = [Domain(name, (name,), (name,), size) for name, size in zip("ab", domains)]
    assert PlanTrial.rate(SimpleNamespace(fixed_weights=fixed, domains=of_sizes), raised) == pytest.approx(rate)


def test_what_a_trial_keeps_of_plans_before_changes_no_plan(float_model, ranges):
    """Against trials that have tried nothing yet; of ranges of other numbers, and of equal names in another order."""
    hardware = OnHardware()
    trial = PlanTrial(float_model, ranges, CONFIG, hardware=hardware)
    walk = PlanWalk(trial, ["prob"])
    wider = {name: Range.of(2 * each.low, 3 * each.high) for name, each in ranges.items() if each.min.size == 1}
    found = [None, {**ranges, **wider}, dict(reversed(ranges.items())), None]
    plans = [(), ("r1",), ("pool", "flat"), ("r1",), ("r1", "pool", "flat"), ()]
    for measured in found:
        for raised in map(frozenset, plans):
            fresh = PlanTrial(float_model, ranges, CONFIG, hardware=hardware).parameters(raised, measured)
            fed = walk.prepared(raised, measured).fed
            assert fed.keys() == fresh.keys()
            for name, value in fresh.items():
                expected = value.numpy() if hasattr(value, "numpy") else value
                np.testing.assert_array_equal(fed[name].numpy(), expected, err_msg=name)
    assert trial.parameters(frozenset(["r1"]))["r1#scale"] is trial.parameters(frozenset(["r1", "flat"]))["r1#scale"]


@pytest.mark.parametrize(("count", "most"), [(4, 1), (4, 4), (7, 3), (9, 4)])
def test_stages_begin_where_least_is_run_again(count, most):
    """Against all ways of choosing them; the first place always begins one."""
    offsets = np.cumsum(np.random.default_rng(count * most).uniform(0, 9, count) ** 2)

    def again(starts):
        return sum(at - offsets[max(s for s in starts if s <= place)] for place, at in enumerate(offsets))

    starts = _starts(offsets, most)
    assert len(set(starts)) == most and starts == sorted(starts)
    least = min(again((0, *others)) for others in combinations(range(1, count), most - 1))
    assert again(starts) == pytest.approx(least)


@pytest.mark.parametrize("name", ["f_cat", "t_mul", "h_fc", "joined"])
def test_plans_in_a_row_are_what_each_is_by_itself(name, shared):
    """Concat, Add, Mul, BatchNormalization and movers tie what neighbours have to one another."""
    if name == "joined":
        net, config = joined(), CONFIG
        feeds = [(str(s), {"data": (raw(s)["data"] - 127) / 128}) for s in range(3)]
    else:
        probe = Probe(shared / f"sigmastar/probes/{name}")
        net, config, feeds = probe.model, probe.config, [("0", {"data": (probe.picture["data"] - 127) / 128})]
    found = calibrate(net, feeds, config, "L1")

    def trial() -> PlanTrial:
        return PlanTrial(net, found.ranges, config, threads=1, hardware=OnHardware(side_ranges(found.statistics)))

    kept, scales = trial(), PlanScales(trial().analysis)
    names = [domain.name for domain in kept.domains]
    rng = np.random.default_rng(3)
    for _ in range(6):
        raised = frozenset(name for name in names if rng.random() < 0.5)
        choice = Choice(tensors=tuple(raised))
        assert scales.of(choice, found.ranges) == decide(kept.analysis, found.ranges, choice).tensors
        fed, fresh = kept.parameters(raised), trial().parameters(raised)
        assert fed.keys() == fresh.keys()
        for parameter, value in fresh.items():
            sides = [each.numpy() if hasattr(each, "numpy") else each for each in (fed[parameter], value)]
            np.testing.assert_array_equal(*sides, err_msg=parameter)


def joined():
    """Two convolutions joined, moved, normalised and added, each read by others."""
    constants = {**weights("c1", (4, 3, 3, 3), 1), **weights("c2", (4, 3, 1, 1), 2), **weights("c3", (8, 8, 1, 1), 3)}
    constants |= {**weights("c4", (8, 8, 3, 3), 4), **weights("c5", (8, 8, 1, 1), 5), **weights("c6", (7, 8, 8, 8), 6)}
    constants |= {f"bn.{n}": np.linspace(0.5, 1.5, 8).astype(np.float32) for n in ("s", "b", "m", "v")}
    nodes = [
        conv("c1", "data", pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], "r1"),
        conv("c2", "data"),
        node("Concat", ["r1", "c2"], "cat", axis=1),
        conv("c3", "cat"),
        node("BatchNormalization", ["c3", "bn.s", "bn.b", "bn.m", "bn.v"], "bn"),
        node("Sigmoid", ["bn"], "gate"),
        node("Mul", ["bn", "gate"], "silu"),
        conv("c4", "silu", pads=[1, 1, 1, 1]),
        node("Add", ["c4", "silu"], "sum"),
        node("Transpose", ["sum"], "moved", perm=[0, 1, 3, 2]),
        conv("c5", "moved"),
        node("Relu", ["c5"], "r5"),
        conv("c6", "r5"),
    ]
    return simplify(model(nodes, constants, {"data": (1, 3, 8, 8)}, ["c6"]))


def test_what_is_kept_of_one_plan_changes_no_plan_after_it(float_model, ranges):
    """Plans that differ late from the one kept, and early from one another; also after another one is kept."""
    trial = PlanTrial(float_model, ranges, CONFIG)
    walk = PlanWalk(trial, ["prob"])
    visit = walk.visit(raw(3))
    every = frozenset(domain.name for domain in trial.domains)
    for kept in (every, frozenset()):
        visit.outputs(walk.prepared(kept))
        visit.keep()
        before = visit.held_bytes
        for plan in (
            every,
            every - {"flat"},
            every - {"r1"},
            every - {"flat"},
            frozenset(),
            frozenset(["flat"]),
            every,
        ):
            expected = walk.visit(raw(3)).outputs(walk.prepared(plan))["prob"]
            np.testing.assert_array_equal(visit.outputs(walk.prepared(plan))["prob"], expected)
        assert visit.held_bytes >= before


def test_when_another_plan_is_kept_the_next_may_go_on_from_the_one_before(monkeypatch, float_model, ranges):
    trial = PlanTrial(float_model, ranges, CONFIG)
    walk, run, started = PlanWalk(trial, ["prob"]), StagedGraph.run, []
    every = frozenset(domain.name for domain in trial.domains)
    visit = walk.visit(raw(3))
    monkeypatch.setattr(StagedGraph, "run", lambda self, stage, *rest: started.append(stage) or run(self, stage, *rest))
    found, begun = [], []
    for plan, kept in ((frozenset(), True), (every, True), (frozenset(), False), (every, False)):
        started.clear()
        found.append(visit.outputs(walk.prepared(plan))["prob"])
        begun.append(started[0])
        if kept:
            visit.keep()
    last = started[-1]
    assert begun[2:] == [last, last] and begun[1] < last
    np.testing.assert_array_equal(found[:2], found[2:])
