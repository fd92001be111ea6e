"""A plan whose error on pictures held out lies beyond the search's is not taken."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from sgsdump.fixedpoint.tuning.criteria import parse_target
from sgsdump.fixedpoint.tuning.integer_choice import CONFIRMED, chosen, confirmed
from sgsdump.fixedpoint.tuning.plan_costs import Sizes
from sgsdump.fixedpoint.tuning.search import Proposed, SearchResult

NAMES = tuple("abcdefgh")
SIZES = Sizes(NAMES, np.full(len(NAMES), 10), 20)
PLANS = [frozenset(NAMES[:count]) for count in range(len(NAMES) + 1)]


def scores(errors, worse=()):
    """Of plans with no, one, two … domains at 16 bits; those without an error were not run."""
    known = {plan: error for plan, error in zip(PLANS, errors) if error is not None}
    return SimpleNamespace(
        scores=known,
        error=known.__getitem__,
        score=lambda plan: SimpleNamespace(mean_metric=-known[plan]),
        part=lambda plan: known[plan] / known[frozenset()],
        outputs=["y"],
        domains=list(NAMES),
        worse=lambda plan: PLANS.index(plan) in worse,
    )


def taken(searched, held, target=None, left=math.inf, start=2, worse=(), worse_in_search=()):
    plan = Proposed(SIZES.rate(PLANS[start]), PLANS[start], 0.0)
    found = SearchResult((plan,), plan, (plan, plan), False, True, predict=lambda plan: 0.0)
    exact = scores(searched, worse_in_search)
    found = confirmed(found, SIZES, exact, scores(held, worse), target, lambda: left)
    return PLANS.index((found.knee or found.smallest).plan), len(found.beyond), found.confirmed


SEARCHED = [1.0, 0.5, 0.02, 0.015, 0.01, 0.009, 0.008, 0.007, 0.006]


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ([2.0, 1.0, 0.05, *[0.01] * 6], (2, 0, True)),  # 0.025 of INT8's there, 0.02 on the search's
        ([2.0, 1.0, 0.08, 0.05, *[0.01] * 5], (4, 2, True)),  # beyond: 0.04 for 0.02, and 0.025 for 0.015
        ([2.0, 1.0, 0.08, *[0.07] * 6], (2, 0, True)),  # nor does INT16 give more
        ([2.0, 1.0, *[0.9] * 6, 0.01], (2, CONFIRMED, False)),
        ([1.0, 0.9, 9e-5, *[1e-9] * 6], (2, 0, True)),
    ],
)
def test_the_smallest_plan_that_is_as_good_there_is_taken(held, expected):
    assert taken(SEARCHED, held) == expected


def test_a_target_has_to_be_reached_there():
    held = [0.9 * error for error in SEARCHED]
    assert taken(SEARCHED, held, parse_target("error<=0.02")) == (2, 0, True)
    assert taken(SEARCHED, [1.1 * error for error in SEARCHED], parse_target("error<=0.02")) == (3, 1, True)


def test_without_time_for_another_it_is_only_not_recommended():
    assert taken(SEARCHED, [2.0, 1.0, *[0.9] * 6, 0.01], left=0.0) == (2, 1, False)


def test_a_plan_that_makes_an_output_worse_on_images_held_out_is_not_taken():
    held = [2.0, 1.0, 0.03, 0.02, *[0.01] * 5]
    assert taken(SEARCHED, held, worse=(2, 3)) == (4, 2, True)


def test_no_larger_plan_is_taken_that_makes_an_output_worse_on_the_search_images():
    held = [2.0, 1.0, 0.08, *[0.01] * 6]
    assert taken(SEARCHED, held) == (3, 1, True)
    assert taken(SEARCHED, held, worse_in_search=(3,)) == (4, 1, True)
    assert taken(SEARCHED, held, parse_target("error<=0.05"), worse_in_search=(3,)) == (3, 1, True), "not for a target"


@pytest.mark.parametrize(
    ("worse", "target", "smallest"), [((), "", 2), ((2,), "", 3), (range(1, 9), "", 0), ((2,), "error<=0.05", 2)]
)
def test_no_plan_is_chosen_that_makes_an_output_worse_than_int8(worse, target, smallest):
    """The third plan goes 95 % of the way from INT8's error to INT16's; the knee is left out by its own test."""
    exact = scores(SEARCHED, worse)
    low, high = (Proposed(SIZES.rate(plan), plan, 0.0) for plan in (PLANS[0], PLANS[-1]))
    found = SearchResult((low, high), high, (low, high), False, True, predict=lambda plan: 0.0)
    pool = SimpleNamespace(scores=exact.scores, outputs=["y"], error=exact.error, domains=list(NAMES))
    found = chosen(found, pool, SIZES, exact, parse_target(target) if target else None)
    assert PLANS.index(found.smallest.plan) == smallest


def test_where_every_plan_makes_an_output_worse_int8_is_taken():
    held = [2.0, 1.0, 0.03, 0.02, *[0.01] * 5]
    assert taken(SEARCHED, held, worse=range(1, 9)) == (0, CONFIRMED, False)
