"""When a step is taken: the thresholds of the search, on figures made up, and on parts of a small network."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_nets import conv, model, node, run_all, weights

from sgsdump.curing.cure import FEWEST, HELD_OUT, JUDGED
from sgsdump.curing.reconstruction import _led_to, on_grid_of
from sgsdump.curing.search import INHERITED, REBUILT, Search, State
from sgsdump.curing.sensitivity import of_rounding
from sgsdump.curing.steps import ABSORB, BIAS, EQUALISE, FOLD, RANGES, ROUND, CureOptions
from sgsdump.models.graph import Graph
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.tensors.tensor import Quant


def search(judged: dict[str, float], kept: float = 0.0, trusting: bool = True) -> Search:
    """Two outputs of error 1 as it is and as reached; every cure gives ``judged`` and changes the model by ``kept``."""
    made = object.__new__(Search)
    made.names, made.watched, made.trusting, made.share = ["a", "b"], {"a": "a", "b": "b"}, trusting, 0.0
    made.__dict__["before"] = made.now = {"a": 1.0, "b": 1.0}
    made.with_cure = lambda name, state: (state, 1)  # type: ignore[method-assign]
    made.judge = lambda state, what="": judged  # type: ignore[method-assign]
    made._kept = lambda proto: kept  # type: ignore[method-assign]
    return made


def taken(name: str, judged: dict[str, float], kept: float = 0.0) -> bool:
    tried = search(judged, kept)._tried(name, State(model([], {}, {"x": (1,)}, []).proto))
    assert tried is not None
    return tried.step.taken


@pytest.mark.parametrize(
    "judged, kept, expected",
    [
        ({"a": 0.979, "b": 0.979}, 0.0, True),  # two hundredths off the mean
        ({"a": 0.985, "b": 0.985}, 0.0, False),
        ({"a": 0.5, "b": 1.04}, 0.0, True),  # an output may get worse by a twentieth
        ({"a": 0.5, "b": 1.06}, 0.0, False),
        ({"a": 0.5, "b": float("nan")}, 0.0, False),
        ({"a": 0.5, "b": 0.5}, 0.9e-5, True),
        ({"a": 0.5, "b": 0.5}, 1.1e-5, False),  # it should keep the function, and does not
    ],
)
def test_a_step_is_taken_where_it_helps_harms_none_and_keeps_what_it_should(judged, kept, expected) -> None:
    assert taken(EQUALISE, judged, kept) is expected


@pytest.mark.parametrize(
    "cost, as_it_is, trusting, expected",
    [
        (1.55, 2.0, True, True),
        (1.65, 2.0, True, False),
        (1.04, 1.0, True, True),  # nothing was brought before that it could cost
        (1.06, 1.0, True, False),
        (1.0, 1.0, False, True),  # other pictures judge it
        (1.01, 2.0, False, False),
    ],
)
def test_room_is_trusted_to_a_point_where_nothing_else_judges_it(cost, as_it_is, trusting, expected) -> None:
    made = search({"a": cost, "b": cost}, 0.0, trusting)
    made.__dict__["before"] = {"a": as_it_is, "b": as_it_is}
    tried = made._tried(RANGES, State(model([], {}, {"x": (1,)}, []).proto))
    assert tried is not None and tried.step.taken is expected


@pytest.mark.parametrize(
    "errors, trusting, expected",
    [
        ((0.9, 0.5), False, True),
        ((0.5, 0.9), False, False),
        ((1.2, 1.1), False, True),  # neither helps: the better one is told
        ((0.9, 0.5), True, False),  # pictures of the kind that was fitted cannot tell
    ],
)
def test_the_layers_before_are_made_up_for_where_other_pictures_judge_it(errors, trusting, expected) -> None:
    made = search({}, trusting=trusting)
    made.with_cure = lambda name, state: (state, 1)  # type: ignore[method-assign]
    made.judge = lambda state, what="": dict.fromkeys("ab", errors[state.inherited])  # type: ignore[method-assign]
    tried = made._try(BIAS, State(model([], {}, {"x": (1,)}, []).proto))
    assert tried is not None and tried.state.inherited is expected
    assert tried.step.taken is (min(errors) < 1)


@pytest.mark.parametrize("inherited", [False, True])
def test_weights_are_rounded_the_way_that_biases_took(inherited) -> None:
    made = search({}, trusting=False)
    made.with_cure = lambda name, state: (state, 1)  # type: ignore[method-assign]
    made.judge = lambda state, what="": dict.fromkeys("ab", 0.9 if state.inherited is inherited else 0.1)  # type: ignore[method-assign]
    proto = model([], {}, {"x": (1,)}, []).proto
    tried = made._try(ROUND, State(proto, plain=proto, inherited=inherited))
    assert tried is not None and tried.state.inherited is inherited


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
    assert state.folded is (FOLD in expected) and (state.factors is not None) is (EQUALISE in expected)
    assert [step.cure for step in steps].count(EQUALISE) == 1, "told, taken or not"
    assert asked.count(EQUALISE) == 2, "with the folded network and without"


def test_folding_that_is_better_than_equalising_stays() -> None:
    made, _ = equalising((0.6, 0.6), (0.9, 0.9), alone=0.5)
    state, steps = made.run()
    assert made.taken == [FOLD] and state.folded and state.factors is None
    assert [step.taken for step in steps if step.cure == EQUALISE] == [False]


def test_what_does_not_keep_the_function_is_not_gone_on_from() -> None:
    """A folded network that is another is not equalised; one that equalising changes gets no biases for it."""
    made, asked = equalising((0.6, 0.3), (0.1, 0.1), spoils=FOLD)
    state, _ = made.run()
    assert not state.folded and asked.count(EQUALISE) == 1
    made, asked = equalising((1.1, 0.3), (1.2, 0.3), spoils=EQUALISE)
    assert made.run()[0].factors is None and asked.count(BIAS) == 1, "by themselves alone"


def test_biases_that_were_not_asked_for_judge_nothing() -> None:
    made, asked = equalising((1.1, 0.3), (1.2, 0.3))
    made.options = CureOptions("L2", (FOLD, EQUALISE))
    assert made.run()[0].factors is None and BIAS not in asked


def test_what_was_taken_is_made_again_in_the_order_of_the_network() -> None:
    """Room before biases, which are made for it; biases that rounding makes too, once."""
    made, asked = equalising((0.6, 0.3), (0.6, 0.3))
    made.again([EQUALISE, BIAS, RANGES])
    assert asked == [EQUALISE, RANGES, BIAS]
    asked.clear()
    made.again([EQUALISE, BIAS, RANGES, ROUND])
    assert asked == [EQUALISE, RANGES, ROUND]


def equalising(plain, folded, alone: float = 1.3, spoils: str = "") -> tuple[Search, list[str]]:
    """A search of a network whose errors are ``plain`` equalised, then with biases, ``folded`` so of the folded one,
    which has ``alone`` before; and the cures that it makes. ``spoils``: the cure that changes the function."""
    made, source, asked = search({}), model([], {}, {"x": (1,)}, []), list[str]()
    other = model([], {}, {"y": (1,)}, []).proto
    made.source, made.options, made.taken, made.config = source, CureOptions(), [], InputConfig(())

    def with_cure(name: str, state: State) -> tuple[State, int]:
        asked.append(name)
        if name in (ABSORB, RANGES, ROUND):
            return state, 0
        proto = other if name == spoils else state.proto
        new = {
            FOLD: replace(state, proto=proto, folded=True),
            EQUALISE: replace(state, proto=proto, factors=np.ones(1)),
            BIAS: replace(state, plain=proto),
        }
        return new[name], 1

    def judge(state: State, what: str = "") -> dict[str, float]:
        if state.factors is None:
            return dict.fromkeys("ab", alone if state.folded else 1.0)
        return dict.fromkeys("ab", (folded if state.folded else plain)[state.plain is not None])

    made.with_cure, made.judge = with_cure, judge  # type: ignore[method-assign]
    made._kept = lambda proto: float(proto is other)  # type: ignore[method-assign]
    return made, asked


def test_channels_move_past_a_relu_before_biases_are_made() -> None:
    proto = model([], {}, {"x": (1,)}, []).proto
    assert search({"a": 0.1, "b": 0.1})._try(ABSORB, State(proto, plain=proto)) is None


def test_layers_that_others_lead_to() -> None:
    """data -> c1 -> r -> c2, and c3 beside them."""
    constants = {**weights("c1", (4, 3, 1, 1), 1), **weights("c2", (2, 4, 1, 1), 2), **weights("c3", (2, 3, 1, 1), 3)}
    nodes = [conv("c1", "data"), node("Relu", ["c1"], "r"), conv("c2", "r"), conv("c3", "data")]
    graph = Graph(model(nodes, constants, {"data": (1, 3, 5, 4)}, ["c2", "c3"]).proto)
    layers = [each for each in graph.nodes if each.op_type == "Conv"]
    assert _led_to(graph, layers) == {"r", "c2"} and _led_to(graph, layers[1:]) == set()


def test_of_the_pictures_a_third_judges() -> None:
    assert (HELD_OUT, FEWEST, JUDGED, REBUILT, INHERITED) == (3, 6, 16, 24, 12), "docs/cure.md tells them"


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


def test_values_on_a_grid_are_clipped_at_its_ends() -> None:
    quant = Quant(scale=np.float32(0.5), zero_point=10, dtype=np.dtype(np.uint8))
    found = on_grid_of(np.array([-9.0, 0.3, 0.2, 200.0], np.float32), quant)
    np.testing.assert_allclose(found, [-5.0, 0.5, 0.0, 122.5])
