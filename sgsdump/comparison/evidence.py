"""Evidence for the rules (``rules.py``): one record for every kind of comparison."""

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
    """Layer that was judged by a golden run and an accepted run.

    error     error of the layer; infinite for NaN.
    figures   figures by name; ``deciding`` is the name, value and limit of the deciding figure.
    is_equal  the layer equals the accepted run; ``is_written``: the accepted run is not all zeros where the layer is
              not.
    order     number of the layer's operator in the network; ``sources`` are the layers that feed it.
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
    rows         compared layers in the benchmark's order; ``failed`` are the pairs that could not be measured.
    outputs      names of the network's outputs, if known.
    by_flow      it is known which layers feed which (``Row.sources``).
    environment  differences between the two runs other than tensors.
    recorded     findings from the recordings of two programs in execution order: different arguments and weights, the
                 first operator that differs or exceeds its bound (``conclude.py``).
    limits       thresholds for the layers.
    measured     findings from runs of changed models: errors of outputs, layers that cause the error, effects of
                 changes.
    judged       layers of a comparison with a golden run.
    recomputed   operators whose results differ when recomputed from their recorded inputs; None if none was recomputed.
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
        """Rows with the same tensor on both sides."""
        return tuple(row for row in self.rows if not row.misnamed)

    @property
    def is_of_other_inputs(self) -> bool:
        """True if the dumps show that the two runs had different inputs."""
        return any("likeness" in finding.figures for finding in self.environment)

    @property
    def is_rounding(self) -> bool:
        """True if the recordings show that all differences are rounding to a narrow type."""
        return any(finding.kind == "rounding" for finding in self.recorded)

    @cached_property
    def concluded(self) -> dict[str, tuple[Finding, ...]]:
        """Cache of findings that several rules need, by name."""
        return {}

    def of_kind(self, kind: str) -> tuple[Finding, ...]:
        """Return the recorded findings of a kind, in order."""
        return tuple(finding for finding in self.recorded if finding.kind == kind)

    def measured_of(self, *kinds: str) -> tuple[Finding, ...]:
        """Return the findings of these kinds from runs of changed models, in order."""
        return tuple(finding for finding in self.measured if finding.kind in kinds)
