"""Search for the best plans, each tried by fake quantisation.

1. Every domain is measured alone: only this domain at 8 bits, and only this domain at INT16 (``Surrogate``). With many
   domains, some of the images are enough (``PlanScores.ranking``), because this step only ranks plans.
2. With more than EXHAUSTIVE domains, the recommended plan is searched first: the smallest plan that removes ENOUGH of
   the error that INT16 removes.
3. For each compression rate, integer programs and a descent on the model propose plans; all are verified.
4. With at most EXHAUSTIVE domains, every plan within the highest rate is tried, so the best plan is optimal. With more,
   the best plan of each rate is improved by the neighbours (drop, add, swap) that the model ranks first.

If the ranking images are not all images, rival plans of steps 2 and 4 run on the ranking images first, and only the
best of them on all images.

All verified plans form one pool. A rate gets the best plan of the pool that fits, so a higher rate is never worse.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from threadpoolctl import threadpool_limits

from sgsdump.errors import ConfigError
from sgsdump.fixedpoint.quantisation.trials.plan_trial import Plan
from sgsdump.fixedpoint.tuning.criteria import Target
from sgsdump.fixedpoint.tuning.plan_costs import Sizes
from sgsdump.fixedpoint.tuning.plan_scores import SAVE_SECONDS, PlanScores
from sgsdump.fixedpoint.tuning.proposals import Surrogate, best_by_model, changes_of, every_plan, proposals

AT_ONCE = 8  # neighbours verified together
PATIENCE = 2  # groups without gain before a rate ends
GROUPS = 8  # most groups for a rate
HALVINGS = 10  # most rates tried for a target
SHRINKS = 24  # most groups of smaller neighbours of a plan that reaches a target
# The smallest plan that removes this share of the difference between the errors of INT8 and INT16 is good enough.
ENOUGH = 0.95
Left = Callable[[], float]
"""Returns the remaining seconds."""
EXHAUSTIVE = 12
PROPOSALS = 6  # most proposals for a rate
SMALLER = "smaller plans as good as the plan marked *"
RATES = (0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
# Images run in parallel; threads of BLAS would compete with them for the processors.
one_blas_thread = threadpool_limits.wrap(limits=1, user_api="blas")


@dataclass(frozen=True)
class Proposed:
    """A plan for a rate, with the error that the model predicts; its score is in the pool."""

    rate: float
    plan: Plan
    predicted: float


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    plans       by rising rate.
    smallest    plan of the fewest bytes that removes ENOUGH error, or reaches the target.
    ends        all-INT8 and all-INT16.
    complete    whether the search ended before the time ran out; ``unsearched``: parts that were not tried.
    predict     returns the error that the model predicts for a plan.
    knee        plan that is recommended instead of ``smallest`` if a few more bytes gain much.
    within      cheapest plan within the limits in integers; recommended before both others.
    beyond      plans that held-out images rejected.
    confirmed   whether held-out images confirm the recommended plan.
    """

    plans: tuple[Proposed, ...]
    smallest: Proposed
    ends: tuple[Proposed, Proposed]
    exhaustive: bool
    complete: bool
    unsearched: tuple[str, ...] = ()
    predict: Callable[[Plan], float] = lambda plan: math.nan
    knee: Proposed | None = None
    within: Proposed | None = None
    beyond: tuple[Plan, ...] = ()
    confirmed: bool = True

    @property
    def taken(self) -> Proposed:
        """The recommended plan."""
        return self.within or self.knee or self.smallest

    def proposed(self, rate: float, plan: Plan) -> Proposed:
        return Proposed(rate, plan, self.predict(plan))


def most_evaluations(domains: int, rates: int) -> int:
    """Return the largest number of plans that a search evaluates; ``rates``: their number, 0 for a target."""
    searched = 2 * domains + 2 + rates * (PROPOSALS + AT_ONCE * GROUPS)
    searched += HALVINGS * (PROPOSALS + bool(rates)) + SHRINKS * (AT_ONCE + 1)
    return max(1 << domains, 2 * domains + 2) if domains <= EXHAUSTIVE else searched


def check_rates(rates: Sequence[float]) -> None:
    """Raise ConfigError for a rate outside (0.5, 1]."""
    for rate in rates:
        if not 0.5 < rate <= 1:
            raise ConfigError(f"compression rate {rate:g} must be above 0.5 (all INT8) and at most 1 (all INT16)")


def no_limit() -> float:
    return math.inf


@one_blas_thread
def search_rates(
    pool: PlanScores, sizes: Sizes, rates: Sequence[float], left: Left = no_limit, goal: Target | None = None
) -> SearchResult:
    """Search the best plan for each rate.

    left  returns the remaining seconds; proposals are verified even without any.
    goal  target of the smallest plan, if all-INT16 reaches it; otherwise the plan must remove ENOUGH error.
    """
    check_rates(rates)
    search = Search(pool, sizes, pool.surrogate(_half(left)), left)
    rates = sorted(set(rates))
    every = frozenset(sizes.domains)
    target = goal if goal is not None and search.reaches(every, goal) else _enough(search)
    unsearched = _unmeasured(search)
    if not search.small:
        pool.measure(map(sizes.plan, foreseen(sizes, search.model)))
        if not (halve(search, target) and shrink(search, target)):
            unsearched.append(SMALLER)
    proposed = [mask for rate in rates for mask in proposals(search.model, sizes.weights, sizes.limit(rate))]
    pool.measure(map(sizes.plan, proposed))
    search.record_best(rates)
    if search.small:
        unsearched += try_all(search, sizes.limit(rates[-1]))
    else:
        cut_short = [rate for rate in rates if not improve(search, rate, rates)]
        unsearched += [f"neighbours of the plan for rate {rate:g}" for rate in cut_short]
        # A plan tried for a rate may be smaller than the recommended plan.
        if not unsearched and not shrink(search, target):
            unsearched.append(SMALLER)
    best = [search.proposed(rate, search.best_within(sizes.limit(rate))) for rate in rates]
    smallest = search.reaching(target)[0]
    return search.result(best, search.proposed(sizes.rate(smallest), smallest), unsearched)


@one_blas_thread
def search_target(pool: PlanScores, sizes: Sizes, target: Target, left: Left = no_limit) -> SearchResult:
    """Search the plan of the fewest bytes that reaches the target; if no tried plan does, return the nearest."""
    search = Search(pool, sizes, pool.surrogate(_half(left)), left)
    unsearched = _unmeasured(search)
    halved = halve(search, target)
    if search.small:
        unsearched += try_all(search, sizes.total)
    elif search.reaching(target):
        if not (shrink(search, target) and halved):
            unsearched.append(SMALLER)
    elif not halved:
        unsearched.append("plans that may reach the target")
    plan = next(iter([*search.reaching(target), search.nearest(target)]))
    smallest = search.proposed(sizes.rate(plan), plan)
    return search.result([smallest], smallest, unsearched)


@dataclass(frozen=True, eq=False)
class Search:
    """The shared state of a search: the tried plans, their sizes, a model of their errors, and the remaining time."""

    pool: PlanScores
    sizes: Sizes
    model: Surrogate
    left: Left

    @property
    def small(self) -> bool:
        """Whether every plan is tried (few domains)."""
        return len(self.sizes.domains) <= EXHAUSTIVE

    def best_within(self, limit: float) -> Plan:
        """Return the plan of the pool with the smallest error within a limit, on ties the smallest plan."""
        fitting = [plan for plan in self.pool.scores if self.sizes.wide(plan) <= limit]
        least = min(map(self.pool.error, fitting))
        best = (plan for plan in fitting if self.pool.error(plan) == least)
        return min(best, key=lambda plan: (self.sizes.wide(plan), sorted(plan)))

    def reaching(self, target: Target) -> list[Plan]:
        """Return the plans of the pool that reach the target, by number of weights at INT16, then by error."""
        plans = [plan for plan in self.pool.scores if self.reaches(plan, target)]
        return sorted(plans, key=lambda plan: (self.sizes.wide(plan), self.pool.error(plan), sorted(plan)))

    def nearest(self, target: Target) -> Plan:
        """Return the plan of the pool nearest to the target, on ties the smallest plan."""
        sign = -1 if target.at_least else 1
        values = {p: sign * target.of(s, self.pool.outputs, self.pool.error(p)) for p, s in self.pool.scores.items()}
        return min(values, key=lambda plan: (values[plan], self.sizes.wide(plan), sorted(plan)))

    def reaches(self, plan: Plan, target: Target) -> bool:
        return target.reached(self.pool.scores[plan], self.pool.outputs, self.pool.error(plan))

    def untried(self, masks: Iterable[np.ndarray]) -> list[Plan]:
        """Return the first AT_ONCE of these plans that were not tried."""
        return list(islice((plan for plan in map(self.sizes.plan, masks) if not self.pool.is_tried(plan)), AT_ONCE))

    def record_best(self, rates: Sequence[float]) -> None:
        """Save the best plans so far in the progress file."""
        best = {f"{rate:g}": self.best_within(self.sizes.limit(rate)) for rate in rates}
        self.pool.best = {
            rate: {
                "tensor_arrays": [name for name in self.sizes.domains if name in plan],
                "error": self.pool.error(plan),
            }
            for rate, plan in best.items()
        }
        self.pool.save(SAVE_SECONDS)

    def proposed(self, rate: float, plan: Plan) -> Proposed:
        return Proposed(rate, plan, self.predict(plan))

    def predict(self, plan: Plan) -> float:
        """Return the error that the model predicts."""
        return float(self.model.predict(self.sizes.mask(plan)[None])[0])

    def result(self, plans: Iterable[Proposed], smallest: Proposed, unsearched: Sequence[str]) -> SearchResult:
        every, complete = frozenset(self.sizes.domains), not unsearched
        ends = self.proposed(0.5, frozenset()), self.proposed(self.sizes.rate(every), every)
        done = self.small and complete
        return SearchResult(tuple(plans), smallest, ends, done, complete, tuple(unsearched), self.predict)


def foreseen(sizes: Sizes, model: Surrogate) -> list[np.ndarray]:
    """Return ever smaller plans that remove ENOUGH error by the model alone, without running the network.

    A search that is cut short has at least these plans. There are several, because the model may be too optimistic.
    """
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


def try_all(search: Search, limit: float) -> list[str]:
    """Measure every plan within the limit; return the parts that the time did not suffice for."""
    pool, sizes = search.pool, search.sizes
    plans = [sizes.plan(mask) for mask in every_plan(sizes.weights, limit)]
    for start in range(0, len(plans), 64):
        if search.left() <= 0:
            new = sum(plan not in pool.scores for plan in plans)
            return [f"{new} of all {len(plans)} plans"] if new else []
        pool.measure(plans[start : start + 64])
    return []


def improve(search: Search, rate: float, rates: Sequence[float]) -> bool:
    """Verify the best neighbours of the best plan until they gain nothing; return False if the time ran out."""
    pool, sizes = search.pool, search.sizes
    idle, limit = 0, sizes.limit(rate)
    for _ in range(GROUPS):
        best = search.best_within(limit)
        near = changes_of(search.model, sizes.mask(best), sizes.weights, limit)
        new = search.untried(islice(near.ranked(), AT_ONCE * GROUPS))
        if not new:
            return True
        if search.left() <= 0:
            return False
        pool.measure_best(new)
        search.record_best(rates)
        idle = 0 if search.best_within(limit) != best else idle + 1
        if idle == PATIENCE:
            return True
    return True


def halve(search: Search, target: Target) -> bool:
    """Search the smallest rate that reaches the target by bisection; return False if the time ran out."""
    pool, sizes, model = search.pool, search.sizes, search.model
    low, high = 0.0, float(sizes.weights.sum())
    for _ in range(HALVINGS):
        if high - low < sizes.weights.min(initial=sizes.total):
            return True
        if search.left() <= 0:
            return False
        limit = (low + high) / 2
        plans = [sizes.plan(mask) for mask in proposals(model, sizes.weights, limit)]
        pool.measure_best(plans)
        reached = [sizes.wide(p) for p in plans if p in pool.scores and search.reaches(p, target)]
        low, high = (low, float(min(reached))) if reached else (limit, high)
    return True


def shrink(search: Search, target: Target) -> bool:
    """Verify smaller neighbours of the smallest plan that reaches the target, while one of them reaches the target too.

    Return False if the time ran out.
    """
    pool, sizes, model = search.pool, search.sizes, search.model
    idle = 0
    for _ in range(SHRINKS):
        best = search.reaching(target)[0]
        size = sizes.wide(best)
        mask = sizes.mask(best)
        new = search.untried(changes_of(model, mask, sizes.weights, size).ranked(smaller_than=size))
        if not new:
            return True
        if search.left() <= 0:
            return False
        downhill = best_by_model(model, sizes.weights, size - 1, sizes.mask(new[0]))
        pool.measure_best([*new, sizes.plan(downhill)])
        idle = 0 if search.reaching(target)[0] != best else idle + 1
        if idle == PATIENCE:
            return True
    return True


def _half(left: Left) -> Left:
    """Return the time left for measuring: half of it, because the results must still be used."""
    reserved = left() / 2
    return left if reserved == math.inf else lambda: left() - reserved


def _enough(search: Search) -> Target:
    low, high = search.pool.error(frozenset()), search.pool.error(frozenset(search.sizes.domains))
    low = low if math.isfinite(low) else max(high, 1.0)  # 1: error of an output without any signal
    return Target("error", False, low - ENOUGH * (low - high if low > high else 0.0))


def _unmeasured(search: Search) -> list[str]:
    """Return the measurements that the surrogate misses, as text."""
    few = 0 if search.small else search.pool.unmeasured
    return [f"each convolution alone on {few} of the {len(search.pool.ranking)} images"] if few else []
