"""Of the plans tried so far: the best within a size, and those that reach a target."""

from __future__ import annotations

from collections.abc import Sequence

from sgsdump.quantisation.trials.plan_walk import Plan
from sgsdump.tuning.scoring.plan_scores import SAVE_SECONDS, PlanScores
from sgsdump.tuning.search.sizes import Sizes
from sgsdump.tuning.search.target import Target


def best_within(pool: PlanScores, sizes: Sizes, limit: float) -> Plan:
    """The smallest error of the pool within a limit; of equals the fewest weights at INT16."""
    fitting = [(pool.error(plan), sizes.wide(plan), sorted(plan), plan) for plan in pool.scores]
    return min(entry for entry in fitting if entry[1] <= limit)[3]


def reaching(pool: PlanScores, sizes: Sizes, target: Target) -> list[Plan]:
    """Plans of the pool that reach the target, the fewest weights first, then the smallest error."""
    plans = [plan for plan in pool.scores if reaches(pool, plan, target)]
    return sorted(plans, key=lambda plan: (sizes.wide(plan), pool.error(plan), sorted(plan)))


def reaches(pool: PlanScores, plan: Plan, target: Target) -> bool:
    return target.reached(pool.scores[plan], pool.outputs, pool.error(plan))


def record_best(pool: PlanScores, sizes: Sizes, rates: Sequence[float]) -> None:
    """The best plans so far, for the progress file."""
    best = {f"{rate:g}": best_within(pool, sizes, sizes.limit(rate)) for rate in rates}
    pool.best = {
        rate: {"tensor_arrays": [name for name in sizes.domains if name in plan], "error": pool.error(plan)}
        for rate, plan in best.items()
    }
    pool.save(SAVE_SECONDS)
