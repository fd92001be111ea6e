"""Account of a comparison: number of compared layers, and everything that was not compared, with the reason.

The number of layers ("x of y"), the exit status, the JUnit outcomes and all lists of missing layers are derived from
the account. A layer counts once. Layers that the other side cannot have, layers inside a fused operator and layers that
the user excluded are not missing. Memory that was never written cannot be compared and is not missing either.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

# Why it was not compared. ``failed``: a pair that cannot be measured, or a file that cannot be read.
Status = Literal[
    "failed", "missing", "only in benchmark", "only in sample", "without counterpart", "excluded", "unwritten"
]
# What was not compared. ``share`` reports that less than half of the benchmark's layers were compared.
Kind = Literal["output", "layer", "input", "run", "file", "share"]


@dataclass(frozen=True)
class NotCompared:
    """Layer, run or file that was not compared.

    side         dump that contains it.
    damaged      it exists but cannot be read.
    fused        it is inside an operator that the sample fused.
    compiled     it is inside a compiled graph of one side: neither equal nor different, and not missing.
    sample_name  the sample's name for it, for a pair.
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
    """Compared layers, and everything that was not compared.

    compared  number of compared layers, out of ``of`` layers of the benchmark.
    """

    compared: int
    of: int
    left_out: tuple[NotCompared, ...] = ()

    def named(self, status: Status, *kinds: Kind) -> tuple[str, ...]:
        """Return the names with this status, limited to these kinds if any are given."""
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
        """Files and tensors that exist but cannot be read, one line each."""
        of_files = (one.reason for one in self.left_out if one.damaged and one.kind == "file")
        of_pairs = (f"{one.name}: {one.reason}" for one in self.left_out if one.damaged and one.kind != "file")
        return tuple(dict.fromkeys((*of_files, *of_pairs)))

    @property
    def is_less_than_half(self) -> bool:
        """True if less than half of the benchmark's layers were compared."""
        return any(one.kind == "share" for one in self.left_out)

    @property
    def is_complete(self) -> bool:
        """True if no output, layer or run is missing, nothing is damaged, and at least half was compared."""
        return not (self.missing or self.damaged or self.is_less_than_half)

    def lacks(self, allow_missing: bool) -> bool:
        """Return whether the comparison fails if limits are set.

        It fails if a pair could not be measured, or if something is missing and ``allow_missing`` is False.
        """
        return bool(self.not_comparable) or not (allow_missing or self.is_complete)


def less_than_half(compared: int, of: int) -> Iterable[NotCompared]:
    """Yield an entry if less than half of the benchmark's layers were compared."""
    if 2 * compared < of:
        reason = f"only {compared} of the benchmark's {of} layers could be compared"
        yield NotCompared("the comparison", "missing", reason, "share")


@dataclass(frozen=True)
class Completeness:
    """Layers and runs that the sample lacks; names are the benchmark's.

    by_flow          whether the dataflow between layers is known.
    outputs          outputs of the model, if known.
    missing_outputs  outputs that the sample lacks.
    missing          other layers that the sample lacks; ``fused`` are those inside its fused operators.
    runs             runs, steps and ranks that the sample lacks.
    of               number of comparable layers in the benchmark; a layer of several runs counts once.
    """

    by_flow: bool = False
    outputs: tuple[str, ...] = ()
    missing_outputs: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    fused: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    of: int = 0


UNKNOWN = Completeness()
