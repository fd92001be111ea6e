"""What a search gives: the plan for each rate, the smallest that is good enough, and whether it looked everywhere."""

from __future__ import annotations

from dataclasses import dataclass

from sgsdump.quantisation.trials.plan_walk import Plan


@dataclass(frozen=True)
class Proposed:
    """A plan for a rate: what the model predicted of it; its score is in the pool."""

    rate: float
    plan: Plan
    predicted: float


@dataclass(frozen=True)
class SearchResult:
    """``plans`` by rising rate, ``smallest`` goes ENOUGH of the way (or reaches the target) in the fewest bytes known;
    ``complete`` False when the time ran out before the search ended, ``unsearched`` what it did not look at then."""

    plans: tuple[Proposed, ...]
    smallest: Proposed
    ends: tuple[Proposed, Proposed]
    exhaustive: bool
    complete: bool
    unsearched: tuple[str, ...] = ()
