"""Plans of a search run in the hardware's integers, which choose. Apart: ``search`` knows no fixed models.

The search tries plans by fake quantisation, quick and near, and so ranks them. Of the plans that no smaller one beats
there, halving finds the smallest that goes ENOUGH of the way from INT8's error to INT16's, or reaches the target, in
integers; each rate gets the best of all that were run so. Where time is short the ends and the plan to take are run.

Just past that plan there may be a cliff: a few bytes more, and the error is a tenth. So of the plans that go as far or
further the one at the knee is taken, up to which HALVING of the bytes halve the error (Satopaa et al., "Finding a
Kneedle in a Haystack", 2011, name the point so; here the slope is stated, so no plan far away moves it). What is below
NEGLIGIBLE, or as good as with all at 16 bits, is good enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from threadpoolctl import threadpool_limits

from sgsdump.errors import ConfigError
from sgsdump.progress import SILENT, Progress
from sgsdump.quantisation.fixed_model import FixedModel, make_fixed
from sgsdump.quantisation.objective import Score, score, total
from sgsdump.quantisation.trials.integer_outputs import FixedOutputs
from sgsdump.quantisation.trials.plan_trial import words_of
from sgsdump.tuning.criteria import NEGLIGIBLE, CombinedError, Target, combined_error, lies_beyond, measured
from sgsdump.tuning.search import ENOUGH, Left, SearchResult, no_limit

if TYPE_CHECKING:
    from sgsdump.quantisation.trials.plan_trial import Plan, PlanTrial
    from sgsdump.tuning.criteria import Picture
    from sgsdump.tuning.plan_costs import Sizes
    from sgsdump.tuning.plan_scores import PlanScores


# So much more of the bytes at 16 bits has to halve the error; of an error below NEGLIGIBLE there is nothing to halve.
HALVING = 0.05
# The likeliest knees, as the search saw them, that are run in integers.
KNEES = 3
# Of plans to take in place of one that is not confirmed so many are run on them, it included.
CONFIRMED = 6


def fixed_of(trial: PlanTrial, tensors: tuple[str, ...]) -> FixedModel:
    """The fixed model with these words in ``tensor_arrays``, in the hardware's own integers."""
    config = replace(trial.config, tensor_arrays=tensors)
    return make_fixed(trial.model, trial.ranges, config, side=trial.side)


class IntegerScores:
    """Scores of plans in integers, on the pictures of ``pool`` or on these, measured on demand."""

    def __init__(
        self,
        pool: PlanScores,
        trial: PlanTrial,
        progress: Progress = SILENT,
        pictures: Sequence[Picture] | None = None,
    ):
        self.scores: dict[Plan, Score] = {}
        self._pool, self._trial, self._progress = pool, trial, progress
        self._pictures = pool.pictures if pictures is None else pictures

    @property
    def outputs(self) -> list[str]:
        return self._pool.outputs

    @property
    def domains(self) -> list[str]:
        return self._pool.domains

    @property
    def pictures(self) -> int:
        """How many pictures a plan is run on."""
        return len(self._pictures)

    def score(self, plan: Plan) -> Score:
        """The sums over all pictures of every tensor that ``Picture.floats`` has, and the user's metric."""
        if plan not in self.scores:
            self.scores[plan] = self._run(plan)
        return self.scores[plan]

    @cached_property
    def combined(self) -> CombinedError:
        """The error that counts, of the two ends in integers."""
        ends = (frozenset[str](), frozenset(self._pool.domains))
        return combined_error(self._pool.objective, *(self.score(plan) for plan in ends))

    def error(self, plan: Plan) -> float:
        """The ``combined`` error of a plan."""
        return self.combined.of(self.score(plan))

    def part(self, plan: Plan) -> float:
        """The error of a plan as a part of all-INT8's."""
        low = self.error(frozenset())
        return self.error(plan) / low if low > 0 else 0.0

    def off(self) -> dict[Plan, float]:
        """By plan that was run, its error in integers over the one that the search saw, less 1; both combined as the
        search combines them."""
        pool = self._pool
        pairs = {p: (pool.combined.of(s), pool.error(p)) for p, s in self.scores.items() if p in pool.scores}
        return {plan: exact / searched - 1 for plan, (exact, searched) in pairs.items() if searched > 0}

    def _run(self, plan: Plan) -> Score:
        pool, pictures = self._pool, self._pictures
        fixed = fixed_of(self._trial, words_of(self._trial, plan))
        graph = FixedOutputs(self._trial.model, fixed.proto, list(pictures[0].floats))
        scores = []
        with self._progress.bar("verify", "picture") as advance, threadpool_limits(limits=1, user_api="blas"):
            for number, picture in enumerate(pictures, 1):
                values = graph.run(picture.raw, picture.raw)
                metric = 0.0 if pool.metric is None else measured(pool.metric, pool.outputs, values, picture)
                scores.append(score(values, picture.floats, metric))
                advance(number, len(pictures))
        return total(scores)


def chosen(
    found: SearchResult,
    pool: PlanScores,
    sizes: Sizes,
    exact: IntegerScores,
    target: Target | None = None,
    left: Left = no_limit,
) -> SearchResult:
    """The result with what the integers choose, ``left`` the seconds for that. Raises ConfigError where no plan that
    was run reaches the target in them."""
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
        unrun = f"{missing} of the plans for {len(found.plans)} rates in the hardware's integers"
        found = replace(found, complete=False, unsearched=(*found.unsearched, unrun))
    good = [plan for plan in exact.scores if reaches(plan)]
    if not good:
        raise ConfigError(_unreached(found, pool, exact, aim))
    smallest = min(good, key=lambda plan: (sizes.wide(plan), exact.error(plan), sorted(plan)))
    if target is not None:
        kept = found.proposed(sizes.rate(smallest), smallest)
        return replace(found, plans=(kept,), smallest=kept)
    knee = _knee(smallest, pool, sizes, exact, left)
    plans = tuple(found.proposed(p.rate, _best_within(sizes.limit(p.rate), sizes, exact)) for p in found.plans)
    kept = found.proposed(sizes.rate(smallest), smallest)
    return replace(found, plans=plans, smallest=kept, knee=found.proposed(sizes.rate(knee), knee))


def confirmed(
    found: SearchResult,
    sizes: Sizes,
    exact: IntegerScores,
    held: IntegerScores,
    target: Target | None = None,
    left: Left = no_limit,
) -> SearchResult:
    """The result with a plan to take that is as good on the pictures ``held`` out as on those of the search: where the
    one taken is not, the smallest larger one that is, of those that were run."""
    taken = found.knee or found.smallest
    beyond: list[Plan] = []
    larger = [plan for plan in exact.scores if sizes.wide(plan) > sizes.wide(taken.plan)]
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
    return replace(found, beyond=tuple(beyond), confirmed=False)


def is_beyond(plan: Plan, exact: IntegerScores, held: IntegerScores, target: Target | None) -> bool:
    """Whether the error of a plan on the pictures held out lies beyond that on the search's, both as a part of INT8's,
    and beyond what INT16 gives there; or whether it misses the target there."""
    if target is not None and not target.reached(held.score(plan), held.outputs, held.error(plan)):
        return True
    return lies_beyond(held.part(plan), exact.part(plan), held.part(frozenset(held.domains)))


def _knee(smallest: Plan, pool: PlanScores, sizes: Sizes, exact: IntegerScores, left: Left) -> Plan:
    """Of the plans as large as ``smallest`` or larger the one at the knee."""
    raised = frozenset(pool.domains)

    def cost(plan: Plan, error: Callable[[Plan], float]) -> float:
        return sizes.rate(plan) / HALVING + math.log2(max(error(plan), error(raised), NEGLIGIBLE))

    larger = [plan for plan in pool.scores if sizes.wide(plan) > sizes.wide(smallest)]
    for plan in sorted(larger, key=lambda plan: (cost(plan, pool.error), sorted(plan)))[:KNEES]:
        if left() > 0:
            exact.score(plan)
    run = [plan for plan in exact.scores if plan == smallest or sizes.wide(plan) > sizes.wide(smallest)]
    return min(run, key=lambda plan: (cost(plan, exact.error), sizes.wide(plan), sorted(plan)))


def _front(pool: PlanScores, sizes: Sizes, aim: Target) -> list[Plan]:
    """The plans tried that no smaller one beats, by rising size."""
    front, best = [], math.inf
    for plan in sorted(pool.scores, key=lambda plan: (sizes.wide(plan), sorted(plan))):
        value = aim.of(pool.scores[plan], pool.outputs, pool.error(plan))
        value = -value if aim.at_least else value
        if value < best:
            front.append(plan)
            best = value
    return front


def _halve(front: Sequence[Plan], first: Plan, reaches: Callable[[Plan], bool], left: Left) -> None:
    """Run plans of the front until the smallest that reaches the aim stands beside one that does not."""
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
    rest = f", or give the search more time (not looked at: {'; '.join(found.unsearched)})" if found.unsearched else ""
    every = "all " if found.exhaustive else "the "
    return (
        f"--target {target}: none of {every}{len(pool.scores)} plans tried reaches it in the hardware's integers, in "
        f"which the {len(exact.scores)} most promising were run; the best gives {best:.6g}; set it {number}{rest}"
    )
