"""The verdict on a comparison as data: the state, what decided, the cause, what to do, and what was not compared.

Reports render it, the exit status is made of it, and nothing reads their sentences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sgsdump.comparison.account import Account
from sgsdump.comparison.alignment import QUANTISED_VALUES
from sgsdump.comparison.evidence import Evidence
from sgsdump.comparison.finding import CAUSES, Finding
from sgsdump.comparison.metrics import METRICS
from sgsdump.comparison.remedy import Action
from sgsdump.comparison.row import Row, differs, is_rounding, place_by_error
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds

# ``not comparable``: nothing could be compared. What could not be counts neither as equal nor as different.
State = Literal["equal", "within rounding", "differs", "not comparable"]
# What the deciding number is, where it is no metric.
OTHER_TENSOR, NOT_FINITE, RESOLUTION = "another tensor", "not finite", "resolution"
RELATIVE = "relative error"


@dataclass(frozen=True)
class Deciding:
    """The number that decided.

    metric  RMSE, COS …, RELATIVE for whole numbers and statistics, or OTHER_TENSOR, NOT_FINITE or RESOLUTION.
    limit   what it was held against; None without limits.
    """

    layer: str
    metric: str
    value: float
    limit: float | None = None


@dataclass(frozen=True)
class Recommendation:
    """The one thing to do next.

    action    what kind of change.
    command   what to run or to write for it, "" for nothing.
    layers    what it changes, where that is known.
    expected  the figures that it is expected to bring, by name; ``measured`` those that were measured.
    """

    action: Action
    command: str = ""
    layers: tuple[str, ...] = ()
    expected: Mapping[str, float] = field(default_factory=dict, hash=False)
    measured: Mapping[str, float] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Verdict:
    """What a comparison concludes.

    state           of the compared layers.
    passes          whether it is within the limits; None where none were given.
    deciding        the layer and the number that decided; None where nothing differs.
    past            how many layers are past the limits, or differ where none were given.
    not_finite      how many layers hold NaN or Inf, be they equal on both sides.
    cause           the first finding that names a fault; its ``evidence`` says how it was measured.
    recommendation  what to do; None where nothing was compared.
    account         what was compared, and what was not.
    assumptions     what was assumed for want of better knowledge.
    allows_missing  what the sample lacks does not fail.
    """

    state: State
    account: Account
    passes: bool | None = None
    deciding: Deciding | None = None
    past: int = 0
    not_finite: int = 0
    cause: Finding | None = None
    recommendation: Recommendation | None = None
    assumptions: tuple[str, ...] = ()
    allows_missing: bool = False

    def exit_status(self, fails_on_cause: bool = False) -> int:
        """Return 2 where a dump is damaged, 1 where it fails or, if that counts, names a cause; else 0."""
        if self.account.damaged:
            return 2
        return int(self.passes is False or (fails_on_cause and self.cause is not None))


def verdict_of(
    evidence: Evidence, findings: Sequence[Finding], has_limits: bool = False, allow_missing: bool = False
) -> Verdict:
    """Return the verdict on two dumps.

    Parameters
    ----------
    evidence
        Of the comparison, with the limits.
    findings
        What the rules concluded from it.
    has_limits
        Whether the user gave the limits; otherwise nothing passes or fails.
    allow_missing
        Whether what the sample lacks is allowed.
    """
    state = state_of(evidence)
    rows, account = evidence.rows, evidence.account
    cause = next((finding for finding in findings if _is_fault(finding)), None)
    recommendation = _recommended(evidence, findings)
    not_finite = sum(not (row.finite or row.equal) for row in rows)
    if not has_limits:
        differing = list(_differing(evidence, state))
        deciding = _deciding(_worst(differing), Thresholds())
        return Verdict(state, account, None, deciding, len(differing), not_finite, cause, recommendation)
    past = [row for row in rows if not row.passes(evidence.limits)]
    of_outputs = [row for row in past if row.name in evidence.outputs]
    worst = _worst(of_outputs or past or rows)
    passes = bool(rows) and not past and not account.lacks(allow_missing)
    deciding = _deciding(worst, evidence.limits.of_layer(*worst.names)) if worst is not None else None
    return Verdict(
        state, account, passes, deciding, len(past), not_finite, cause, recommendation, allows_missing=allow_missing
    )


def judged_verdict(evidence: Evidence, findings: Sequence[Finding], allow_missing: bool = False) -> Verdict:
    """Return the verdict on layers that a golden run judges. They are within rounding where each operator, computed
    again from its recorded inputs, gives what was recorded."""
    layers, account = evidence.judged, evidence.account
    failing = [layer for layer in layers if not layer.passes]
    differing = [layer for layer in layers if not layer.is_equal]
    state: State = "differs" if differing else "equal"
    if differing and evidence.recomputed == () and all(layer.is_written for layer in layers):
        state = "within rounding"
    worst = max(failing or differing, key=lambda layer: layer.error, default=None)
    return Verdict(
        state if layers else "not comparable",
        account,
        bool(layers) and not failing and not account.lacks(allow_missing),
        None if worst is None else Deciding(worst.name, *worst.deciding),
        len(failing),
        sum(not layer.is_finite for layer in layers),
        next((finding for finding in findings if _is_fault(finding)), None),
        allows_missing=allow_missing,
    )


def state_of(evidence: Evidence) -> State:
    """Return how the compared layers are. NaN and Inf in the same places are equal. An argument, a weight or an
    operator that the recordings name differs however small its effect; where they show that all is rounding, it is."""
    if not evidence.rows:
        return "not comparable"
    if evidence.of_kind("between rounds"):
        return "differs"
    differing = [row for row in evidence.rows if differs(row) or row.misnamed]
    if not differing:
        return "equal"
    if evidence.is_rounding:
        return "within rounding"
    named = any(finding.kind in CAUSES for finding in evidence.recorded)
    return "differs" if named or any(map(_is_beyond, differing)) else "within rounding"


def _is_beyond(row: Row) -> bool:
    return bool(row.misnamed) or not is_rounding(row)


def _differing(evidence: Evidence, state: State) -> Iterator[Row]:
    """The rows that make the state: those beyond rounding, where some are."""
    differing = [row for row in evidence.rows if differs(row) or row.misnamed]
    beyond = [row for row in differing if _is_beyond(row)] if state == "differs" else []
    yield from beyond or differing


def _is_fault(finding: Finding) -> bool:
    return finding.kind in CAUSES or "likeness" in finding.figures


def _worst(rows: Iterable[Row]) -> Row | None:
    return min(rows, key=place_by_error, default=None)


def _deciding(row: Row | None, limits: Thresholds) -> Deciding | None:
    """The figure that is past its limit, else the first that has one, else RMSE."""
    if row is None:
        return None
    if row.misnamed:
        return Deciding(row.name, OTHER_TENSOR, row.error)
    if not row.finite and not row.equal:
        return Deciding(row.name, NOT_FINITE, row.error)
    if row.is_resolution and limits.max_channel_rmse is None:
        return Deciding(row.name, RESOLUTION, row.error)
    limited = list(_limited(row, limits))
    first = next((one for one in limited if one[3]), next(iter(limited), None))
    if first is not None:
        return Deciding(row.name, *first[:3])
    return Deciding(row.name, RELATIVE if row.statistics or row.indices else "RMSE", row.error)


def _limited(row: Row, limits: Thresholds) -> Iterator[tuple[str, float, float, bool]]:
    """Each figure of a row that has a limit: its name, value, limit, and whether it is past."""
    if row.statistics or row.checksums or row.indices is not None:
        if limits:
            limit = (DOCUMENTED.max_rmse if limits.max_rmse is None else limits.max_rmse) or 0.0
            yield RELATIVE, row.error, limit, row.error > limit
        return
    if limits.max_rmse is not None:
        yield "RMSE", row.error, limits.max_rmse, not row.error <= limits.max_rmse
    if limits.min_cos is not None:
        yield "COS", row.cos, limits.min_cos, not row.cos >= limits.min_cos
    if limits.max_mse is not None:
        yield "MSE", row.mse, limits.max_mse, not row.mse <= limits.max_mse
    for name, limit in limits.further:
        higher = name in limits.own or METRICS[name].higher_is_better
        value = row.extra.get(name, float("nan"))
        yield name, value, limit, not (value >= limit if higher else value <= limit)
    if limits.max_channel_rmse is not None and row.channels is not None:
        value = row.channels.worst_rmse
        yield f"RMSE of channel {row.channels.worst}", value, limits.max_channel_rmse, value > limits.max_channel_rmse


def _recommended(evidence: Evidence, findings: Sequence[Finding]) -> Recommendation | None:
    """What to do by the comparison alone: look where the error rises, then let the model's own figures decide."""
    if not evidence.rows:
        return None
    if evidence.is_of_other_inputs:
        return Recommendation("use the same input")
    if evidence.of_kind("between rounds"):
        return Recommendation("make calls alike")
    fault = blamed(evidence.recorded)
    if fault is not None and fault.kind == "argument":
        return Recommendation("make calls alike", layers=(fault.layer,))
    if fault is not None:
        return Recommendation("change the operator", "sgsdump check TREE", (fault.layer,))
    is_past = any(not row.passes(evidence.limits) for row in evidence.rows)
    if not is_past and any(finding.kind == "channel" for finding in findings):
        return Recommendation("keep channels", layers=_layers(findings, "channel"))
    if not is_past:
        return Recommendation("nothing" if evidence.account.is_complete else "dump what is missing")
    if any(row.paired == QUANTISED_VALUES for row in evidence.rows):
        command = "sgsdump diagnose -m float.onnx -i inputs --fixed quantised.onnx"
        return Recommendation("measure quantised tensors", command)
    command = "sgsdump tune -m float.onnx -i pictures --input-config input_config.ini -o tuned"
    return Recommendation("raise convolutions", command, _layers(findings, "cause"))


def _layers(findings: Iterable[Finding], kind: str) -> tuple[str, ...]:
    return tuple(finding.layer for finding in findings if finding.kind == kind)


def named_elsewhere(recorded: Iterable[Finding], layer: str) -> Finding | None:
    """Return the first cause that the recordings name, if it says more than that ``layer`` differs first."""
    first = next((finding for finding in recorded if finding.kind in ("argument", "cause")), None)
    if first is None or (
        first.kind == "cause" and first.layer == layer and not first.facts.keys() & {"how", "only_in"}
    ):
        return None
    return first


def blamed(recorded: Iterable[Finding]) -> Finding | None:
    """Return what is at fault whatever the size of its error: an argument or weight that differs, an operator outside
    its bound. None where there is nothing of that kind."""
    first = next((finding for finding in recorded if finding.kind in ("argument", "cause")), None)
    return first if first is not None and (first.kind == "argument" or "bound" in first.figures) else None
