"""Which plans to try: the best within a number of weights by a model, and the neighbours of a plan.

Plans are bool arrays [n] over the domains, True at INT16; ``weights`` [n] are their numbers of weights, ``limit`` how
many weights may be at INT16 altogether.
"""

from __future__ import annotations

import numpy as np

from sgsdump.errors import MissingExtra
from sgsdump.plan_model import PlanModel


def best_sum(gains: np.ndarray, weights: np.ndarray, limit: float) -> np.ndarray:
    """The plan of the largest sum of gains, exactly, by integer programming (HiGHS); domains without gain stay at 8.

    Raises MissingExtra when scipy is not installed.
    """
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp
    except ImportError as error:
        raise MissingExtra("tune needs scipy for its integer programs: pip install 'sgsdump[tune]'") from error
    useful = (gains > 0) & (weights <= limit)
    if not useful.any():
        return np.zeros(len(gains), bool)
    scaled = np.where(useful, gains, 0.0) / gains[useful].max()
    solved = milp(
        -scaled,
        integrality=np.ones(len(gains)),
        bounds=Bounds(0, useful.astype(float)),
        constraints=LinearConstraint(weights[None].astype(float), -np.inf, limit),
        options={"mip_rel_gap": 0.0},
    )
    chosen = solved.x > 0.5 if solved.x is not None else np.zeros(len(gains), bool)
    return chosen & useful


def best_by_model(model: PlanModel, weights: np.ndarray, limit: float, start: np.ndarray) -> np.ndarray:
    """Downhill from ``start`` by drops, additions and swaps, as the model predicts; no run of the network."""
    plan, error = start, float(model.predict(start[None])[0])
    for _ in range(4 * len(start)):
        near = neighbours(plan, weights, limit)
        if not len(near):
            break
        predicted = model.predict(near)
        best = int(predicted.argmin())
        if not predicted[best] < error * (1 - 1e-12):
            break
        plan, error = near[best], float(predicted[best])
    return plan


def neighbours(plan: np.ndarray, weights: np.ndarray, limit: float) -> np.ndarray:
    """All plans [k, n] within the limit that are one drop, one addition or one swap away."""
    raised, free = np.flatnonzero(plan), np.flatnonzero(~plan)
    room = limit - weights[plan].sum()
    steps = [(out, None) for out in raised] + [(None, into) for into in free if weights[into] <= room]
    steps += [(out, into) for out in raised for into in free if weights[into] - weights[out] <= room]
    found = np.tile(plan, (len(steps), 1))
    for row, (out, into) in zip(found, steps):
        if out is not None:
            row[out] = False
        if into is not None:
            row[into] = True
    return found


def proposals(model: PlanModel, weights: np.ndarray, limit: float) -> list[np.ndarray]:
    """Plans worth verifying within a limit, the most promising first, each once."""
    sums = [best_sum(gains, weights, limit) for gains in model.gains()]
    downhill = [best_by_model(model, weights, limit, start) for start in sums]
    ranked = sorted([*downhill, *sums], key=lambda plan: float(model.predict(plan[None])[0]))
    return list({plan.tobytes(): plan for plan in ranked}.values())


def every_plan(weights: np.ndarray, limit: float) -> np.ndarray:
    """All plans [k, n] within the limit, of at most 2 ** n."""
    count = len(weights)
    plans = (np.arange(1 << count)[:, None] >> np.arange(count)[::-1] & 1).astype(bool)
    return plans[plans @ weights <= limit]
