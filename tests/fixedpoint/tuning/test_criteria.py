"""Several outputs: none hides another, and the user says which count; what a target asks for, at its limit."""

import math

import numpy as np
import pytest
from small_nets import conv, model, node, weights

from sgsdump.errors import ConfigError
from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.quantisation.objective import score, watched_by_output
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import measure_ranges
from sgsdump.fixedpoint.tuning.criteria import (
    MEAN,
    WORST,
    Objective,
    Picture,
    combined_error,
    measured,
    parse_objective,
    parse_target,
)
from sgsdump.fixedpoint.tuning.proposals import every_plan
from sgsdump.fixedpoint.tuning.search import search_rates
from sgsdump.fixedpoint.tuning.setup import Judging, set_up
from sgsdump.sidecars.input_config import InputConfig, ModelInput

CONFIG = InputConfig((ModelInput("data", "RGB", "RGB", (127.0,) * 3, (128.0,) * 3),))
WATCHED = {"boxes": "boxes", "prob": "logits"}


def scored(**errors):
    """A score in which each tensor has this error."""
    golden = {name: np.array([1.0, 0.0]) for name in errors}
    return score({name: np.array([1.0, error**0.5]) for name, error in errors.items()}, golden)


INT8, INT16 = scored(boxes=0.8, logits=0.002), scored(boxes=0.08, logits=0.001)


@pytest.mark.parametrize(
    ("how", "plan", "error"),
    [
        (MEAN, INT8, 0.401),
        (MEAN, INT16, 0.401 * (0.1 + 0.5) / 2),
        # Without scaling the boxes would hide that the logits are twice as bad as INT8's.
        (MEAN, scored(boxes=0.08, logits=0.004), 0.401 * (0.1 + 2) / 2),
        (WORST, INT16, 0.401 * (0.1 + 0.5) / 2),
        (WORST, INT8, 0.401 * (0.3 + 0.9)),
        (WORST, scored(boxes=0.16, logits=0.002), 0.401 * (0.3 + 0.5)),
        (WORST, scored(boxes=0.04, logits=0.0005), 0.401 * (0.3 - 0.05)),
    ],
)
def test_every_output_counts_the_same_at_int8(how, plan, error):
    combined = combined_error(Objective(how, ("boxes", "logits")), INT8, INT16)
    assert combined.of(plan) == pytest.approx(error)


@pytest.mark.parametrize("how", [MEAN, WORST])
@pytest.mark.parametrize("name", ["boxes", "logits"])
def test_of_one_output_its_own_error_counts(how, name):
    combined = combined_error(Objective(how, (name,)), INT8, INT16)
    for plan in (INT8, INT16):
        assert combined.of(plan) == pytest.approx(plan.error(name))


def test_an_output_that_int8_leaves_exact_does_not_weigh_its_last_bits():
    both = Objective(MEAN, ("boxes", "logits"))
    combined = combined_error(both, scored(boxes=0.8, logits=1e-14), scored(boxes=0.08, logits=0.0))
    assert combined.of(scored(boxes=0.08, logits=9e-14)) == pytest.approx(0.02, rel=1e-3)


def test_what_cannot_be_measured_is_left_out_and_named():
    zero, one = np.zeros(2), np.ones(2)
    int16 = score({"boxes": one * 1.1, "mask": one}, {"boxes": one, "mask": zero})
    combined = combined_error(Objective(MEAN, ("boxes", "mask")), int16, int16)
    assert combined.left_out == ("mask",) and combined.of(int16) == pytest.approx(0.01)
    alone = combined_error(Objective(MEAN, ("mask",)), int16, int16)
    assert alone.left_out == () and alone.of(int16) == float("inf")


@pytest.mark.parametrize(
    ("text", "how", "names"),
    [
        ("mean", MEAN, ("boxes", "logits")),
        ("worst", WORST, ("boxes", "logits")),
        ("prob", MEAN, ("logits",)),
        ("logits", MEAN, ("logits",)),
        ("prob, boxes", MEAN, ("logits", "boxes")),
    ],
)
def test_objectives_by_word_and_by_name(text, how, names):
    assert parse_objective(text, WATCHED) == Objective(how, names)


def test_a_name_that_is_no_output():
    with pytest.raises(ConfigError, match=r"--objective: 'scores' is unknown. Use 'mean', .* boxes, prob$"):
        parse_objective("boxes,scores", WATCHED)


def two_outputs():
    """One convolution, then two branches; ``large`` is a thousand times as large as ``small``, and at 8 bits a thousand
    times as wrong."""
    constants = weights("c", (6, 3, 3, 3), 0)
    nodes = [conv("c", "data", pads=[1] * 4), node("Relu", ["c"], "r")]
    for index, name in enumerate(("large", "small")):
        for layer in (f"{name}1", f"{name}2"):
            index += 2
            constants |= weights(layer, (6, 6, 1, 1), index)
        # Channels far apart are too much for one 8-bit range of the last convolution's input.
        spread = 10 ** np.linspace(-2, 1, 6, dtype=np.float32) if name == "large" else np.ones(6, np.float32)
        constants[f"{name}1.w"] *= spread.reshape(-1, 1, 1, 1)
        constants[f"{name}2.w"] *= (1 / spread).reshape(1, -1, 1, 1) * np.float32(1000 if name == "large" else 1)
        nodes += [conv(f"{name}1", "r"), node("Relu", [f"{name}1"], f"{name}r"), conv(f"{name}2", f"{name}r")]
        nodes.append(node("Identity", [f"{name}2"], name))
    return simplify(model(nodes, constants, {"data": (1, 3, 8, 8)}, ["large", "small"]))


@pytest.fixture(scope="module")
def net():
    float_model = two_outputs()
    raws = [{"data": np.random.default_rng(s).integers(0, 256, (1, 3, 8, 8)).astype(np.float32)} for s in range(3)]
    feeds = [({"data": (raw["data"] - 127) / 128}, raw) for raw in raws]
    return float_model, measure_ranges(float_model, [(str(i), feed) for i, (feed, _) in enumerate(feeds)]), feeds


def tuned(net, text, monkeypatch, exhaustive):
    from sgsdump.fixedpoint.tuning import search

    monkeypatch.setattr(search, "EXHAUSTIVE", 12 if exhaustive else 0)
    float_model, ranges, feeds = net
    made = set_up(
        float_model,
        ranges,
        CONFIG,
        feeds,
        Judging(objective=parse_objective(text, watched_by_output(float_model.proto))),
    )
    found = search_rates(made.pool, made.sizes, (0.6, 0.75, 0.9))
    made.pool.measure(map(made.sizes.plan, every_plan(made.sizes.weights, made.sizes.total)))
    made.pool.close()
    return made, found


@pytest.mark.parametrize("exhaustive", [True, False])
@pytest.mark.parametrize("text", ["mean", "worst"])
def test_the_plan_to_take_repairs_the_small_output_too(net, text, monkeypatch, exhaustive):
    made, found = tuned(net, text, monkeypatch, exhaustive)
    low, high = (made.pool.scores[plan] for plan in (frozenset(), frozenset(made.sizes.domains)))
    assert low.error("large") > 100 * low.error("small"), "the net is what its name says"
    taken = made.pool.scores[found.smallest.plan]
    for name in ("large", "small"):
        way = (low.error(name) - taken.error(name)) / (low.error(name) - high.error(name))
        assert way > 0.89, f"{name} goes {way:.0%} of its own way to INT16"
    for each in found.plans:
        fitting = [plan for plan in made.pool.scores if made.sizes.rate(plan) <= each.rate]
        assert made.pool.error(each.plan) <= min(map(made.pool.error, fitting)) * 1.0001


@pytest.mark.parametrize(
    ("text", "raised", "not_raised"), [("large", "larger", "smallr"), ("small", "smallr", "larger")]
)
def test_an_output_by_name_is_repaired_alone(net, text, raised, not_raised, monkeypatch):
    _, found = tuned(net, text, monkeypatch, True)
    assert raised in found.smallest.plan and not_raised not in found.smallest.plan


def test_a_progress_file_serves_every_objective(net, tmp_path):
    float_model, ranges, feeds = net
    runs = []
    for how in (MEAN, WORST):
        objective = Objective(how, ("large", "small"))
        made = set_up(float_model, ranges, CONFIG, feeds, Judging(objective=objective, file=tmp_path / "progress.json"))
        search_rates(made.pool, made.sizes, (0.75, 0.9))
        made.pool.close()
        runs.append(made.pool.runs)
    assert runs[0] > 0 and runs[1] == 0


# y: cos 0.8, rmse 0.5, error 0.4; z is as it should be
VALUES = {"y": np.array([2.0, 1.0]), "z": np.array([1.0, 1.0])}
FLOATS = {"y": np.array([1.0, 2.0]), "z": np.array([1.0, 1.0])}
SCORE = score(VALUES, FLOATS, 0.75)


@pytest.mark.parametrize(
    ("text", "value", "reached"),
    [
        *(("output-cos>=0.79", 0.8, True), ("output-cos>=0.81", 0.8, False)),
        *(("output-rmse<=0.67", 2 / 3, True), ("output-rmse<=0.66", 2 / 3, False)),
        *(("error<=0.4", 0.4, True), ("error<=0.39", 0.4, False), (" error <= 4e-1 ", 0.4, True)),
        *(("metric>=0.75", 0.75, True), ("metric>=0.76", 0.75, False), ("metric>=-1", 0.75, True)),
    ],
)
def test_a_target_is_reached_at_its_value(text, value, reached):
    """The lowest COS and the highest RMSE of any output count; the error is that of the objective."""
    target = parse_target(text)
    assert target.of(SCORE, ["y", "z"], 0.4) == pytest.approx(value)
    assert target.reached(SCORE, ["y", "z"], 0.4) == reached


def test_without_outputs_no_cos_is_good_enough():
    assert math.isnan(parse_target("output-cos>=0").of(SCORE, [], 0.4))
    assert not parse_target("output-cos>=0").reached(SCORE, [], 0.4)
    assert not parse_target("output-rmse<=9").reached(SCORE, [], 0.4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("output-cos<=0.9", "output-cos is better when higher"),
        ("metric<=0.9", "metric is better when higher"),
        ("output-rmse>=0.9", "output-rmse is better when lower"),
        ("error>=0.9", "error is better when lower"),
        ("error>0.9", "is not NAME>=NUMBER"),
        ("cos>=0.9", "NAME is one of output-cos, output-rmse, error, metric"),
        ("error<=inf", "is not NAME>=NUMBER"),
    ],
)
def test_a_target_names_what_is_better(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_target(text)


def test_a_metric_gets_what_it_has_parameters_for():
    picture = Picture({}, {"y": np.ones(2), "hidden": np.ones(2)}, "cat.png", 3)
    asked = {
        "nothing": lambda ours, theirs: len(ours) + len(theirs),
        "label": lambda ours, theirs, label: label,
        "picture": lambda ours, theirs, *, picture: len(picture),
        "all": lambda ours, theirs, **told: 100 * told["label"] + len(told["picture"]),
    }
    found = {name: measured(metric, ["y"], {"y": np.zeros(2), "hidden": 0}, picture) for name, metric in asked.items()}
    assert found == {"nothing": 2, "label": 3, "picture": 7, "all": 307}
