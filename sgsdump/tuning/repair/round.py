"""One round of a repair: what was changed and why, and what it gave."""

from __future__ import annotations

from dataclasses import dataclass

from sgsdump.tuning.repair.dump_trial import DumpRun


@dataclass(frozen=True)
class Change:
    """A tensor raised to INT16 or lowered again, the convolutions that read its domain, and why."""

    tensor: str
    convolutions: tuple[str, ...]
    why: str


@dataclass(frozen=True, eq=False)
class Round:
    """One turn.

    tensor_arrays  all names in tensor_arrays in this round.
    wide           convolutions with INT16 inputs in this round, in execution order.
    error          mean RMSE of the judged outputs, over all pictures.
    kept           whether the next round builds on it; ``verdict`` says why.
    """

    number: int
    raised: tuple[Change, ...]
    lowered: tuple[Change, ...]
    tensor_arrays: tuple[str, ...]
    wide: tuple[str, ...]
    run: DumpRun
    error: float
    holds: bool
    kept: bool
    verdict: str
