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
from collections.abc import Sequence

from threadpoolctl import threadpool_limits

from sgsdump.errors import ConfigError
from sgsdump.quantisation.trials.plan_walk import Plan
from sgsdump.tuning.scoring.plan_scores import PlanScores
from sgsdump.tuning.scoring.surrogate import Surrogate
from sgsdump.tuning.search.proposals import proposals
from sgsdump.tuning.search.result import Proposed, SearchResult
from sgsdump.tuning.search.sizes import Sizes
from sgsdump.tuning.search.steps import (
    AT_ONCE,
    ENOUGH,
    GROUPS,
    HALVINGS,
    SHRINKS,
    Left,
    Search,
    foreseen,
    halve,
    improve,
    no_limit,
    shrink,
    try_all,
)
from sgsdump.tuning.search.target import Target
from sgsdump.tuning.search.tried_plans import best_within, reaching, record_best

EXHAUSTIVE = 12
PROPOSALS = 6  # plans proposed for a rate at most
SMALLER = "smaller plans that are as good as *"
RATES = (0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)

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
def search_rates(pool: PlanScores, sizes: Sizes, rates: Sequence[float], left: Left = no_limit) -> SearchResult:
    """The best plan found for each rate. ``left`` gives the seconds left; proposals are verified even without any."""
    check_rates(rates)
    model = pool.surrogate(_half(left))
    search = Search(pool, sizes, model, left)
    rates = sorted(set(rates))
    small = len(sizes.domains) <= EXHAUSTIVE
    target = _enough(pool, sizes)
    unsearched = [] if small else _unmeasured(pool)
    if not small:
        pool.measure(map(sizes.plan, foreseen(sizes, model)))
    if not small and not (halve(search, target) and shrink(search, target)):
        unsearched.append(SMALLER)
    proposed = [mask for rate in rates for mask in proposals(model, sizes.weights, sizes.limit(rate))]
    pool.measure(map(sizes.plan, proposed))
    record_best(pool, sizes, rates)
    if small:
        unsearched += try_all(search, sizes.limit(rates[-1]))
    else:
        left_out = [rate for rate in rates if not improve(search, rate, rates)]
        unsearched += [f"neighbours of the plan for rate {rate:g}" for rate in left_out]
        # A plan tried for a rate may be smaller still than the one to take.
        if not unsearched and not shrink(search, target):
            unsearched.append(SMALLER)
    plans = [best_within(pool, sizes, sizes.limit(rate)) for rate in rates]
    best = tuple(_proposed(sizes, model, rate, plan) for rate, plan in zip(rates, plans))
    smallest = reaching(pool, sizes, target)[0]
    smallest_row = _proposed(sizes, model, sizes.rate(smallest), smallest)
    complete = not unsearched
    return SearchResult(best, smallest_row, _ends(sizes, model), small and complete, complete, tuple(unsearched))


@one_blas_thread
def search_target(pool: PlanScores, sizes: Sizes, target: Target, left: Left = no_limit) -> SearchResult:
    """The plan of the fewest bytes that reaches the target. Raises ConfigError when no plan tried does."""
    model = pool.surrogate(_half(left))
    search = Search(pool, sizes, model, left)
    small = len(sizes.domains) <= EXHAUSTIVE
    unsearched = [] if small else _unmeasured(pool)
    halved = halve(search, target)
    if small:
        unsearched += try_all(search, sizes.total)
    elif reaching(pool, sizes, target):
        if not (shrink(search, target) and halved):
            unsearched.append(SMALLER)
    elif not halved:
        unsearched.append("plans that may reach the target")
    good = reaching(pool, sizes, target)
    if not good:
        raise ConfigError(_unreached(pool, target, unsearched, small))
    plan = good[0]
    proposed = (_proposed(sizes, model, sizes.rate(plan), plan),)
    complete = not unsearched
    return SearchResult(proposed, proposed[0], _ends(sizes, model), small and complete, complete, tuple(unsearched))


def _half(left: Left) -> Left:
    """The first half of the time left: what is measured must be put to use."""
    reserved = left() / 2
    return left if reserved == math.inf else lambda: left() - reserved


def _enough(pool: PlanScores, sizes: Sizes) -> Target:
    low, high = pool.error(frozenset()), pool.error(frozenset(sizes.domains))
    low = low if math.isfinite(low) else max(high, 1.0)  # 1: as of an output without any signal
    return Target("error", False, low - ENOUGH * (low - high if low > high else 0.0))


def _unmeasured(pool: PlanScores) -> list[str]:
    """What the surrogate did not see."""
    few = pool.unmeasured
    return [f"each convolution alone on {few} of the {len(pool.pictures)} pictures"] if few else []


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
