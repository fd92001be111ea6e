"""Plans to try: the best within a number of weights by a model of the error (``Surrogate``), and neighbours of a plan.

Plans are bool arrays [n] over the domains, True at INT16; ``weights`` [n] are their numbers of weights, ``limit`` is
the largest number of weights at INT16.

The model predicts how errors add up from one measurement of each domain alone. Quantising one domain to 8 bits moves
the outputs of the all-INT16 model by a vector. To first order, the vectors of several domains add, so the squared error
of a plan is a quadratic form: the Gram matrix of the vectors holds the interaction of every pair.

Measured on a face detector (41 domains, random plans of every size): rank correlation with the true error 0.999, median
misprediction 7 %; for the sum of the domains' own errors 0.99 and 11 %. The same form measured from the other end
(all-INT8 with one domain raised) predicts nothing (correlation -0.7), because the noise that a raised domain removes is
not the noise that comes after it. Only its errors are useful.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sgsdump.errors import MissingExtra
from sgsdump.files.process import STANDARD_OUTPUT, no_native_messages


@dataclass(frozen=True, eq=False)
class Surrogate:
    """The model that predicts errors of plans.

    grams   float64 [k, n + 1, n + 1], one for each sum of a ``CombinedError``: row 0 belongs to the deviation of the
            all-INT16 model from float, row 1 + i to the vector of domain i.
    base    float64 [k], added to the k forms.
    raised  float64 [n]: error of all-INT8 with only domain i at INT16, summed over k.
    low     error of all-INT8, summed over k.
    """

    grams: np.ndarray
    base: np.ndarray
    raised: np.ndarray
    low: float

    def predict(self, plans: np.ndarray) -> np.ndarray:
        """Return the errors [m] of plans, bool [m, n]; True for a domain at INT16."""
        at_8 = np.hstack([np.ones((len(plans), 1)), 1.0 - plans])
        return (((at_8 @ self.grams) * at_8).sum(axis=2) + self.base[:, None]).max(axis=0)

    def one_away(self, plan: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the errors of all plans that are one change away, equal to those of ``predict`` but faster.

        Errors [n] with one domain changed, and [r, f] with one of the r domains at INT16 swapped for one of the f
        others.
        """
        at_8, signs = np.concatenate([[1.0], 1.0 - plan]), np.where(plan, 1.0, -1.0)
        rows = self.grams @ at_8
        own = rows @ at_8 + self.base
        added = own[:, None] + 2 * signs * rows[:, 1:] + np.einsum("kii->ki", self.grams)[:, 1:]
        raised, free = np.flatnonzero(plan), np.flatnonzero(~plan)
        # Swapped domains have opposite signs, so their interaction is subtracted.
        both = self.grams[:, raised[:, None] + 1, free[None] + 1] * -2.0
        both += added[:, raised, None] - own[:, None, None]
        both += added[:, None, free]
        return added.max(axis=0), both.max(axis=0)

    def gains(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the error that raising each domain removes, [n]: near all-INT16, near all-INT8, and their mean.

        The mean is scaled so that all domains together remove the difference between the two ends.
        """
        gram = self.grams.sum(axis=0)
        above = np.diag(gram)[1:] + 2 * gram[0, 1:]
        below = self.low - self.raised
        shares = [gains / gains.sum() for gains in (above, below) if gains.sum() > 0]
        mean = (self.low - gram[0, 0]) * np.mean(shares, axis=0) if shares else (above + below) / 2
        return above, below, mean


def proposals(model: Surrogate, weights: np.ndarray, limit: float) -> list[np.ndarray]:
    """Return the plans to verify within a limit, the most promising first, each once."""
    sums = [best_sum(gains, weights, limit) for gains in model.gains()]
    downhill = [best_by_model(model, weights, limit, start) for start in sums]
    ranked = sorted([*downhill, *sums], key=lambda plan: float(model.predict(plan[None])[0]))
    return list({plan.tobytes(): plan for plan in ranked}.values())


def check_solver() -> None:
    """Raise MissingExtra if scipy, which solves the integer programs of the search, is not installed."""
    try:
        import scipy.optimize  # noqa: F401
    except ImportError as error:
        raise MissingExtra("tune needs scipy: pip install scipy") from error


def best_sum(gains: np.ndarray, weights: np.ndarray, limit: float) -> np.ndarray:
    """Return the plan with the largest sum of gains, by integer programming (HiGHS); no gain means INT8."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    useful = (gains > 0) & (weights <= limit)
    if not useful.any():
        return np.zeros(len(gains), bool)
    scaled, whole = np.where(useful, gains, 0.0) / gains[useful].max(), max(float(np.floor(limit)), 1.0)
    with no_native_messages(STANDARD_OUTPUT):  # some versions of HiGHS print a line of debugging
        solved = milp(
            -scaled,
            integrality=np.ones(len(gains)),
            bounds=Bounds(0, useful.astype(float)),
            constraints=LinearConstraint(weights[None] / whole, -np.inf, 1.0),
            options={"mip_rel_gap": 0.0},
        )
    chosen = solved.x > 0.5 if solved.x is not None else np.zeros(len(gains), bool)
    chosen &= useful
    while weights[chosen].sum() > limit:  # the solver exceeds its limit by up to 1e-6
        chosen[np.flatnonzero(chosen)[scaled[chosen].argmin()]] = False
    return chosen


def best_by_model(model: Surrogate, weights: np.ndarray, limit: float, start: np.ndarray) -> np.ndarray:
    """Descend from ``start`` by drops, additions and swaps on the model's predictions, without running the network."""
    plan, error = start.copy(), float(model.predict(start[None])[0])
    for _ in range(4 * len(start)):
        changes = changes_of(model, plan, weights, limit)
        if not len(changes.errors):
            break
        best = int(changes.errors.argmin())
        if not changes.errors[best] < error * (1 - 1e-12):
            break
        error, plan = float(changes.errors[best]), changes.plan(best)
    return plan


@dataclass(frozen=True, eq=False)
class Changes:
    """The k plans within a limit that are one drop, one addition or one swap away from ``start``.

    out, into  domains that each plan lowers and raises, [k]; -1 for none.
    errors     predicted errors, [k].
    wide       numbers of weights at INT16, [k].
    """

    start: np.ndarray
    out: np.ndarray
    into: np.ndarray
    errors: np.ndarray
    wide: np.ndarray

    def plan(self, index: int) -> np.ndarray:
        plan = self.start.copy()
        for domain, raised in ((self.out[index], False), (self.into[index], True)):
            if domain >= 0:
                plan[domain] = raised
        return plan

    def ranked(self, smaller_than: float = np.inf) -> Iterator[np.ndarray]:
        """Yield the plans with fewer weights at INT16 than this, by predicted error."""
        chosen = np.flatnonzero(self.wide < smaller_than)
        return (self.plan(index) for index in chosen[np.argsort(self.errors[chosen], kind="stable")])


def changes_of(model: Surrogate, plan: np.ndarray, weights: np.ndarray, limit: float) -> Changes:
    raised, free = np.flatnonzero(plan), np.flatnonzero(~plan)
    size = weights[plan].sum()
    one, two = model.one_away(plan)
    adds = free[weights[free] <= limit - size]
    more = weights[free][None] - weights[raised][:, None]
    swaps = more <= limit - size
    out, into = np.nonzero(swaps)
    none = np.full(len(raised), -1), np.full(len(adds), -1)
    return Changes(
        plan,
        np.concatenate([raised, none[1], raised[out]]),
        np.concatenate([none[0], adds, free[into]]),
        np.concatenate([one[raised], one[adds], two[swaps]]),
        size + np.concatenate([-weights[raised], weights[adds], more[swaps]]),
    )


def every_plan(weights: np.ndarray, limit: float) -> np.ndarray:
    """Return all plans within the limit, [k, n]."""
    count = len(weights)
    plans = (np.arange(1 << count)[:, None] >> np.arange(count)[::-1] & 1).astype(bool)
    return plans[plans @ weights <= limit]
