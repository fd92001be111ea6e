"""Which plans to try: the best within a number of weights by a model, and the neighbours of a plan.

Plans are bool arrays [n] over the domains, True at INT16; ``weights`` [n] are their numbers of weights, ``limit`` how
many weights may be at INT16 altogether.
"""

from __future__ import annotations

import numpy as np

from sgsdump.errors import MissingExtra
from sgsdump.files.process import STANDARD_OUTPUT, no_native_messages
from sgsdump.tuning.scoring.surrogate import Surrogate


def check_solver() -> None:
    """Raises MissingExtra when scipy, whose integer programs the search needs, is not installed."""
    try:
        import scipy.optimize  # noqa: F401
    except ImportError as error:
        raise MissingExtra("tune needs scipy for its integer programs: pip install scipy") from error


def best_sum(gains: np.ndarray, weights: np.ndarray, limit: float) -> np.ndarray:
    """The plan of the largest sum of gains, exactly, by integer programming (HiGHS); domains without gain stay at 8."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    useful = (gains > 0) & (weights <= limit)
    if not useful.any():
        return np.zeros(len(gains), bool)
    scaled, whole = np.where(useful, gains, 0.0) / gains[useful].max(), max(float(np.floor(limit)), 1.0)
    with no_native_messages(STANDARD_OUTPUT):  # some versions of HiGHS leave a line of debugging there
        solved = milp(
            -scaled,
            integrality=np.ones(len(gains)),
            bounds=Bounds(0, useful.astype(float)),
            constraints=LinearConstraint(weights[None] / whole, -np.inf, 1.0),
            options={"mip_rel_gap": 0.0},
        )
    chosen = solved.x > 0.5 if solved.x is not None else np.zeros(len(gains), bool)
    chosen &= useful
    while weights[chosen].sum() > limit:  # the solver keeps to its limit within 1e-6 only
        chosen[np.flatnonzero(chosen)[scaled[chosen].argmin()]] = False
    return chosen


def best_by_model(model: Surrogate, weights: np.ndarray, limit: float, start: np.ndarray) -> np.ndarray:
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
    added = free[weights[free] <= room]
    out, into = np.nonzero(weights[free][None] - weights[raised][:, None] <= room)
    plans = np.tile(plan, (len(raised) + len(added) + len(out), 1))
    rows = np.arange(len(plans))
    drops, adds, swaps = np.split(rows, [len(raised), len(raised) + len(added)])
    plans[drops, raised] = False
    plans[adds, added] = True
    plans[swaps, raised[out]] = False
    plans[swaps, free[into]] = True
    return plans


def proposals(model: Surrogate, weights: np.ndarray, limit: float) -> list[np.ndarray]:
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
