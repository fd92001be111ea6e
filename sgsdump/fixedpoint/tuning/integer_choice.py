"""The choice of the recommended plan among plans that were run in integers (``integer_scores``).

``within_limits`` recommends the cheapest plan with every output within the limits, on held-out images too (``unseen``);
all-INT8 is tried first. If no tried plan is within the limits, or if a target is given, the error decides as follows.
Without a target, no plan is recommended that makes an output worse than INT8.

The search ranks plans by fake quantisation, a quick approximation. Among the plans that no smaller plan beats,
bisection finds the smallest plan that removes ENOUGH of the error that INT16 removes, or that reaches the target, in
integers. Each rate gets the best plan that was run in integers. If time is short, only the ends and the recommended
plan are run.

A few more bytes than those of this plan may reduce the error much further. So the plan at the knee is recommended: up
to the knee, each HALVING of the bytes halves the error. The term is of Satopaa et al., "Finding a Kneedle in a
Haystack", 2011; here the slope is fixed, so that distant plans do not move the knee. An error below NEGLIGIBLE, or as
small as with all at INT16, is good enough.
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

# Share of the INT16 bytes that has to halve the error; an error below NEGLIGIBLE need not be halved.
HALVING = 0.05
# Number of likeliest knees by the search that are run in integers.
KNEES = 3
# Most attempts to lower one domain of a plan within the limits.
LOWERED = 12
# Most plans that are tried on held-out images until one is confirmed.
CONFIRMED = 6


def chosen(
    found: SearchResult,
    pool: PlanScores,
    sizes: Sizes,
    exact: IntegerScores,
    target: Target | None = None,
    left: Left = no_limit,
) -> SearchResult:
    """Return the result with the plans chosen in integers; ``left``: remaining seconds.

    Raises ConfigError if no plan that was run reaches the target.
    """
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
        unrun = f"{missing} of the plans for {len(found.plans)} rates with the chip's integer arithmetic"
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
    """Return the result with the cheapest plan within the limits, if a plan that was run is within them.

    exact   scores on the images of the search; ``others``: on further images, where the plan must be within them too.
    """
    judges, pool, sizes = [exact, *others], setup.pool, setup.sizes

    def reaches(plan: Plan) -> bool:
        return not any(judge.past(plan, goal.limits) or judge.worse(plan) for judge in judges)

    if not reaches(frozenset()):
        reaches(found.smallest.plan)  # even without time left
        _halve(_front(pool, sizes, goal), found.smallest.plan, reaches, left)
    good = [plan for plan in exact.ran if all(plan in each.ran for each in judges) and reaches(plan)]
    if not good:
        return found
    plan = min(good, key=lambda plan: (sizes.wide(plan), exact.error(plan), sorted(plan)))
    plan = _lowered(plan, sizes, reaches, left)
    exact.score(plan)
    return replace(found, within=found.proposed(sizes.rate(plan), plan))


def _lowered(plan: Plan, sizes: Sizes, reaches: Callable[[Plan], bool], left: Left) -> Plan:
    """Return the plan without unneeded domains, the largest tried first; at most LOWERED plans are run."""
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
    """Return the result with a recommended plan that is as good on held-out images as on those of the search.

    If the recommended plan is not, the smallest larger plan replaces it that was run and is.
    """
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
    """Return whether a plan's error is much larger on held-out images (``lies_beyond``), or misses the target there."""
    if target is not None and not target.reached(held.score(plan), held.outputs, held.error(plan)):
        return True
    if target is None and held.worse(plan):
        return True
    return lies_beyond(held.part(plan), exact.part(plan), held.part(frozenset(held.domains)))


def _knee(smallest: Plan, pool: PlanScores, sizes: Sizes, exact: IntegerScores, left: Left) -> Plan:
    """Return the plan at the knee, among ``smallest`` and larger plans."""
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
    """Return the tried plans that no smaller plan beats, by rising size."""
    front, best = [], math.inf
    for plan in sorted(pool.scores, key=lambda plan: (sizes.wide(plan), sorted(plan))):
        value = aim.of(pool.scores[plan], pool.outputs, pool.error(plan))
        value = -value if aim.at_least else value
        if value < best:
            front.append(plan)
            best = value
    return front


def _halve(front: Sequence[Plan], first: Plan, reaches: Callable[[Plan], bool], left: Left) -> None:
    """Find the smallest plan of the front that reaches the aim, by bisection."""
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
    rest = f", or give the search more time (not tried: {'; '.join(found.unsearched)})" if found.unsearched else ""
    every = "all " if found.exhaustive else "the "
    return (
        f"--target {target}: none of {every}{len(pool.scores)} plans tried reaches the target. The "
        f"{len(exact.scores)} most promising plans were run with the chip's integer arithmetic; the best of these "
        f"plans gives {best:.6g}. Set the target {number}{rest}"
    )
