"""The plan to take is the cheapest within the limits in integers, on all pictures that judge and those held out."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.fixedpoint.quantisation.objective import score
from sgsdump.fixedpoint.quantisation.trials.integer_outputs import OutputFigures
from sgsdump.fixedpoint.tuning.criteria import limits_target
from sgsdump.fixedpoint.tuning.integer_choice import within_limits
from sgsdump.fixedpoint.tuning.integer_scores import past_limits
from sgsdump.fixedpoint.tuning.plan_costs import Sizes
from sgsdump.fixedpoint.tuning.search import Proposed, SearchResult

NAMES = tuple("abcdefgh")
SIZES = Sizes(NAMES, np.full(len(NAMES), 10), 20)
PLANS = [frozenset(NAMES[:count]) for count in range(len(NAMES) + 1)]
FLOATS = np.array([1.0, -2.0, 3.0, -4.0])
GOAL = limits_target(DOCUMENTED, ["y"])


class Judge:
    """Plans are within the limits from so many domains on; those that were run are remembered."""

    worse_ones = ()

    def __init__(self, first, ends=True):
        self.first = first
        self.ran = {PLANS[0]: None, PLANS[-1]: None} if ends else {}

    def worse(self, plan):
        return len(plan) in self.worse_ones

    def past(self, plan, limits):
        self.ran[plan] = None
        return [] if len(plan) >= self.first else ["y"]

    def score(self, plan):
        self.ran[plan] = None

    def error(self, plan):
        return 1.0 - len(plan) / 10


def taken(*firsts, start=4, left=math.inf, worse=()):
    """How many domains the plan within the limits has, None without one; the search proposes ``start`` of them. Plans
    of as many as ``worse`` has are worse than INT8 for the last judge."""
    scores = {plan: score({"y": FLOATS * (1 + 0.2 / (1 + len(plan)))}, {"y": FLOATS}) for plan in PLANS}
    pool = SimpleNamespace(scores=scores, outputs=["y"], error=lambda plan: 0.0)
    proposed = Proposed(0.5, PLANS[start], 0.0)
    found = SearchResult((), proposed, (proposed, proposed), True, True)
    exact, *others = judges = [Judge(first, ends=not index) for index, first in enumerate(firsts)]
    judges[-1].worse_ones = worse
    found = within_limits(found, SimpleNamespace(pool=pool, sizes=SIZES), exact, others, GOAL, lambda: left)
    return None if found.within is None else len(found.within.plan)


@pytest.mark.parametrize(
    ("firsts", "expected"),
    [((0,), 0), ((0, 0), 0), ((3,), 3), ((8,), 8), ((9,), None), ((2, 5), 5), ((0, 1), 1), ((0, 9), None)],
)
def test_the_cheapest_plan_that_all_judges_hold_within_is_taken(firsts, expected):
    assert taken(*firsts) == expected


@pytest.mark.parametrize(
    ("firsts", "worse", "expected"),
    [((3,), (3,), 4), ((3, 3), (3,), 4), ((3, 3), (3, 4), 5), ((0, 0), (1, 2), 0), ((1, 1), range(1, 9), None)],
)
def test_no_plan_within_the_limits_makes_an_output_worse_than_int8(firsts, worse, expected):
    assert taken(*firsts, worse=worse) == expected


def test_a_domain_that_the_plan_does_not_need_is_lowered():
    """The front of the search has only ever larger sets of the first names; the last one alone is enough."""
    scores = {plan: score({"y": FLOATS * (1 + 0.2 / (1 + len(plan)))}, {"y": FLOATS}) for plan in PLANS}
    pool = SimpleNamespace(scores=scores, outputs=["y"], error=lambda plan: 0.0)
    proposed = Proposed(0.5, PLANS[4], 0.0)
    found = SearchResult((), proposed, (proposed, proposed), True, True)
    exact = Judge(1)
    exact.past = lambda plan, limits: exact.ran.setdefault(plan) or ([] if "h" in plan else ["y"])
    exact.score = lambda plan: None
    found = within_limits(found, SimpleNamespace(pool=pool, sizes=SIZES), exact, [], GOAL)
    assert found.within is not None and found.within.plan == {"h"}


def test_without_time_the_proposed_plan_is_run():
    assert taken(3, left=0.0) == 4


@pytest.mark.parametrize("factor", [1.0, 1.05, 1.099, 1.101, 1.5, math.nan])
@pytest.mark.parametrize("limits", [DOCUMENTED, Thresholds(max_rmse=0.1), Thresholds(min_cos=0.99), Thresholds(1.0)])
def test_the_target_of_the_search_is_the_limits(factor, limits):
    values = {"y": FLOATS * factor}
    known = score(values, {"y": FLOATS})
    with np.errstate(invalid="ignore"):
        cos = values["y"] @ FLOATS / np.sqrt((values["y"] @ values["y"]) * (FLOATS @ FLOATS))
        rmse = np.abs(values["y"] - FLOATS).sum() / np.abs(FLOATS).sum()
    within = (limits.min_cos is None or cos >= limits.min_cos - 1e-12) and (
        limits.max_rmse is None or rmse <= limits.max_rmse
    )
    if limits.min_cos != 1.0 or factor in (1.0, math.nan):
        assert limits_target(limits, ["y"]).reached(known, ["y"], 0.0) == bool(within)


def test_limits_of_the_users_own_hold_to_the_letter():
    """An error of less than a step of 8 bits is within the documented limits, whatever the figures are."""
    off = 0.2 * 10 / 255
    sums = score({"y": FLOATS * 0.01 + off}, {"y": FLOATS * 0.01}).sums["y"]
    figures = {"y": OutputFigures(sums, step=10 / 65535, span=10.0, largest=off)}
    assert figures["y"].rmse > 0.1
    assert past_limits(figures, DOCUMENTED) == []
    assert past_limits(figures, Thresholds(max_rmse=0.1)) == ["y"]
