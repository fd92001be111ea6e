"""Search for the best quant plans, each verified by running it.

1. Every domain is measured alone, at 8 bits among INT16 and at INT16 among 8 bits (``surrogate``).
2. With more than EXHAUSTIVE domains the plan to take comes first: the smallest that goes ENOUGH of the way to INT16.
3. For each compression rate integer programs and a descent on the model propose plans; all are verified.
4. With at most EXHAUSTIVE domains every plan within the highest rate is tried, so the best is the best there is. With
   more, the verified best of each rate is improved by the neighbours (drop, add, swap) that the model ranks first.

All plans ever verified are one pool; a rate gets the best of the pool that fits, so a higher rate is never worse.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from threadpoolctl import threadpool_limits

from sgsdump.errors import ConfigError
from sgsdump.quantisation.trials.plan_walk import Plan
from sgsdump.tuning.plan_scores import SAVE_SECONDS, PlanScores
from sgsdump.tuning.plan_search import best_by_model, every_plan, neighbours, proposals
from sgsdump.tuning.sizes import Found, Proposed, Sizes
from sgsdump.tuning.surrogate import Surrogate
from sgsdump.tuning.target import Target

EXHAUSTIVE = 12
AT_ONCE = 8  # neighbours verified together
PATIENCE = 2  # such groups without gain before a rate is left
GROUPS = 8  # such groups for a rate at most
PROPOSALS = 6  # plans proposed for a rate at most
HALVINGS = 10  # rates tried on the way to a target at most
SHRINKS = 24  # groups of smaller neighbours of a plan that reaches a target at most
# The smallest plan that goes this part of the way from INT8's error to INT16's is the one to take.
ENOUGH = 0.95
SMALLER = "smaller plans that are as good as *"
RATES = (0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)

Left = Callable[[], float]
# The pictures are what runs side by side: threads of BLAS beside them take the processors from each other.
one_blas_thread = threadpool_limits.wrap(limits=1, user_api="blas")


def most_evaluations(domains: int, rates: int) -> int:
    """No search evaluates more plans than this; ``rates`` 0 for a target."""
    searched = 2 * domains + 2 + rates * (PROPOSALS + AT_ONCE * GROUPS)
    searched += HALVINGS * (PROPOSALS + bool(rates)) + SHRINKS * (AT_ONCE + 1)
    return max(1 << domains, 2 * domains + 2) if domains <= EXHAUSTIVE else searched


def check_rates(rates: Sequence[float]) -> None:
    """Raises ConfigError for a rate outside (0.5, 1]."""
    for rate in rates:
        if not 0.5 < rate <= 1:
            raise ConfigError(f"compression rate {rate:g} is not above 0.5 (all 8 bits) and at most 1 (all 16 bits)")


@one_blas_thread
def search_rates(pool: PlanScores, sizes: Sizes, rates: Sequence[float], left: Left = lambda: float("inf")) -> Found:
    """The best plan found for each rate. ``left`` gives the seconds left; proposals are verified even without any."""
    check_rates(rates)
    model = pool.surrogate(_half(left))
    rates = sorted(set(rates))
    small = len(sizes.domains) <= EXHAUSTIVE
    target = _enough(pool, sizes)
    unsearched = [] if small else _unmeasured(pool)
    if not small:
        pool.measure(map(sizes.plan, _foreseen(sizes, model)))
    if not small and not (_halve(pool, sizes, model, target, left) and _shrink(pool, sizes, model, target, left)):
        unsearched.append(SMALLER)
    proposed = [mask for rate in rates for mask in proposals(model, sizes.weights, sizes.limit(rate))]
    pool.measure(map(sizes.plan, proposed))
    _note(pool, sizes, rates)
    if small:
        unsearched += _try_all(pool, sizes, sizes.limit(rates[-1]), left)
    else:
        left_out = [rate for rate in rates if not _improve(pool, sizes, model, rate, rates, left)]
        unsearched += [f"neighbours of the plan for rate {rate:g}" for rate in left_out]
        # A plan tried for a rate may be smaller still than the one to take.
        if not unsearched and not _shrink(pool, sizes, model, target, left):
            unsearched.append(SMALLER)
    plans = [_best(pool, sizes, sizes.limit(rate)) for rate in rates]
    best = tuple(_proposed(sizes, model, rate, plan) for rate, plan in zip(rates, plans))
    smallest = _reaching(pool, sizes, target)[0]
    smallest_row = _proposed(sizes, model, sizes.rate(smallest), smallest)
    complete = not unsearched
    return Found(best, smallest_row, _ends(sizes, model), small and complete, complete, tuple(unsearched))


@one_blas_thread
def search_target(pool: PlanScores, sizes: Sizes, target: Target, left: Left = lambda: float("inf")) -> Found:
    """The plan of the fewest bytes that reaches the target. Raises ConfigError when no plan tried does."""
    model = pool.surrogate(_half(left))
    small = len(sizes.domains) <= EXHAUSTIVE
    unsearched = [] if small else _unmeasured(pool)
    halved = _halve(pool, sizes, model, target, left)
    if small:
        unsearched += _try_all(pool, sizes, sizes.total, left)
    elif _reaching(pool, sizes, target):
        if not (_shrink(pool, sizes, model, target, left) and halved):
            unsearched.append(SMALLER)
    elif not halved:
        unsearched.append("plans that may reach the target")
    reaching = _reaching(pool, sizes, target)
    if not reaching:
        raise ConfigError(_unreached(pool, target, unsearched, small))
    plan = reaching[0]
    proposed = (_proposed(sizes, model, sizes.rate(plan), plan),)
    complete = not unsearched
    return Found(proposed, proposed[0], _ends(sizes, model), small and complete, complete, tuple(unsearched))


def _half(left: Left) -> Left:
    """The first half of the time left: what is measured must be put to use."""
    reserved = left() / 2
    return left if reserved == float("inf") else lambda: left() - reserved


def _enough(pool: PlanScores, sizes: Sizes) -> Target:
    low, high = pool.error(frozenset()), pool.error(frozenset(sizes.domains))
    low = low if math.isfinite(low) else max(high, 1.0)  # 1: as of an output without any signal
    return Target("error", False, low - ENOUGH * (low - high if low > high else 0.0))


def _foreseen(sizes: Sizes, model: Surrogate) -> list[np.ndarray]:
    """Ever smaller plans on the way to the one to take, as the model foresees it without a run of the network: what a
    search that is cut short has at least. Several, for where the model is too hopeful."""
    low, high = model.predict(np.array([[False], [True]]).repeat(len(sizes.domains), axis=1))
    enough, plans = low - ENOUGH * (low - high), []
    few, many = 0.0, float(sizes.weights.sum())
    for _ in range(HALVINGS):
        limit = (few + many) / 2
        best = proposals(model, sizes.weights, limit)[0]
        if model.predict(best[None])[0] <= enough:
            many = limit
            plans.append(best)
        else:
            few = limit
    return plans


def _unmeasured(pool: PlanScores) -> list[str]:
    """What the surrogate did not see."""
    few = pool.unmeasured
    return [f"each convolution alone on {few} of the {len(pool.pictures)} pictures"] if few else []


def _try_all(pool: PlanScores, sizes: Sizes, limit: float, left: Left) -> list[str]:
    """Measure every plan within the limit; returns what the time did not suffice for."""
    plans = [sizes.plan(mask) for mask in every_plan(sizes.weights, limit)]
    for start in range(0, len(plans), 64):
        if left() <= 0:
            new = sum(plan not in pool.scores for plan in plans)
            return [f"{new} of all {len(plans)} plans"] if new else []
        pool.measure(plans[start : start + 64])
    return []


def _improve(pool: PlanScores, sizes: Sizes, model: Surrogate, rate: float, rates: Sequence[float], left: Left) -> bool:
    """Verify the neighbours of the best plan that the model ranks first, until they bring no more."""
    idle, limit = 0, sizes.limit(rate)
    for _ in range(GROUPS):
        best = _best(pool, sizes, limit)
        near = neighbours(sizes.mask(best), sizes.weights, limit)
        ranked = near[np.argsort(model.predict(near), kind="stable")] if len(near) else near
        new = [plan for plan in map(sizes.plan, ranked[: AT_ONCE * GROUPS]) if plan not in pool.scores][:AT_ONCE]
        if not new:
            return True
        if left() <= 0:
            return False
        pool.measure(new)
        _note(pool, sizes, rates)
        idle = 0 if _best(pool, sizes, limit) != best else idle + 1
        if idle == PATIENCE:
            return True
    return True


def _halve(pool: PlanScores, sizes: Sizes, model: Surrogate, target: Target, left: Left) -> bool:
    """Proposals at rates between the last that failed and the smallest that reached the target."""
    low, high = 0.0, float(sizes.weights.sum())
    for _ in range(HALVINGS):
        if high - low < sizes.weights.min(initial=sizes.total):
            return True
        if left() <= 0:
            return False
        limit = (low + high) / 2
        plans = [sizes.plan(mask) for mask in proposals(model, sizes.weights, limit)]
        pool.measure(plans)
        reached = [sizes.wide(p) for p in plans if _reaches(pool, p, target)]
        low, high = (low, float(min(reached))) if reached else (limit, high)
    return True


def _shrink(pool: PlanScores, sizes: Sizes, model: Surrogate, target: Target, left: Left) -> bool:
    """Smaller neighbours of the smallest plan that reaches the target, while one of them reaches it too."""
    idle = 0
    for _ in range(SHRINKS):
        best = _reaching(pool, sizes, target)[0]
        size = sizes.wide(best)
        mask = sizes.mask(best)
        near = neighbours(mask, sizes.weights, size)
        near = near[near @ sizes.weights < size]
        ranked = near[np.argsort(model.predict(near), kind="stable")] if len(near) else near
        new = [plan for plan in map(sizes.plan, ranked) if plan not in pool.scores][:AT_ONCE]
        if not new:
            return True
        if left() <= 0:
            return False
        downhill = best_by_model(model, sizes.weights, size - 1, sizes.mask(new[0]))
        pool.measure([*new, sizes.plan(downhill)])
        idle = 0 if _reaching(pool, sizes, target)[0] != best else idle + 1
        if idle == PATIENCE:
            return True
    return True


def _note(pool: PlanScores, sizes: Sizes, rates: Sequence[float]) -> None:
    """The best plans so far, for the progress file."""
    best = {f"{rate:g}": _best(pool, sizes, sizes.limit(rate)) for rate in rates}
    pool.best = {
        rate: {"tensor_arrays": [name for name in sizes.domains if name in plan], "error": pool.error(plan)}
        for rate, plan in best.items()
    }
    pool.save(SAVE_SECONDS)


def _best(pool: PlanScores, sizes: Sizes, limit: float) -> Plan:
    """The smallest error of the pool within a limit; of equals the fewest weights at INT16."""
    fitting = [(pool.error(plan), sizes.wide(plan), sorted(plan), plan) for plan in pool.scores]
    return min(entry for entry in fitting if entry[1] <= limit)[3]


def _reaching(pool: PlanScores, sizes: Sizes, target: Target) -> list[Plan]:
    """Plans of the pool that reach the target, the fewest weights first, then the smallest error."""
    plans = [plan for plan in pool.scores if _reaches(pool, plan, target)]
    return sorted(plans, key=lambda plan: (sizes.wide(plan), pool.error(plan), sorted(plan)))


def _reaches(pool: PlanScores, plan: Plan, target: Target) -> bool:
    return target.reached(pool.scores[plan], pool.outputs, pool.error(plan))


def _unreached(pool: PlanScores, target: Target, unsearched: Sequence[str], small: bool) -> str:
    values = [target.of(score, pool.outputs, pool.error(plan)) for plan, score in pool.scores.items()]
    best = max(values) if target.at_least else min(values)
    which = "none of all" if small and not unsearched else "none of the"
    number = "set it lower" + ("" if target.at_least else " demands, that is a higher number")
    rest = f", or give the search more time (not looked at: {'; '.join(unsearched)})" if unsearched else ""
    return f"--target {target}: {which} {len(values)} plans tried reaches it, the best gives {best:.6g}; {number}{rest}"


def _proposed(sizes: Sizes, model: Surrogate, rate: float, plan: Plan) -> Proposed:
    return Proposed(rate, plan, float(model.predict(sizes.mask(plan)[None])[0]))


def _ends(sizes: Sizes, model: Surrogate) -> tuple[Proposed, Proposed]:
    every = frozenset(sizes.domains)
    return _proposed(sizes, model, 0.5, frozenset()), _proposed(sizes, model, sizes.rate(every), every)
