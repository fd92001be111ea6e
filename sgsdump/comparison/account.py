"""One account of a comparison: what was compared, and all that was not, each with its reason.

The number of layers ("x of y"), the exit status, JUnit's outcomes and every list of what is missing are made of it. A
layer counts once. What the other side cannot have, what a fused operator holds and what the user left out is not
missing; memory to which nothing had been written yet cannot be compared, and is not missing either.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

# Of what was not compared. ``failed``: a pair that exists but cannot be measured, a file that cannot be read.
Status = Literal[
    "failed", "missing", "only in benchmark", "only in sample", "without counterpart", "excluded", "unwritten"
]
# What it is. ``share``: that less than half of the benchmark's layers were compared.
Kind = Literal["output", "layer", "input", "run", "file", "share"]


@dataclass(frozen=True)
class NotCompared:
    """A layer, a run or a file that was not compared.

    side         the dump that has it.
    damaged      it is there but cannot be read.
    fused        it is inside an operator that the sample fused.
    compiled     it is inside a compiled graph of one side: neither equal nor different, and not missing.
    sample_name  of a pair, what the sample calls it.
    """

    name: str
    status: Status
    reason: str
    kind: Kind = "layer"
    side: str = "benchmark"
    op_type: str = ""
    op_index: int | None = None
    sample_name: str = ""
    damaged: bool = False
    fused: bool = False
    compiled: bool = False


@dataclass(frozen=True)
class Account:
    """What was compared of how much, and what was not.

    compared  the number of compared layers; ``of``: of how many of the benchmark.
    """

    compared: int
    of: int
    left_out: tuple[NotCompared, ...] = ()

    def named(self, status: Status, *kinds: Kind) -> tuple[str, ...]:
        """Return the names of this status, and of these kinds where some are given."""
        return tuple(one.name for one in self.left_out if one.status == status and (not kinds or one.kind in kinds))

    @cached_property
    def missing(self) -> tuple[NotCompared, ...]:
        """Outputs, other layers and runs that the sample lacks."""
        return tuple(one for one in self.left_out if one.status == "missing" and one.kind != "share")

    @cached_property
    def not_comparable(self) -> tuple[NotCompared, ...]:
        """Pairs that exist but cannot be measured."""
        return tuple(one for one in self.left_out if one.status == "failed" and one.kind != "file")

    @cached_property
    def damaged(self) -> tuple[str, ...]:
        """What is there but cannot be read, a line each."""
        of_files = (one.reason for one in self.left_out if one.damaged and one.kind == "file")
        of_pairs = (f"{one.name}: {one.reason}" for one in self.left_out if one.damaged and one.kind != "file")
        return tuple(dict.fromkeys((*of_files, *of_pairs)))

    @property
    def is_less_than_half(self) -> bool:
        """Whether less than half of the benchmark's layers were compared."""
        return any(one.kind == "share" for one in self.left_out)

    @property
    def is_complete(self) -> bool:
        """Whether no output, other layer or run is missing, nothing is damaged, and at least half was compared."""
        return not (self.missing or self.damaged or self.is_less_than_half)

    def lacks(self, allow_missing: bool) -> bool:
        """Return whether it fails where limits are given: a pair could not be measured, or something is missing that
        the user does not allow to be."""
        return bool(self.not_comparable) or not (allow_missing or self.is_complete)


def less_than_half(compared: int, of: int) -> Iterable[NotCompared]:
    """Give what says that less than half of the benchmark's layers were compared, where that is so."""
    if 2 * compared < of:
        reason = f"only {compared} of the benchmark's {of} layers could be compared"
        yield NotCompared("the comparison", "missing", reason, "share")


@dataclass(frozen=True)
class Completeness:
    """Names are the benchmark's.

    by_flow          it is known which layers feed which.
    outputs          of the network, where that is known.
    missing_outputs  those that the sample lacks.
    missing          other layers that it lacks; ``fused`` are those inside its fused operators.
    runs             runs, steps and ranks that the sample lacks.
    of               how many layers the benchmark has that could have been compared, one of several runs once.
    """

    by_flow: bool = False
    outputs: tuple[str, ...] = ()
    missing_outputs: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    fused: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    of: int = 0


UNKNOWN = Completeness()
