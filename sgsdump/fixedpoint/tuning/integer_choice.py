"""The choice among plans that were run in integers (``integer_scores``).

The cheapest plan with every output within the limits, on images held out too (``unseen``), is the one to take, all-INT8
first of all: ``within_limits``. Only where no plan that was run is within them, or a target was given, the plan to take
is chosen by its error, as follows. Without a target none is taken that makes an output worse than INT8 does.

The search tries plans by fake quantisation, quick and near, and so ranks them. Of the plans that no smaller one beats
there, halving finds the smallest that goes ENOUGH of the way from INT8's error to INT16's, or reaches the target, in
integers; each rate gets the best of all that were run so. Where time is short the ends and the plan to take are run.

Just past that plan there may be a cliff: a few bytes more, and the error is a tenth. So of the plans that go as far or
further the one at the knee is taken, up to which HALVING of the bytes halve the error (Satopaa et al., "Finding a
Kneedle in a Haystack", 2011, name the point so; here the slope is stated, so no plan far away moves it). What is below
NEGLIGIBLE, or as good as with all at 16 bits, is good enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from sgsdump.errors import ConfigError
from sgsdump.fixedpoint.quantisation.trials.plan_trial import Plan
from sgsdump.fixedpoint.tuning.criteria import (
    NEGLIGIBLE,
    OutputLimits,
    Target,
    lies_beyond,
)
from sgsdump.fixedpoint.tuning.integer_scores import EveryPicture, IntegerScores
from sgsdump.fixedpoint.tuning.plan_costs import Sizes
from sgsdump.fixedpoint.tuning.plan_scores import PlanScores
from sgsdump.fixedpoint.tuning.search import ENOUGH, Left, SearchResult, no_limit
from sgsdump.fixedpoint.tuning.setup import Setup

# So much more of the bytes at 16 bits has to halve the error; of an error below NEGLIGIBLE there is nothing to halve.
HALVING = 0.05
# The likeliest knees, as the search saw them, that are run in integers.
KNEES = 3
# A plan within the limits is run without one of its domains so many times at most.
LOWERED = 12
# Of plans to take in place of one that is not confirmed so many are run on them, it included.
CONFIRMED = 6


def chosen(
    found: SearchResult,
    pool: PlanScores,
    sizes: Sizes,
    exact: IntegerScores,
    target: Target | None = None,
    left: Left = no_limit,
) -> SearchResult:
    """The result with what the integers choose, ``left`` the seconds for that. Raises ConfigError where no plan that
    was run reaches the target in them."""
    low, high = (exact.error(end.plan) for end in found.ends)
    aim = target or Target("error", False, low - ENOUGH * (low - high if low > high else 0.0))

    def reaches(plan: Plan) -> bool:
        return aim.reached(exact.score(plan), pool.outputs, exact.error(plan))

    exact.score(found.smallest.plan)
    _halve(_front(pool, sizes, aim), found.smallest.plan, reaches, left)
    for proposed in found.plans:
        if left() > 0:
            exact.score(proposed.plan)
    missing = sum(proposed.plan not in exact.scores for proposed in found.plans)
    if missing:
        unrun = f"{missing} of the plans for {len(found.plans)} rates in the hardware's integers"
        found = replace(found, complete=False, unsearched=(*found.unsearched, unrun))
    good = [plan for plan in exact.scores if reaches(plan)]
    if not good:
        raise ConfigError(_unreached(found, pool, exact, aim))
    if target is None:
        good = [plan for plan in good if not exact.worse(plan)] or [frozenset()]
    smallest = min(good, key=lambda plan: (sizes.wide(plan), exact.error(plan), sorted(plan)))
    if target is not None:
        kept = found.proposed(sizes.rate(smallest), smallest)
        return replace(found, plans=(kept,), smallest=kept)
    knee = _knee(smallest, pool, sizes, exact, left)
    plans = tuple(found.proposed(p.rate, _best_within(sizes.limit(p.rate), sizes, exact)) for p in found.plans)
    kept = found.proposed(sizes.rate(smallest), smallest)
    return replace(found, plans=plans, smallest=kept, knee=found.proposed(sizes.rate(knee), knee))


def within_limits(
    found: SearchResult,
    setup: Setup,
    exact: IntegerScores,
    others: Sequence[IntegerScores | EveryPicture],
    goal: OutputLimits,
    left: Left = no_limit,
) -> SearchResult:
    """The result with the cheapest plan within the limits, where one that was run is.

    exact   the integers on the search's pictures; ``others`` on further pictures, where the plan has to hold too.
    """
    judges, pool, sizes = [exact, *others], setup.pool, setup.sizes

    def reaches(plan: Plan) -> bool:
        return not any(judge.past(plan, goal.limits) or judge.worse(plan) for judge in judges)

    if not reaches(frozenset()):
        reaches(found.smallest.plan)  # however short the time is
        _halve(_front(pool, sizes, goal), found.smallest.plan, reaches, left)
    good = [plan for plan in exact.ran if all(plan in each.ran for each in judges) and reaches(plan)]
    if not good:
        return found
    plan = min(good, key=lambda plan: (sizes.wide(plan), exact.error(plan), sorted(plan)))
    plan = _lowered(plan, sizes, reaches, left)
    exact.score(plan)
    return replace(found, within=found.proposed(sizes.rate(plan), plan))


def _lowered(plan: Plan, sizes: Sizes, reaches: Callable[[Plan], bool], left: Left) -> Plan:
    """The plan without the domains that it does not need, the largest left out first; LOWERED plans are run at most."""
    for name in sorted(plan, key=lambda name: (-sizes.wide(frozenset([name])), name))[:LOWERED]:
        if left() > 0 and reaches(plan - {name}):
            plan = plan - {name}
    return plan


def confirmed(
    found: SearchResult,
    sizes: Sizes,
    exact: IntegerScores,
    held: IntegerScores,
    target: Target | None = None,
    left: Left = no_limit,
) -> SearchResult:
    """The result with a plan to take that is as good on the pictures ``held`` out as on those of the search: where the
    one taken is not, the smallest larger one that is, of those that were run."""
    taken = found.knee or found.smallest
    beyond: list[Plan] = []
    larger = [plan for plan in exact.scores if sizes.wide(plan) > sizes.wide(taken.plan)]
    if target is None:
        larger = [plan for plan in larger if not exact.worse(plan)]
    for plan in [taken.plan, *sorted(larger, key=lambda plan: (sizes.wide(plan), exact.error(plan), sorted(plan)))]:
        if beyond and (left() <= 0 or len(beyond) == CONFIRMED):
            break
        if not is_beyond(plan, exact, held, target):
            kept = found.proposed(sizes.rate(plan), plan)
            if plan != taken.plan and target is not None:
                found = replace(found, plans=(kept,), smallest=kept)
            elif plan != taken.plan:
                found = replace(found, knee=kept)
            return replace(found, beyond=tuple(beyond))
        beyond.append(plan)
    if target is None and held.worse(taken.plan):
        found = replace(found, knee=found.proposed(sizes.rate(frozenset()), frozenset()))
    return replace(found, beyond=tuple(beyond), confirmed=False)


def is_beyond(plan: Plan, exact: IntegerScores, held: IntegerScores, target: Target | None) -> bool:
    """Whether the error of a plan on the pictures held out lies beyond that on the search's, both as a part of INT8's,
    and beyond what INT16 gives there; or whether it misses the target there."""
    if target is not None and not target.reached(held.score(plan), held.outputs, held.error(plan)):
        return True
    if target is None and held.worse(plan):
        return True
    return lies_beyond(held.part(plan), exact.part(plan), held.part(frozenset(held.domains)))


def _knee(smallest: Plan, pool: PlanScores, sizes: Sizes, exact: IntegerScores, left: Left) -> Plan:
    """Of the plans as large as ``smallest`` or larger the one at the knee."""
    raised = frozenset(pool.domains)

    def cost(plan: Plan, error: Callable[[Plan], float]) -> float:
        return sizes.rate(plan) / HALVING + math.log2(max(error(plan), error(raised), NEGLIGIBLE))

    larger = [plan for plan in pool.scores if sizes.wide(plan) > sizes.wide(smallest)]
    for plan in sorted(larger, key=lambda plan: (cost(plan, pool.error), sorted(plan)))[:KNEES]:
        if left() > 0:
            exact.score(plan)
    run = [plan for plan in exact.scores if sizes.wide(plan) > sizes.wide(smallest) and not exact.worse(plan)]
    run.append(smallest)
    return min(run, key=lambda plan: (cost(plan, exact.error), sizes.wide(plan), sorted(plan)))


def _front(pool: PlanScores, sizes: Sizes, aim: Target) -> list[Plan]:
    """The plans tried that no smaller one beats, by rising size."""
    front, best = [], math.inf
    for plan in sorted(pool.scores, key=lambda plan: (sizes.wide(plan), sorted(plan))):
        value = aim.of(pool.scores[plan], pool.outputs, pool.error(plan))
        value = -value if aim.at_least else value
        if value < best:
            front.append(plan)
            best = value
    return front


def _halve(front: Sequence[Plan], first: Plan, reaches: Callable[[Plan], bool], left: Left) -> None:
    """Run plans of the front until the smallest that reaches the aim stands beside one that does not."""
    low, high = -1, len(front)
    place = front.index(first) if first in front else (low + high) // 2
    while high - low > 1 and left() > 0:
        if reaches(front[place]):
            high = place
        else:
            low = place
        place = (low + high) // 2


def _best_within(limit: float, sizes: Sizes, exact: IntegerScores) -> Plan:
    fitting = [plan for plan in exact.scores if sizes.wide(plan) <= limit]
    return min(fitting, key=lambda plan: (exact.error(plan), sizes.wide(plan), sorted(plan)))


def _unreached(found: SearchResult, pool: PlanScores, exact: IntegerScores, target: Target) -> str:
    values = [target.of(score, pool.outputs, exact.error(plan)) for plan, score in exact.scores.items()]
    best = max(values) if target.at_least else min(values)
    number = "lower" if target.at_least else "higher"
    rest = f", or give the search more time (not looked at: {'; '.join(found.unsearched)})" if found.unsearched else ""
    every = "all " if found.exhaustive else "the "
    return (
        f"--target {target}: none of {every}{len(pool.scores)} plans tried reaches it in the hardware's integers, in "
        f"which the {len(exact.scores)} most promising were run; the best gives {best:.6g}; set it {number}{rest}"
    )
