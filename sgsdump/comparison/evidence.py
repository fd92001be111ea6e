"""The evidence for the rules of conclusion (``rules.py``): one record for every kind of comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sgsdump.comparison.account import Account
from sgsdump.comparison.finding import Finding
from sgsdump.comparison.row import Failed, Row
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds


@dataclass(frozen=True)
class JudgedLayer:
    """A layer that was judged against an accepted run, by a golden one.

    error     of the layer itself; infinite with a NaN.
    figures   what it was judged by, by name; ``deciding``: the name, the value and the limit of the one that decides.
    is_equal  to the accepted run; ``is_written``: the accepted run is not all zeros where the layer is something.
    order     its operator's number in the network; ``sources`` are the layers that feed it.
    """

    name: str
    passes: bool
    error: float
    figures: Mapping[str, float]
    deciding: tuple[str, float, float | None]
    is_equal: bool = False
    is_written: bool = True
    is_finite: bool = True
    op_type: str = ""
    order: int = 0
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Evidence:
    """All evidence of a comparison.

    account      what was compared, and what was not.
    rows         the compared layers, in the benchmark's order; ``failed`` are the pairs that could not be measured.
    outputs      the names of the network's outputs, where these are known.
    by_flow      it is known which layers feed which (``Row.sources``).
    environment  in what the two runs differ beside their tensors.
    recorded     what the recordings of two programs tell: arguments and weights that differ, the operator that differs
                 first or is outside its bound, in the order in which they ran (``conclude.py``).
    limits       what the layers are held against.
    measured     what runs of changed models show: each output, which layers cause the error, what a change is worth.
    judged       of a comparison with a golden run the layers; ``recomputed`` are operators that, computed again from
                 their recorded inputs, do not give what was recorded. None where they were not computed again.
    """

    account: Account
    rows: Sequence[Row] = ()
    failed: Sequence[Failed] = ()
    outputs: tuple[str, ...] = ()
    by_flow: bool = False
    environment: tuple[Finding, ...] = ()
    recorded: tuple[Finding, ...] = ()
    limits: Thresholds = DOCUMENTED
    measured: tuple[Finding, ...] = ()
    judged: Sequence[JudgedLayer] = ()
    recomputed: tuple[Finding, ...] | None = None

    @cached_property
    def alike(self) -> tuple[Row, ...]:
        """Rows of one and the same tensor on both sides."""
        return tuple(row for row in self.rows if not row.misnamed)

    @property
    def is_of_other_inputs(self) -> bool:
        """Whether the two runs are of different inputs, as far as the dumps tell."""
        return any("likeness" in finding.figures for finding in self.environment)

    @property
    def is_rounding(self) -> bool:
        """Whether the recordings show that all that differs is rounding to a narrow type."""
        return any(finding.kind == "rounding" for finding in self.recorded)

    @cached_property
    def concluded(self) -> dict[str, tuple[Finding, ...]]:
        """A cache of findings that several rules need, by name."""
        return {}

    def of_kind(self, kind: str) -> tuple[Finding, ...]:
        """Return the recorded findings of a kind, in their order."""
        return tuple(finding for finding in self.recorded if finding.kind == kind)

    def measured_of(self, *kinds: str) -> tuple[Finding, ...]:
        """Return the findings of these kinds that runs of changed models show, in their order."""
        return tuple(finding for finding in self.measured if finding.kind in kinds)
