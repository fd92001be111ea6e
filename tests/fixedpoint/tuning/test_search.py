"""The search is as good as trying every plan, and every way to look at a plan gives the same numbers."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from small_nets import conv, model, node, run_all, weights

from sgsdump.errors import ConfigError, InputError
from sgsdump.executors.onnx_runtime.repeated_graph import StagedGraph
from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.fixedpoint.commands import demo
from sgsdump.fixedpoint.quantisation.calibration import calibrate
from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.quantisation.objective import Score, score, total, watched_tensors
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import measure_ranges
from sgsdump.fixedpoint.quantisation.trials.integer_outputs import FixedOutputs
from sgsdump.fixedpoint.quantisation.trials.plan_trial import PlanTrial, words_of
from sgsdump.fixedpoint.quantisation.trials.plan_walk import PlanWalk
from sgsdump.fixedpoint.tuning import integer_choice, plan_scores
from sgsdump.fixedpoint.tuning.criteria import parse_target
from sgsdump.fixedpoint.tuning.integer_choice import chosen
from sgsdump.fixedpoint.tuning.integer_scores import IntegerScores, fixed_of
from sgsdump.fixedpoint.tuning.plan_costs import Sizes
from sgsdump.fixedpoint.tuning.proposals import Surrogate, best_by_model, best_sum, changes_of, every_plan, proposals
from sgsdump.fixedpoint.tuning.search import check_rates, most_evaluations, search_rates, search_target
from sgsdump.fixedpoint.tuning.setup import Judging, set_up
from sgsdump.models.feeds.image_list import evenly
from sgsdump.models.model import open_model
from sgsdump.sidecars.input_config import InputConfig, ModelInput

CONFIG = InputConfig((ModelInput("data", "RGB", "RGB", (127.0,) * 3, (128.0,) * 3),))
RATES = (0.55, 0.65, 0.75, 0.85, 0.95)


def raw(seed):
    return {"data": np.random.default_rng(seed).integers(0, 256, (1, 3, 8, 8)).astype(np.float32)}


def feeds(count=3):
    return [({"data": (raw(s)["data"] - 127) / 128}, raw(s)) for s in range(count)]


def chain(depth, skip=True):
    """Convolutions whose errors meet again in additions, two with channels far apart; a softmax ends it."""
    rng = np.random.default_rng(5)
    constants, nodes, last = {}, [], "data"
    for index in range(depth):
        name = f"c{index}"
        own = weights(name, (6, 3 if index == 0 else 6, 3, 3), index)
        if index in (2, 4):
            # Channels far apart: too much for one 8-bit range of the next convolution's input.
            own[f"{name}.w"] *= (10.0 ** rng.uniform(-1.5, 1, 6)).astype(np.float32).reshape(-1, 1, 1, 1)
        constants |= own
        nodes += [conv(name, last, pads=[1, 1, 1, 1]), node("Relu", [name], f"r{index}")]
        if skip and index % 3 == 2:
            nodes += [node("Add", [f"r{index}", f"r{index - 2}"], f"a{index}")]
        last = nodes[-1].output[0]
    constants |= weights("fc", (4, 6, 1, 1), 99)
    nodes += [conv("fc", last), node("Softmax", ["fc"], "prob", axis=1)]
    return simplify(model(nodes, constants, {"data": (1, 3, 8, 8)}, ["prob"]))


@pytest.fixture(scope="module")
def float_model():
    return chain(6)


@pytest.fixture(scope="module")
def ranges(float_model):
    return measure_ranges(float_model, [(str(i), feed) for i, (feed, _) in enumerate(feeds())])


@pytest.fixture
def setup(float_model, ranges):
    made = set_up(float_model, ranges, CONFIG, feeds())
    yield made
    made.pool.close()


def integer_error(setup, float_model, plan):
    """The error by its formula, of the fixed model in integers: the oracle. Logits count by their probability; none of
    these is far below the top."""
    fixed = FixedOutputs(float_model, fixed_of(setup.trial, words_of(setup.trial, plan)).proto, ["fc"])
    theirs = SegmentRunner(float_model, keep_sessions=True)
    apart = energy = 0.0
    for feed, raw_feed in feeds():
        a = fixed.run(feed, raw_feed)["fc"]
        (b,) = [layer.array for layer in theirs.run(feed, only={"fc"})]
        b = b.astype(np.float64)
        p = np.exp(b - b.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        apart += float(((p * (a - b)) ** 2).sum())
        energy += float(((p * b) ** 2).sum())
    return apart / energy


def test_a_softmax_is_judged_by_its_input(float_model):
    assert watched_tensors(float_model.proto) == ["fc"]


def test_the_logits_of_a_softmax_are_weighed_in_the_search(setup, float_model):
    """The squares that the search sums are of the float model's logits times their probabilities."""
    whole = 0.0
    for feed, _ in feeds():
        logits = run_all(float_model.proto, feed)["fc"].astype(np.float64)
        p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        whole += ((p * logits) ** 2).sum()
    plan = frozenset(setup.pool.domains)
    setup.pool.measure([plan])
    assert setup.pool.scores[plan].sums["fc"].bb == pytest.approx(whole, rel=1e-5)


def test_a_walk_gives_what_each_plan_alone_gives(float_model, ranges):
    trial = PlanTrial(float_model, ranges, CONFIG, threads=1)
    names = [domain.name for domain in trial.domains]
    plans = [frozenset(np.random.default_rng(s).permutation(names)[: s % 7].tolist()) for s in range(12)]
    walk = PlanWalk(trial, ["prob"])
    for feed in (raw(1), raw(2)):
        seen = dict(walk.run(walk.ordered(plans), feed))
        assert seen.keys() == set(plans)
        for plan, outputs in seen.items():
            np.testing.assert_array_equal(outputs["prob"], trial.run(plan, feed)["prob"])


def test_many_domains_are_ranked_on_some_of_the_pictures_and_plans_judged_on_all(setup, monkeypatch):
    pool, most = setup.pool, len(setup.sizes.domains)
    assert pool.ranking == [0, 1, 2]
    monkeypatch.setattr(plan_scores, "RANKED", 2 * most)
    assert pool.ranking == [0, 2] and pool.unmeasured == 2
    found = search_rates(pool, setup.sizes, RATES)
    assert found.complete and pool.unmeasured == 0 and pool._sensitivities.keys() == {0, 2}
    assert {score.pictures for score in pool.scores.values()} == {3}
    plans = [frozenset(setup.sizes.domains[i : i + 3]) for i in range(most - 2)]
    pool.scores = {plan: score for plan, score in pool.scores.items() if plan not in plans}
    before = set(pool.scores)
    few = pool.measure_best(plans) or set(pool.scores) - before
    assert len(few) == min(plan_scores.KEPT, len(plans)) and all(map(pool.is_tried, plans))
    found = {plan: pool.scores[plan] for plan in few}
    pool.scores = {plan: pool.scores[plan] for plan in before}
    pool.measure(few)
    assert found == {plan: pool.scores[plan] for plan in few}, "in the pictures' order, so to the last bit"


def test_plans_measured_later_go_on_from_the_last_run(setup, float_model, ranges, monkeypatch):
    entered = []
    run = StagedGraph.run
    monkeypatch.setattr(
        StagedGraph, "run", lambda graph, stage, *given: entered.append(stage) or run(graph, stage, *given)
    )
    setup.pool.measure([frozenset()])
    whole = sorted(entered)
    assert whole == sorted(list(range(max(entered) + 1)) * len(setup.pool.pictures))
    entered.clear()
    late, early = frozenset(setup.sizes.domains[-1:]), frozenset(setup.sizes.domains[:1])
    setup.pool.measure([early, late])
    assert len(entered) < 1.5 * len(whole)
    fresh = set_up(float_model, ranges, CONFIG, feeds()).pool
    fresh.measure([early, late])
    assert {plan: fresh.scores[plan] for plan in (early, late)} == {p: setup.pool.scores[p] for p in (early, late)}


def test_scores_are_those_of_the_integers(setup, float_model):
    names = setup.sizes.domains
    plans = (frozenset(), frozenset(names[1:3]), frozenset(names))
    setup.pool.measure(plans)
    for plan in plans:
        assert setup.pool.error(plan) == pytest.approx(integer_error(setup, float_model, plan), rel=0.2)


def test_limits_are_of_what_stands_in_for_an_output(setup):
    """A user's metric is given the Softmax itself, whose error has no limit of its own."""
    exact = IntegerScores(setup.pool, setup.trial)
    assert set(exact.score(frozenset()).sums) == {"fc", "prob"} and set(exact.run(frozenset()).outputs) == {"fc"}


def test_the_search_is_as_good_as_the_best_of_all_plans(setup):
    found = search_rates(setup.pool, setup.sizes, RATES)
    assert found.exhaustive and found.complete
    every = [setup.sizes.plan(mask) for mask in every_plan(setup.sizes.weights, setup.sizes.total)]
    assert len(every) == 2 ** len(setup.sizes.domains)
    setup.pool.measure(every)
    for each in found.plans:
        best = min(setup.pool.error(plan) for plan in every if setup.sizes.rate(plan) <= each.rate)
        assert setup.pool.error(each.plan) == best
        assert setup.sizes.rate(each.plan) <= each.rate


def test_without_trying_all_the_search_is_as_good_too(setup, monkeypatch):
    """The way large nets are searched, on a net small enough to know the answer."""
    from sgsdump.fixedpoint.tuning import search

    monkeypatch.setattr(search, "EXHAUSTIVE", 0)
    found = search_rates(setup.pool, setup.sizes, RATES)
    tried = len(setup.pool.scores)
    assert not found.exhaustive and tried < 2 ** len(setup.sizes.domains)
    assert tried <= most_evaluations(len(setup.sizes.domains), len(RATES))
    every = [setup.sizes.plan(mask) for mask in every_plan(setup.sizes.weights, setup.sizes.total)]
    setup.pool.measure(every)
    for each in found.plans:
        best = min(setup.pool.error(plan) for plan in every if setup.sizes.rate(plan) <= each.rate)
        assert setup.pool.error(each.plan) <= best * 1.0001
    errors = [setup.pool.error(each.plan) for each in found.plans]
    assert errors == sorted(errors, reverse=True)


def test_a_target_is_reached_with_the_fewest_bytes(setup):
    every = [setup.sizes.plan(mask) for mask in every_plan(setup.sizes.weights, setup.sizes.total)]
    setup.pool.measure(every)
    errors = sorted(setup.pool.error(plan) for plan in every)
    target = parse_target(f"error<={errors[len(errors) // 3]}")
    (found,) = search_target(setup.pool, setup.sizes, target).plans
    fewest = min(setup.sizes.wide(p) for p in every if target.reached(setup.pool.scores[p], [], setup.pool.error(p)))
    assert setup.sizes.wide(found.plan) == fewest


def test_where_no_plan_reaches_a_target_the_nearest_is_proposed_and_the_integers_tell(setup):
    found = search_target(setup.pool, setup.sizes, parse_target("error<=1e-30"))
    assert setup.pool.error(found.smallest.plan) == min(map(setup.pool.error, setup.pool.scores))
    exact = IntegerScores(setup.pool, setup.trial)
    with pytest.raises(
        ConfigError, match=r"none of all \d+ plans tried reaches the target\. The .* with the chip's integer arithmetic"
    ):
        chosen(found, setup.pool, setup.sizes, exact, parse_target("error<=1e-30"))


@pytest.fixture(scope="module")
def every_plan_scored(float_model, ranges):
    """The set-up with a metric, and the scores of every plan: by the approximation, and in integers."""
    made = set_up(float_model, ranges, CONFIG, feeds())
    made.pool.metric = lambda ours, floats: -float(np.abs(ours["prob"] - floats["prob"]).sum())
    every = [made.sizes.plan(mask) for mask in every_plan(made.sizes.weights, made.sizes.total)]
    made.pool.measure(every)
    exact = IntegerScores(made.pool, made.trial)
    for plan in every:
        exact.score(plan)
    yield made, exact, every
    made.pool.close()


@pytest.mark.parametrize("target", ["error", "output-cos", "metric"])
def test_a_target_is_reached_in_integers_by_the_smallest_plan(every_plan_scored, target):
    """The approximation is told to be far too hopeful: what it takes for good enough is not."""
    setup, exact, every = every_plan_scored
    pool, trial, sizes = setup.pool, setup.trial, setup.sizes
    figures = {
        "error": ("<=", lambda plan: exact.error(plan)),
        "output-cos": (">=", lambda plan: exact.score(plan).cos("prob")),
        "metric": (">=", lambda plan: exact.score(plan).mean_metric),
    }
    sign, figure = figures[target]
    values = sorted(map(figure, every), reverse=sign == ">=")
    limit = parse_target(f"{target}{sign}{values[len(values) // 4]!r}")
    hopeful = search_target(pool, sizes, parse_target("error<=1e9"))
    assert hopeful.smallest.plan == frozenset()
    taken = chosen(hopeful, pool, sizes, IntegerScores(pool, trial), limit).smallest.plan
    assert limit.reached(exact.score(taken), pool.outputs, exact.error(taken))


def test_each_rate_gets_the_best_that_was_run_in_integers(setup):
    found = search_rates(setup.pool, setup.sizes, RATES)
    exact = IntegerScores(setup.pool, setup.trial)
    result = chosen(found, setup.pool, setup.sizes, exact)
    errors = [exact.error(proposed.plan) for proposed in result.plans]
    assert errors == sorted(errors, reverse=True)
    for proposed in result.plans:
        fitting = [p for p in exact.scores if setup.sizes.wide(p) <= setup.sizes.limit(proposed.rate)]
        assert exact.error(proposed.plan) == min(map(exact.error, fitting))
    low, high = (exact.error(end.plan) for end in result.ends)
    assert exact.error(result.smallest.plan) <= low - 0.95 * (low - high)
    assert set(exact.off()) == set(exact.scores)


def test_no_time_gives_verified_plans_all_the_same(setup):
    found = search_rates(setup.pool, setup.sizes, RATES, lambda: 0.0)
    assert not found.complete and found.unsearched
    assert all(each.plan in setup.pool.scores for each in found.plans)


def test_a_search_cut_short_has_the_plan_to_take_first(float_model, ranges, monkeypatch):
    """Time runs out as soon as the rates are looked at: what is recommended is what the whole search recommends."""
    from sgsdump.fixedpoint.tuning import search

    monkeypatch.setattr(search, "EXHAUSTIVE", 0)
    whole = set_up(float_model, ranges, CONFIG, feeds())
    smallest = search_rates(whole.pool, whole.sizes, RATES).smallest
    whole.pool.close()
    over = []
    improve = search.improve
    monkeypatch.setattr(search, "improve", lambda *given: over.append(1) or improve(*given))
    cut = set_up(float_model, ranges, CONFIG, feeds())
    found = search_rates(cut.pool, cut.sizes, RATES, lambda: 0.0 if over else 1e6)
    cut.pool.close()
    assert cut.sizes.wide(found.smallest.plan) <= cut.sizes.wide(smallest.plan)
    assert not found.complete and set(found.unsearched) <= {
        f"neighbours of the plan for rate {rate:g}" for rate in RATES
    }


def test_progress_is_taken_up_and_only_by_the_same_question(float_model, ranges, tmp_path):
    file = tmp_path / "progress.json"
    first = set_up(float_model, ranges, CONFIG, feeds(), Judging(file=file))
    found = search_rates(first.pool, first.sizes, RATES)
    first.pool.close()
    again = set_up(float_model, ranges, CONFIG, feeds(), Judging(file=file))
    assert again.pool.resumed == len(first.pool.scores)
    assert search_rates(again.pool, again.sizes, RATES).plans == found.plans and again.pool.runs == 0
    again.pool.close()
    whole = json.loads(file.read_bytes())
    other = set_up(float_model, ranges, CONFIG, feeds(2), Judging(file=file))
    assert other.pool.resumed == 0
    other.pool.close()
    plan, score = next(iter(whole["plans"].items()))
    for damaged in (
        {**whole, "plans": {plan: None}},
        {**whole, "plans": {plan: {**score, "sums": {"prob": [1]}}}},
        {**whole, "sensitivities": {"x": {}}},
        {**whole, "sensitivities": {"0": {"grams": [10**400], "plans": {}}}},
        {key: value for key, value in whole.items() if key != "plans"},
        [],
    ):
        file.write_text(json.dumps(damaged))
        assert set_up(float_model, ranges, CONFIG, feeds(), Judging(file=file)).pool.resumed == 0
    file.write_bytes(b"\0{")
    assert set_up(float_model, ranges, CONFIG, feeds(), Judging(file=file)).pool.resumed == 0


def test_the_digits_planted_convolutions_and_no_other():
    """The smallest plan that restores the accuracy of the float model."""
    digits = demo._digits()
    float_digits = simplify(open_model(str(demo.SAMPLES / "digits.onnx")))

    def pair(image):
        raw_image = image.astype(np.float32)[None, None]
        return {"image": (raw_image - 127) / 128}, {"image": raw_image}

    pictures = [pair(image) for image in digits.images]
    config = InputConfig((ModelInput("image", "GRAY", "GRAY", (127.0,) * 3, (128.0,) * 3),))
    calibration = [(str(i), pair(image)[0]) for i, image in enumerate(digits.calibration)]
    found_ranges = calibrate(float_digits, calibration, config, "L2").ranges

    def same_digit(outputs, floats):
        return float(outputs["prob"].argmax() == floats["prob"].argmax())

    made = set_up(float_digits, found_ranges, config, evenly(pictures, 12), Judging(metric=same_digit))
    assert len(made.sizes.domains) <= 12
    (found,) = search_target(made.pool, made.sizes, parse_target("output-cos>=0.99")).plans
    raised = {name for d in made.trial.domains if d.name in found.plan for name in d.convolutions}
    assert raised == set(demo._planted(float_digits)) == {"block2/pw", "block4/pw"}
    assert made.pool.scores[found.plan].mean_metric == 1.0
    # Without a target too: the smallest plan that goes most of the way.
    assert search_rates(made.pool, made.sizes, RATES).smallest.plan == found.plan
    assert made.pool.scores[frozenset()].mean_metric < 0.9
    made.pool.close()


def test_integer_program_and_neighbours_against_all_plans():
    rng = np.random.default_rng(3)
    for _ in range(10):
        gains, sizes = rng.normal(0.2, 1, 9), rng.integers(1, 50, 9)
        limit = float(sizes.sum() * rng.uniform(0.1, 0.9))
        every = every_plan(sizes, limit)
        chosen = best_sum(gains, sizes, limit)
        assert sizes[chosen].sum() <= limit
        assert gains[chosen].sum() == pytest.approx((every @ gains).max())
        plan = every[rng.integers(len(every))]
        model = Surrogate(np.eye(10)[None], np.zeros(1), np.zeros(9), 0.0)
        near = {row.tobytes() for row in changes_of(model, plan, sizes, limit).ranked()}
        distance = (every != plan).sum(axis=1)
        swap = (distance == 2) & (every.sum(axis=1) == plan.sum())
        assert near == {row.tobytes() for row in every[(distance == 1) | swap]}


def test_the_plan_model_is_exact_where_vectors_add():
    """Errors made of vectors that do add: prediction exact, and downhill no worse than the integer program."""
    rng = np.random.default_rng(4)
    vectors, sizes = rng.normal(size=(8, 20)), rng.integers(1, 9, 8)
    base = rng.normal(size=20) * 0.1

    def error(plan):
        return float(((base + vectors[~plan].sum(axis=0)) ** 2).sum())

    moves = np.vstack([base, vectors])
    alone = np.array([error(np.eye(8, dtype=bool)[i]) for i in range(8)])
    surrogate = Surrogate((moves @ moves.T)[None], np.zeros(1), alone, error(np.zeros(8, bool)))
    every = every_plan(sizes, sizes.sum())
    np.testing.assert_allclose(surrogate.predict(every), [error(plan) for plan in every], rtol=1e-9)
    limit = sizes.sum() / 2
    first = proposals(surrogate, sizes, limit)[0]
    sums = [best_sum(gains, sizes, limit) for gains in surrogate.gains()]
    assert error(first) <= min(map(error, sums)) + 1e-12
    assert error(best_by_model(surrogate, sizes, limit, np.zeros(8, bool))) <= error(np.zeros(8, bool))


@pytest.mark.parametrize("seed", range(5))
def test_without_a_run_the_plan_to_take_is_foreseen(seed):
    """What a search without any time recommends is close to the smallest plan that the model holds good enough."""
    from sgsdump.fixedpoint.tuning.search import ENOUGH, foreseen

    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(10, 30)) * 10 ** rng.uniform(-2, 0, (10, 1))
    moves, weights = np.vstack([rng.normal(size=30) * 1e-2, vectors]), rng.integers(10, 100, 10)
    gram = moves @ moves.T
    alone = np.array([((moves[0] + vectors.sum(0) - vector) ** 2).sum() for vector in vectors])
    model = Surrogate(gram[None], np.zeros(1), alone, float(gram.sum()))
    every = every_plan(weights, weights.sum())
    errors = model.predict(every)
    enough = errors[0] - ENOUGH * (errors[0] - errors[-1])
    smallest = (every[errors <= enough] @ weights).min()
    sizes = Sizes(tuple("abcdefghij"), weights, 0)
    *larger, best = foreseen(sizes, model)
    assert all(plan @ weights >= best @ weights for plan in larger)
    assert model.predict(best[None])[0] <= enough and smallest <= best @ weights <= 1.15 * smallest


def test_rates_and_targets_are_checked():
    for rate in (0.5, 1.01, float("nan"), -1):
        with pytest.raises(ConfigError, match="compression rate"):
            check_rates([0.7, rate])
    for text in ("cos", "output-cos<=0.9", "error>=1", "output-cos>=x", "metric>=nan", "speed>=1"):
        with pytest.raises(ConfigError, match="--target"):
            parse_target(text)


def test_an_output_with_one_odd_value_judges_no_plan(float_model, ranges):
    ((feed, whole),) = feeds(1)
    feed["data"][..., 0, 0] = np.nan  # farther from the last corner than the windows of all convolutions reach
    (fc,) = (layer.array for layer in SegmentRunner(float_model).run(feed, only={"fc"}))
    assert np.isnan(fc).any() and not np.isnan(fc).all()
    with pytest.raises(
        InputError, match="'fc' of the float model contains NaN or infinity, so plans cannot be judged by this output"
    ):
        set_up(float_model, ranges, CONFIG, [(feed, whole)])


def test_a_net_without_convolutions_to_tune(float_model, ranges):
    only = simplify(model([conv("c", "data")], weights("c", (2, 3, 1, 1)), {"data": (1, 3, 8, 8)}, ["c"]))
    found = measure_ranges(only, [("0", feeds()[0][0])])
    with pytest.raises(ConfigError, match="no convolution to tune"):
        set_up(only, found, CONFIG, feeds())
    with pytest.raises(InputError, match="no image"):
        set_up(float_model, ranges, CONFIG, [])
    with pytest.raises(ConfigError, match="ALL_INT16 sets"):
        set_up(float_model, ranges, replace(CONFIG, conv_format="ALL_INT16"), feeds())


def test_scores_add_up():
    a, b = np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 2.0])
    both = total([score({"y": a}, {"y": b}), score({"y": b}, {"y": b}, 1.0)])
    assert isinstance(both, Score) and both.pictures == 2 and both.mean_metric == 0.5
    assert both.error("y") == pytest.approx(1 / 18)
    assert score({"y": a * np.inf}, {"y": b}).error("y") == float("inf")


def test_pictures_are_chosen_evenly():
    assert evenly(list(range(24)), 4) == [0, 8, 15, 23]
    assert evenly([1, 2], 10) == [1, 2]


def knee_of(errors, sizes_at, smallest, worse=None):
    """``_knee`` of plans by their names' sizes and errors; the search saw the same errors."""
    plans = {name: frozenset(range(number)) for number, name in enumerate(errors)}
    error = {plans[name]: value for name, value in errors.items()}
    size = {plans[name]: value for name, value in sizes_at.items()}
    run = {plans[smallest]: None, plans["all"]: None}
    exact = SimpleNamespace(scores=run, error=error.__getitem__, score=lambda plan: run.setdefault(plan))
    exact.worse = lambda plan: plan == plans.get(worse)
    pool = SimpleNamespace(scores=error, error=error.__getitem__, domains=plans["all"])
    sizes = SimpleNamespace(rate=size.__getitem__, wide=size.__getitem__)
    taken = integer_choice._knee(plans[smallest], pool, sizes, exact, lambda: 1.0)
    return next(name for name, plan in plans.items() if plan == taken), len(run)


@pytest.mark.parametrize(
    ("errors", "taken"),
    [
        ({"enough": 0.075, "next": 3e-4, "all": 9e-5}, "next"),  # a cliff, a step to the right
        ({"enough": 0.075, "next": 0.01, "all": 0.01}, "next"),  # a seventh for half of what may halve it
        ({"enough": 0.0145, "next": 0.01, "all": 0.01}, "next"),  # half of what may halve it takes more than its root
        ({"enough": 0.0138, "next": 0.01, "all": 0.01}, "enough"),  # a little less
        ({"enough": 0.075, "next": 0.06, "all": 0.05}, "enough"),  # no cliff
        ({"enough": 2e-3, "next": 5e-4, "all": 1.9e-3}, "enough"),  # better than with all at 16 bits is luck
        ({"enough": 9e-5, "next": 1e-9, "all": 1e-9}, "enough"),  # good enough already
        ({"enough": 2e-3, "next": 1.9e-3, "all": 1.8e-3}, "enough"),  # all at 16 bits are no better
    ],
)
def test_the_knee_is_taken_past_a_cliff_and_nowhere_else(errors, taken):
    assert knee_of(errors, {"enough": 0.732, "next": 0.757, "all": 1.0}, "enough")[0] == taken


def test_a_knee_that_makes_an_output_worse_than_int8_is_not_taken():
    errors, sizes_at = {"enough": 0.075, "next": 3e-4, "all": 9e-5}, {"enough": 0.732, "next": 0.757, "all": 1.0}
    assert knee_of(errors, sizes_at, "enough", worse="next")[0] != "next"


def test_the_likeliest_knees_alone_are_run_in_integers():
    names = ["enough", "a", "b", "c", "d", "e", "all"]
    errors = {name: 0.01 / (number + 1) for number, name in enumerate(names)}
    sizes_at = {name: 0.7 + 0.05 * number for number, name in enumerate(names)}
    assert knee_of(errors, sizes_at, "enough")[1] == 2 + integer_choice.KNEES == 5
