"""When a step is taken: the thresholds of the search, on figures made up, and on parts of a small network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from small_nets import conv, model, node, run_all, weights

from sgsdump.fixedpoint.curing.errors import expected_errors, ratio, ratios_by_image, shared
from sgsdump.fixedpoint.curing.fold import INHERITED, REBUILT, Fold, Made, Settings
from sgsdump.fixedpoint.curing.ranges import SHARE
from sgsdump.fixedpoint.curing.reconstruction import _led_to, on_grid_of
from sgsdump.fixedpoint.curing.search import Search, State, gain_on_most
from sgsdump.fixedpoint.curing.sensitivity import of_rounding
from sgsdump.fixedpoint.curing.steps import ABSORB, BIAS, EQUALISE, FOLD, RANGES, ROUND, CureOptions
from sgsdump.models.feeds.by_content import FEWEST_HELD_OUT, FOLDS, JUDGED, MANY, OF_MANY
from sgsdump.models.graph import Graph
from sgsdump.tensors.tensor import Quant

IMAGES = 10
PROTO = model([], {}, {"x": (1,)}, []).proto
START = State((Made(PROTO),))


def of_each(errors: Mapping[str, float | Sequence[float]]) -> dict[str, np.ndarray]:
    """Errors by output as the search holds them, an array by image."""
    return {name: np.broadcast_to(np.asarray(error, np.float64), IMAGES) for name, error in errors.items()}


def search(judged: Mapping[str, float | Sequence[float]], changed: float = 0.0, own_judges: bool = False) -> Search:
    """Two outputs of error 1 as it is and as reached; every cure gives ``judged`` and changes the model so much."""
    made = object.__new__(Search)
    made.names, made.watched, made.own_judges, made.few = ["a", "b"], {"a": "a", "b": "b"}, own_judges, False
    made.taken = []
    no_clip = SimpleNamespace(scaling=SimpleNamespace(limits={}))
    made.folds = [SimpleNamespace(wide=False, basis=lambda fold: no_clip)]  # type: ignore[list-item]
    made.__dict__["before"] = made.now = of_each({"a": 1.0, "b": 1.0})
    made.with_cure = lambda name, state: (state, 1)  # type: ignore[method-assign]
    made.judge = lambda state, what="": of_each(judged)  # type: ignore[method-assign]
    made.__dict__["_fitted_before"] = of_each({"a": 1.0, "b": 1.0})
    made._judge_fitted = lambda state: of_each({"a": 0.9, "b": 0.9})  # type: ignore[method-assign]
    made.difference = lambda state: {"a": changed}  # type: ignore[method-assign]
    return made


def taken(name: str, judged: Mapping[str, float | Sequence[float]], changed: float = 0.0) -> bool:
    tried = search(judged, changed)._tried(name, START)
    assert tried is not None
    return tried.step.taken


@pytest.mark.parametrize(
    "name, judged, changed, expected",
    [
        (EQUALISE, {"a": 0.979, "b": 0.979}, 0.0, True),  # two hundredths off the mean
        (EQUALISE, {"a": 0.985, "b": 0.985}, 0.0, False),
        (EQUALISE, {"a": 0.5, "b": 1.04}, 0.0, True),  # an output may get worse by a twentieth
        (EQUALISE, {"a": 0.5, "b": 1.06}, 0.0, False),
        (EQUALISE, {"a": 0.5, "b": float("nan")}, 0.0, False),
        (EQUALISE, {"a": (0.1,) * 8 + (1.1,) * 2, "b": 1.0}, 0.0, False),  # 8 of 10 images gain, which chance may do
        (EQUALISE, {"a": (0.1,) * 9 + (1.1,), "b": 1.0}, 0.0, True),
        (EQUALISE, {"a": (0.1,) * 9 + (7.0,), "b": 1.0}, 0.0, True),  # a fold clips one image, nine tell
        (EQUALISE, {"a": (0.1,) * 9 + (32.0,), "b": 1.0}, 0.0, False),  # in all more than TOLERATED
        (EQUALISE, {"a": 0.5, "b": 0.5}, 0.049, True),  # a tenth of the error that is left
        (EQUALISE, {"a": 0.5, "b": 0.5}, 0.051, False),  # the function should be kept, and is not
        (BIAS, {"a": 0.5, "b": 0.5}, 0.9, True),  # the function may change as much as 8 bits do
        (BIAS, {"a": 0.5, "b": 0.5}, 1.1, False),
    ],
)
def test_a_step_is_taken_where_it_helps_harms_none_and_keeps_what_it_should(name, judged, changed, expected) -> None:
    assert taken(name, judged, changed) is expected


@pytest.mark.parametrize(
    "won, count, expected", [(1, 1, True), (5, 6, False), (6, 6, True), (14, 20, False), (15, 20, True)]
)
def test_a_gain_is_more_than_chance(won, count, expected) -> None:
    assert gain_on_most(np.arange(count) < won) is expected


def test_a_step_says_when_it_is_skipped_for_what_it_changes() -> None:
    for changed, spoiled in ((0.04, False), (0.06, True)):
        tried = search({"a": 0.5, "b": 0.5}, changed)._tried(EQUALISE, START)
        assert tried is not None and tried.step.spoiled is spoiled and tried.step.kept == pytest.approx(changed**0.5)


def test_of_a_few_images_only_int16_ranges_get_room(monkeypatch) -> None:
    made, asked = search({"a": 1.0, "b": 1.0}), []
    made.few, made.options = True, CureOptions()
    assert made._cures() == [RANGES]
    made.with_cure = lambda name, state: (asked.append(state.settings.room) or state, 1)  # type: ignore[method-assign]
    made._try(RANGES, START)
    assert asked == [0.0]


@pytest.mark.parametrize(
    "cost, equalised, own_judges, expected",
    [
        (1.04, False, False, True),
        (1.06, False, False, False),  # nothing was brought before that it could cost
        ((1.2,) * 6 + (0.5,) * 4, False, False, False),  # the median image pays
        ((1.2,) * 6 + (0.5,) * 4, True, False, True),
        ((0.9,) * 9 + (7.0,), False, False, True),  # one image decides nothing
        ((0.9,) * 9 + (9.0,), False, False, False),  # in all more than TOLERATED
        (1.55, True, False, True),
        (1.65, True, False, False),
        (1.0, False, True, True),  # the user's own images judge it
        (1.01, True, True, False),
    ],
)
def test_room_may_cost_part_of_what_equalising_brought(cost, equalised, own_judges, expected) -> None:
    made = search({"a": cost, "b": cost}, 0.0, own_judges)
    made.taken = [EQUALISE] if equalised else []
    made.__dict__["before"] = of_each(dict.fromkeys("ab", 2.0 if equalised else 1.0))
    tried = made._tried(RANGES, START)
    assert tried is not None and tried.step.taken is expected


@pytest.mark.parametrize(
    "equalised, wide, narrow, expected",
    [
        (False, 0.89, 0.9, SHARE),  # every image gains
        (False, 0.91, 0.9, 0.0),
        (False, (0.8,) * 8 + (1.0,) * 2, 0.9, 0.0),  # 8 of 10 may be chance
        (False, (0.8,) * 9 + (3.0,), 0.9, 0.0),  # in all worse by more than WORSE
        (True, 1.4, 0.9, SHARE),
        (True, 1.5, 0.9, 0.0),  # more than TOLERATED
        (True, (1.5,) * 6 + (0.1,) * 4, 0.9, 0.0),  # on the median image too
    ],
)
def test_room_in_8_bits_has_to_gain_unless_equalising_filled_the_ranges(equalised, wide, narrow, expected) -> None:
    made = search({})
    made.taken = [EQUALISE] if equalised else []
    made.__dict__["before"] = of_each({"a": 2.0, "b": 2.0})
    errors = {SHARE: wide, 0.0: narrow}
    made.judge = lambda state, what="": of_each(dict.fromkeys("ab", errors[state.settings.room]))  # type: ignore[method-assign]
    tried = made._try(RANGES, START)
    assert tried is not None and tried.step.taken and tried.state.settings.room == expected


@pytest.mark.parametrize("won, expected", [(9, SHARE), (8, 0.0)])
def test_room_in_8_bits_leaves_most_fitted_images_better_than_they_were(won, expected) -> None:
    """Nothing is clipped on the fitted images, so they show the cost of coarser steps."""
    made = search({"a": 0.9, "b": 0.9})
    made.taken = [EQUALISE]
    of_fitted = (0.9,) * won + (1.1,) * (IMAGES - won)
    made._judge_fitted = lambda state: of_each({"a": of_fitted, "b": 1.0})  # type: ignore[method-assign]
    tried = made._try(RANGES, START)
    assert tried is not None and tried.state.settings.room == expected
    made.taken, made.options = [], CureOptions("L2", (EQUALISE, RANGES))
    errors = {None: 1.2, SHARE: 0.5, 0.0: 1.2}
    made.judge = lambda state, what="": of_each(dict.fromkeys("ab", errors[state.settings.room]))  # type: ignore[method-assign]
    equalised = made._try(EQUALISE, START)
    assert equalised is not None
    assert (len(made._with_help(equalised)) == 2) is (expected == SHARE)


@pytest.mark.parametrize(
    "errors, expected",
    [
        ({None: 1.2, SHARE: 0.5, 0.0: 1.2}, [EQUALISE, RANGES]),
        ({None: 1.2, SHARE: 0.99, 0.0: 1.2}, []),  # as any step, by WORTH
        ({None: 0.9, SHARE: 0.5, 0.0: 0.9}, [EQUALISE]),  # it helps alone: room is a step of its own
    ],
)
def test_equalising_that_clips_is_judged_with_room(errors, expected) -> None:
    made = search({})
    made.options = CureOptions("L2", (EQUALISE, RANGES))
    made.judge = lambda state, what="": of_each(dict.fromkeys("ab", errors[state.settings.room]))  # type: ignore[method-assign]
    tried = made._try(EQUALISE, START)
    assert tried is not None
    assert [way.step.cure for way in made._with_help(tried) if way.step.taken] == expected


@pytest.mark.parametrize(
    "after, expected",
    [
        ((1.06,) * 10, True),
        ((1.04,) * 10, False),
        ((1.2,) * 9 + (0.9,), True),
        ((1.2,) * 8 + (0.9,) * 2, False),  # 8 of 10 images: not one sign
        ((0.5,) * 9 + (9.0,), False),  # one image is clipped
        ((float("nan"),) * 10, True),
    ],
)
def test_an_output_is_harmed_by_more_than_a_twentieth_on_nine_images_of_ten(after, expected) -> None:
    assert search({})._harms(of_each({"a": after, "b": 1.0})) is expected


@pytest.mark.parametrize(
    "errors, own_judges, expected",
    [
        ((0.9, 0.5), True, True),
        ((0.5, 0.9), True, False),
        ((1.2, 1.1), True, True),  # neither helps: the better one is told
        ((0.9, 0.5), False, False),  # pictures of the kind that was fitted cannot tell
    ],
)
def test_the_layers_before_are_made_up_for_where_other_pictures_judge_it(errors, own_judges, expected) -> None:
    made = search({}, own_judges=own_judges)
    made.with_cure = lambda name, state: (state, 1)  # type: ignore[method-assign]
    made.judge = lambda state, what="": of_each(dict.fromkeys("ab", errors[state.settings.inherited]))  # type: ignore[method-assign]
    tried = made._try(BIAS, START)
    assert tried is not None and tried.state.settings.inherited is expected
    assert tried.step.taken is (min(errors) < 1)


@pytest.mark.parametrize("inherited", [False, True])
def test_weights_are_rounded_the_way_that_biases_took(inherited) -> None:
    made = search({}, own_judges=True)
    made.with_cure = lambda name, state: (state, 1)  # type: ignore[method-assign]
    made.judge = lambda state, what="": of_each(  # type: ignore[method-assign]
        dict.fromkeys("ab", 0.9 if state.settings.inherited is inherited else 0.1)
    )
    tried = made._try(ROUND, State((Made(PROTO, plain=PROTO),), Settings(inherited=inherited)))
    assert tried is not None and tried.state.settings.inherited is inherited


@pytest.mark.parametrize(
    "plain, folded, expected",
    [
        ((0.6, 0.3), (0.58, 0.2), {EQUALISE, BIAS}),  # folded is not a twentieth better
        ((0.6, 0.3), (0.56, 0.2), {FOLD, EQUALISE, BIAS}),
        ((1.1, 0.3), (1.2, 0.2), {EQUALISE, BIAS}),  # neither helps alone: with biases, as it is first
        ((1.1, 1.0), (1.2, 0.2), {FOLD, EQUALISE, BIAS}),
        ((0.9, 0.3), (1.2, 0.1), {EQUALISE, BIAS}),  # one helps alone
        ((1.1, 1.0), (1.2, 1.0), set()),
    ],
)
def test_folding_makes_way_for_equalising_and_biases_for_both(plain, folded, expected) -> None:
    made, asked = equalising(plain, folded)
    state, steps = made.run()
    assert {step.cure for step in steps if step.taken} == set(made.taken) == expected
    assert state.settings.folded is (FOLD in expected) and (factors(state) is not None) is (EQUALISE in expected)
    assert [step.cure for step in steps].count(EQUALISE) == 1, "told, taken or not"
    assert asked.count(EQUALISE) == 2, "with the folded network and without"


def test_folding_that_is_better_than_equalising_stays() -> None:
    made, _ = equalising((0.6, 0.6), (0.9, 0.9), alone=0.5)
    state, steps = made.run()
    assert made.taken == [FOLD] and state.settings.folded and factors(state) is None
    assert [step.taken for step in steps if step.cure == EQUALISE] == [False]


def test_what_does_not_keep_the_function_is_not_gone_on_from() -> None:
    """A folded network that is another is not equalised; one that equalising changes gets no biases for it."""
    made, asked = equalising((0.6, 0.3), (0.1, 0.1), spoils=FOLD)
    state, _ = made.run()
    assert not state.settings.folded and asked.count(EQUALISE) == 1
    made, asked = equalising((1.1, 0.3), (1.2, 0.3), spoils=EQUALISE)
    assert factors(made.run()[0]) is None and asked.count(BIAS) == 1, "by themselves alone"


def test_biases_that_were_not_asked_for_judge_nothing() -> None:
    made, asked = equalising((1.1, 0.3), (1.2, 0.3))
    made.options = CureOptions("L2", (FOLD, EQUALISE))
    assert factors(made.run()[0]) is None and BIAS not in asked


def test_what_was_taken_is_made_again_in_the_order_of_the_network(monkeypatch) -> None:
    """Room before biases, which are made for it; biases that rounding makes too, once."""
    fold, asked = object.__new__(Fold), list[str]()
    fold.source = model([], {}, {"x": (1,)}, [])
    fold.with_cure = lambda name, made, settings: (asked.append(name) or made, 1)  # type: ignore[method-assign]
    fold.again([EQUALISE, BIAS, RANGES], Settings())
    assert asked == [EQUALISE, RANGES, BIAS]
    asked.clear()
    fold.again([EQUALISE, BIAS, RANGES, ROUND], Settings())
    assert asked == [EQUALISE, RANGES, ROUND]


def factors(state: State) -> np.ndarray | None:
    return state.made[0].factors


def equalising(plain, folded, alone: float = 1.3, spoils: str = "") -> tuple[Search, list[str]]:
    """A search of a network whose errors are ``plain`` equalised, then with biases, ``folded`` so of the folded one,
    which has ``alone`` before; and the cures that it makes. ``spoils``: the cure that changes the function."""
    made, source, asked = search({}), model([], {}, {"x": (1,)}, []), list[str]()
    other = model([], {}, {"y": (1,)}, []).proto
    made.source, made.options, made.taken = source, CureOptions(), []

    def with_cure(name: str, state: State) -> tuple[State, int]:
        asked.append(name)
        if name in (ABSORB, RANGES, ROUND):
            return state, 0
        (one,) = state.made
        proto = other if name == spoils else one.proto
        settings = replace(state.settings, folded=True) if name == FOLD else state.settings
        new = {
            FOLD: replace(one, proto=proto),
            EQUALISE: replace(one, proto=proto, factors=np.ones(1)),
            BIAS: replace(one, plain=proto),
        }
        return State((new[name],), settings), 1

    def judge(state: State, what: str = "") -> dict[str, np.ndarray]:
        if factors(state) is None:
            error = alone if state.settings.folded else 1.0
        else:
            error = (folded if state.settings.folded else plain)[state.rebuilt]
        return of_each(dict.fromkeys("ab", error))

    made.with_cure, made.judge = with_cure, judge  # type: ignore[method-assign]
    made.difference = lambda state: {"a": float(state.made[0].proto is other)}  # type: ignore[method-assign]
    return made, asked


def test_channels_move_past_a_relu_before_biases_are_made() -> None:
    assert search({"a": 0.1, "b": 0.1})._try(ABSORB, State((Made(PROTO, plain=PROTO),))) is None


def test_layers_that_others_lead_to() -> None:
    """data -> c1 -> r -> c2, and c3 beside them."""
    constants = {**weights("c1", (4, 3, 1, 1), 1), **weights("c2", (2, 4, 1, 1), 2), **weights("c3", (2, 3, 1, 1), 3)}
    nodes = [conv("c1", "data"), node("Relu", ["c1"], "r"), conv("c2", "r"), conv("c3", "data")]
    graph = Graph(model(nodes, constants, {"data": (1, 3, 5, 4)}, ["c2", "c3"]).proto)
    layers = [each for each in graph.nodes if each.op_type == "Conv"]
    assert _led_to(graph, layers) == {"r", "c2"} and _led_to(graph, layers[1:]) == set()


def test_the_numbers_that_the_docs_give() -> None:
    told = (FOLDS, FEWEST_HELD_OUT, MANY, OF_MANY, JUDGED, REBUILT, INHERITED)
    assert told == (3, 12, 24, 2, 16, 24, 12), "docs/cure.md tells them"


def test_what_is_expected_is_one_standard_error_above_the_mean() -> None:
    values = np.array([0.9, 1.0, 1.1, 1.0, 1.2, 0.8])
    found = expected_errors({"a": values, "inner": values}, ["a"])
    assert found == {"a": pytest.approx(np.mean(values) + np.sqrt(np.sum((values - 1) ** 2) / 5 / 6))}
    assert expected_errors({"a": values[:1]}, ["a"]) == {"a": 0.9}


def test_what_holding_out_adds_counts_by_its_share() -> None:
    found = shared({"a": np.array([3.0, 1.0])}, {"a": np.array([1.0, 1.0])}, np.array([0.75, 0.5]))
    np.testing.assert_array_equal(found["a"], [2.5, 1.0])


def test_ratios_are_geometric_means_over_the_outputs() -> None:
    after, before = {"a": np.array([0.1, 0.4]), "b": np.array([2.0, 2.0])}, {"a": np.ones(2), "b": np.ones(2)}
    assert ratio(after, before, ["a", "b"]) == pytest.approx((0.25 * 2.0) ** 0.5)
    np.testing.assert_allclose(ratios_by_image(after, before, ["a", "b"]), [0.2**0.5, 0.8**0.5])


def test_rounding_is_measured_by_what_it_does_to_the_outputs() -> None:
    """data -> c1 -> r -> c2: the tensor's channels rounded to their steps, by numpy."""
    constants = {**weights("c1", (4, 3, 1, 1), 1), **weights("c2", (2, 4, 1, 1), 2)}
    nodes = [conv("c1", "data"), node("Relu", ["c1"], "r"), conv("c2", "r")]
    proto = model(nodes, constants, {"data": (1, 3, 5, 4)}, ["c2"]).proto
    feed = {"data": np.random.default_rng(0).normal(size=(1, 3, 5, 4)).astype(np.float32)}
    steps = np.array([0.5, 0.25, 0.1, 0.4])
    (found,) = of_rounding(proto, [feed], ["c2"], {"r": steps})["r"]
    real = run_all(proto, feed)
    along = steps[:, None, None].astype(np.float32)
    away = np.rint(real["r"][0] / along) * along - real["r"][0]
    moved = np.einsum("oi,ihw->ohw", constants["c2.w"][:, :, 0, 0], away)
    assert found == pytest.approx((moved**2).sum() / (real["c2"] ** 2).sum(), rel=1e-3)
    other = {"data": 2 * feed["data"]}
    (alone,) = of_rounding(proto, [other], ["c2"], {"r": steps})["r"]
    (both,) = of_rounding(proto, [feed, other], ["c2"], {"r": steps})["r"]
    assert both == pytest.approx((found + alone) / 2) and alone != pytest.approx(found)


def test_values_on_a_grid_are_clipped_at_its_ends() -> None:
    quant = Quant(scale=np.float32(0.5), zero_point=10, dtype=np.dtype(np.uint8))
    found = on_grid_of(np.array([-9.0, 0.3, 0.2, 200.0], np.float32), quant)
    np.testing.assert_allclose(found, [-5.0, 0.5, 0.0, 122.5])
