"""Which plans to try: the best within a number of weights by a model of the error, and the neighbours of a plan.

Plans are bool arrays [n] over the domains, True at INT16; ``weights`` [n] are their numbers of weights, ``limit`` how
many weights may be at INT16 altogether.

The model knows how errors add up, from one measurement of each domain alone. Quantising one domain to 8 bits moves the
outputs of the all-INT16 model by a vector. To first order the vectors of several domains add, so the squared error of a
plan is a quadratic form: the Gram matrix of the vectors holds every pair's interaction without running the network.
Measured on a face detector (41 domains, random plans of every size): rank correlation with the true error 0.999, median
misprediction 7 %; the sum of the domains' own errors 0.99 and 11 %. (The same form measured from the other end,
all-INT8 with one domain raised, predicts nothing, -0.7: the noise that a raised domain takes away is not the noise that
comes after it. Its errors alone are of use.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sgsdump.errors import MissingExtra
from sgsdump.files.process import STANDARD_OUTPUT, no_native_messages
from sgsdump.quantisation.trials.plan_trial import Plan


@dataclass(frozen=True)
class Sizes:
    """Numbers of weights: of each domain, and of the convolutions that stay at 8 bits in every plan."""

    domains: tuple[str, ...]
    weights: np.ndarray
    fixed: int

    @property
    def total(self) -> int:
        return int(self.weights.sum()) + self.fixed

    def limit(self, rate: float) -> float:
        """How many weights may be at INT16 for a rate (bytes over the bytes of all at 16 bits)."""
        return (2 * rate - 1) * self.total + 1e-6

    def wide(self, plan: Plan) -> int:
        """Weights at INT16."""
        return int(self.weights[self.mask(plan)].sum())

    def rate(self, plan: Plan) -> float:
        return (self.total + self.wide(plan)) / (2 * self.total)

    def mask(self, plan: Plan) -> np.ndarray:
        return np.array([name in plan for name in self.domains], bool)

    def plan(self, mask: np.ndarray) -> Plan:
        return frozenset(name for name, raised in zip(self.domains, mask) if raised)


@dataclass(frozen=True, eq=False)
class Surrogate:
    """The knowledge of a search before it tries a plan.

    grams   float64 [k, n + 1, n + 1], one for each sum of a ``CombinedError``: row 0 is the all-INT16 model's deviation
            from float, row 1 + i domain i's vector; ``base`` float64 [k] is added.
    raised  float64 [n]: the error of all-INT8 with domain i alone at INT16, the k sums added up.
    low     the same of all-INT8.
    """

    grams: np.ndarray
    base: np.ndarray
    raised: np.ndarray
    low: float

    def predict(self, plans: np.ndarray) -> np.ndarray:
        """Errors [m] of plans bool [m, n], True where a domain is at INT16."""
        at_8 = np.hstack([np.ones((len(plans), 1)), 1.0 - plans])
        return (((at_8 @ self.grams) * at_8).sum(axis=2) + self.base[:, None]).max(axis=0)

    def one_away(self, plan: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Errors [n] of a plan with one domain changed, and [n, n] with two: what ``predict`` gives, from what the
        changes add to the plan's own form."""
        at_8, signs = np.concatenate([[1.0], 1.0 - plan]), np.where(plan, 1.0, -1.0)
        rows = self.grams @ at_8
        own = rows @ at_8 + self.base
        inner = self.grams[:, 1:, 1:]
        added = 2 * signs * rows[:, 1:] + np.einsum("kii->ki", inner)
        both = added[:, :, None] + added[:, None, :] + 2 * inner * (signs[:, None] * signs)
        return (own[:, None] + added).max(axis=0), (own[:, None, None] + both).max(axis=0)

    def gains(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The error that raising each domain removes, [n]: as measured near all-INT16, near all-INT8, and the mean
        of both, scaled so that all domains together lead from one end to the other."""
        gram = self.grams.sum(axis=0)
        above = np.diag(gram)[1:] + 2 * gram[0, 1:]
        below = self.low - self.raised
        shares = [gains / gains.sum() for gains in (above, below) if gains.sum() > 0]
        mean = (self.low - gram[0, 0]) * np.mean(shares, axis=0) if shares else (above + below) / 2
        return above, below, mean


def proposals(model: Surrogate, weights: np.ndarray, limit: float) -> list[np.ndarray]:
    """Plans worth verifying within a limit, the most promising first, each once."""
    sums = [best_sum(gains, weights, limit) for gains in model.gains()]
    downhill = [best_by_model(model, weights, limit, start) for start in sums]
    ranked = sorted([*downhill, *sums], key=lambda plan: float(model.predict(plan[None])[0]))
    return list({plan.tobytes(): plan for plan in ranked}.values())


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
    plan, error = start.copy(), float(model.predict(start[None])[0])
    for _ in range(4 * len(start)):
        drops, adds, (out, into) = _changes(plan, weights, limit)
        one, two = model.one_away(plan)
        predicted = np.concatenate([one[drops], one[adds], two[out, into]])
        if not len(predicted):
            break
        best = int(predicted.argmin())
        if not predicted[best] < error * (1 - 1e-12):
            break
        error, swap = float(predicted[best]), best - len(drops) - len(adds)
        changed = [out[swap], into[swap]] if swap >= 0 else [np.concatenate([drops, adds])[best]]
        plan[changed] = ~plan[changed]
    return plan


def _changes(
    plan: np.ndarray, weights: np.ndarray, limit: float
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """The domains that may be dropped, added, and swapped one for another within the limit."""
    raised, free = np.flatnonzero(plan), np.flatnonzero(~plan)
    room = limit - weights[plan].sum()
    out, into = np.nonzero(weights[free][None] - weights[raised][:, None] <= room)
    return raised, free[weights[free] <= room], (raised[out], free[into])


def neighbours(plan: np.ndarray, weights: np.ndarray, limit: float) -> np.ndarray:
    """All plans [k, n] within the limit that are one drop, one addition or one swap away."""
    dropped, added, (out, into) = _changes(plan, weights, limit)
    plans = np.tile(plan, (len(dropped) + len(added) + len(out), 1))
    rows = np.arange(len(plans))
    drops, adds, swaps = np.split(rows, [len(dropped), len(dropped) + len(added)])
    plans[drops, dropped] = False
    plans[adds, added] = True
    plans[swaps, out] = False
    plans[swaps, into] = True
    return plans


def every_plan(weights: np.ndarray, limit: float) -> np.ndarray:
    """All plans [k, n] within the limit, of at most 2 ** n."""
    count = len(weights)
    plans = (np.arange(1 << count)[:, None] >> np.arange(count)[::-1] & 1).astype(bool)
    return plans[plans @ weights <= limit]
