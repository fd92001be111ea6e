"""The steps of a search: each proposes plans by the model and has them verified, until it gains no more."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sgsdump.tuning.scoring.plan_scores import PlanScores
from sgsdump.tuning.scoring.surrogate import Surrogate
from sgsdump.tuning.search.proposals import best_by_model, every_plan, neighbours, proposals
from sgsdump.tuning.search.sizes import Sizes
from sgsdump.tuning.search.target import Target
from sgsdump.tuning.search.tried_plans import best_within, reaches, reaching, record_best

AT_ONCE = 8  # neighbours verified together
PATIENCE = 2  # such groups without gain before a rate is left
GROUPS = 8  # such groups for a rate at most
HALVINGS = 10  # rates tried on the way to a target at most
SHRINKS = 24  # groups of smaller neighbours of a plan that reaches a target at most
# The smallest plan that goes this part of the way from INT8's error to INT16's is the one to take.
ENOUGH = 0.95

Left = Callable[[], float]
"""Gives the seconds left."""


def no_limit() -> float:
    return math.inf


@dataclass(frozen=True, eq=False)
class Search:
    """One search, as its steps share it: the plans tried, their sizes, a model of their errors, and the time left."""

    pool: PlanScores
    sizes: Sizes
    model: Surrogate
    left: Left


def foreseen(sizes: Sizes, model: Surrogate) -> list[np.ndarray]:
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


def try_all(search: Search, limit: float) -> list[str]:
    """Measure every plan within the limit; returns what the time did not suffice for."""
    pool, sizes = search.pool, search.sizes
    plans = [sizes.plan(mask) for mask in every_plan(sizes.weights, limit)]
    for start in range(0, len(plans), 64):
        if search.left() <= 0:
            new = sum(plan not in pool.scores for plan in plans)
            return [f"{new} of all {len(plans)} plans"] if new else []
        pool.measure(plans[start : start + 64])
    return []


def improve(search: Search, rate: float, rates: Sequence[float]) -> bool:
    """Verify the neighbours of the best plan that the model ranks first, until they bring no more.

    Returns False when the time ends it.
    """
    pool, sizes, model = search.pool, search.sizes, search.model
    idle, limit = 0, sizes.limit(rate)
    for _ in range(GROUPS):
        best = best_within(pool, sizes, limit)
        near = neighbours(sizes.mask(best), sizes.weights, limit)
        ranked = near[np.argsort(model.predict(near), kind="stable")] if len(near) else near
        new = [plan for plan in map(sizes.plan, ranked[: AT_ONCE * GROUPS]) if plan not in pool.scores][:AT_ONCE]
        if not new:
            return True
        if search.left() <= 0:
            return False
        pool.measure(new)
        record_best(pool, sizes, rates)
        idle = 0 if best_within(pool, sizes, limit) != best else idle + 1
        if idle == PATIENCE:
            return True
    return True


def halve(search: Search, target: Target) -> bool:
    """Proposals at rates between the last that failed and the smallest that reached the target.

    Returns False when the time ends it.
    """
    pool, sizes, model = search.pool, search.sizes, search.model
    low, high = 0.0, float(sizes.weights.sum())
    for _ in range(HALVINGS):
        if high - low < sizes.weights.min(initial=sizes.total):
            return True
        if search.left() <= 0:
            return False
        limit = (low + high) / 2
        plans = [sizes.plan(mask) for mask in proposals(model, sizes.weights, limit)]
        pool.measure(plans)
        reached = [sizes.wide(p) for p in plans if reaches(pool, p, target)]
        low, high = (low, float(min(reached))) if reached else (limit, high)
    return True


def shrink(search: Search, target: Target) -> bool:
    """Smaller neighbours of the smallest plan that reaches the target, while one of them reaches it too.

    Returns False when the time ends it.
    """
    pool, sizes, model = search.pool, search.sizes, search.model
    idle = 0
    for _ in range(SHRINKS):
        best = reaching(pool, sizes, target)[0]
        size = sizes.wide(best)
        mask = sizes.mask(best)
        near = neighbours(mask, sizes.weights, size)
        near = near[near @ sizes.weights < size]
        ranked = near[np.argsort(model.predict(near), kind="stable")] if len(near) else near
        new = [plan for plan in map(sizes.plan, ranked) if plan not in pool.scores][:AT_ONCE]
        if not new:
            return True
        if search.left() <= 0:
            return False
        downhill = best_by_model(model, sizes.weights, size - 1, sizes.mask(new[0]))
        pool.measure([*new, sizes.plan(downhill)])
        idle = 0 if reaching(pool, sizes, target)[0] != best else idle + 1
        if idle == PATIENCE:
            return True
    return True
