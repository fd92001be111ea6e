"""The verdict on a comparison as data: the outcome, the deciding number, the cause, the recommendation, completeness.

Reports render the verdict in words (``reports/three_lines.py``), and the exit status is derived from it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from sgsdump.comparison.account import Account
from sgsdump.comparison.agreement import Agreement
from sgsdump.comparison.alignment import QUANTISED_VALUES
from sgsdump.comparison.evidence import Evidence
from sgsdump.comparison.finding import CAUSES, Finding
from sgsdump.comparison.metrics import METRICS
from sgsdump.comparison.remedy import Action
from sgsdump.comparison.row import Row, differs, is_rounding, place_by_error
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds

# ``not comparable``: no layer could be compared. Such layers count neither as equal nor as different.
State = Literal["equal", "within rounding", "differs", "not comparable"]
Outcome = Literal["PASS", "FAIL", "INCOMPLETE", "EQUAL", "WITHIN ROUNDING", "DIFFERS"]
# Values of ``Deciding.metric`` that are not metrics.
OTHER_TENSOR, NOT_FINITE, RESOLUTION = "another tensor", "not finite", "resolution"
RELATIVE = "relative error"
TUNE = "sgsdump tune -m float.onnx -i images/ --input-config input_config.ini -o tuned"
# Findings that explain a verdict without naming a fault.
_EXPLAINING = ("spread", "part", "rounding", "magnified")


@dataclass(frozen=True)
class Deciding:
    """The number that decided the verdict.

    layer      name of the tensor.
    metric     RMSE, COS …; RELATIVE for integers and statistics; or OTHER_TENSOR, NOT_FINITE or RESOLUTION.
    limit      limit of the metric; None without limits.
    is_output  whether the tensor is an output of the model.
    """

    layer: str
    metric: str
    value: float
    limit: float | None = None
    is_output: bool = False


@dataclass(frozen=True)
class Recommendation:
    """The recommended next action.

    action    kind of change.
    command   command to run or lines to write; "" for none.
    layers    names of the tensors that change, if known.
    expected  expected errors on new images: ``error`` and ``error_after``.
    measured  measured figures: ``error``, ``error_after``, ``rate`` and ``rate_after`` (size of the weights divided by
              their INT16 size), and ``images`` if fewer images were used than for the verdict.
    within    whether all outputs are within the limits with the change; None if unknown.
    """

    action: Action
    command: str = ""
    layers: tuple[str, ...] = ()
    expected: Mapping[str, float] = field(default_factory=dict, hash=False)
    measured: Mapping[str, float] = field(default_factory=dict, hash=False)
    within: bool | None = None


@dataclass(frozen=True)
class Verdict:
    """The verdict on a comparison.

    state           state of the compared layers.
    passes          whether all compared layers are within the limits and nothing is missing; None without limits.
    deciding        the tensor and the number that decided; None if nothing differs.
    past            number of layers that exceed the limits; without limits, number of layers that differ.
    not_finite      number of layers with NaN or Inf, including layers whose two sides are equal.
    cause           first finding that names a fault; its ``evidence`` says how the fault was measured.
    explanation     finding that explains the error if no single fault is known.
    recommendation  next action; None if no action is known.
    account         compared layers and layers that were not compared.
    environment     differences between the environments of the two runs.
    assumptions     assumptions made because information was missing.
    allows_missing  True if missing layers do not make the comparison fail.
    by_flow         whether the dataflow between layers is known.
    by_statistics   number of layers that were compared by statistics only.
    images          number of images on which the deciding number and the cause were measured; 0 if unknown.
    noun            unit of the counts: layers, or outputs.
    agreement       number of answers that agree with the benchmark; None if sgsdump cannot interpret the outputs.
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
    explanation: Finding | None = None
    environment: tuple[Finding, ...] = ()
    by_flow: bool = False
    by_statistics: int = 0
    images: int = 0
    agreement: Agreement | None = None
    noun: str = "layer"

    @property
    def outcome(self) -> Outcome:
        """The first word of the verdict. INCOMPLETE: no limit is exceeded, but layers are missing or not comparable."""
        if self.state == "not comparable":
            return "INCOMPLETE"
        if self.passes is None:
            return _OUTCOMES[self.state]
        if self.passes:
            return "PASS"
        return "FAIL" if self.past else "INCOMPLETE"

    def exit_status(self, fails_on_cause: bool = False) -> int:
        """Return 2 if a dump is damaged, 1 if the comparison fails, else 0.

        FAIL and INCOMPLETE return 1. If causes count, a named cause or a missing or incomparable layer also returns 1.
        """
        if self.account.damaged:
            return 2
        has_cause = self.cause is not None or self.account.lacks(self.allows_missing)
        return int(self.outcome in ("FAIL", "INCOMPLETE") or (fails_on_cause and has_cause))


_OUTCOMES: Mapping[State, Outcome] = {
    "equal": "EQUAL",
    "within rounding": "WITHIN ROUNDING",
    "differs": "DIFFERS",
    "not comparable": "INCOMPLETE",
}


def verdict_of(
    evidence: Evidence, findings: Sequence[Finding], has_limits: bool = False, allow_missing: bool = False
) -> Verdict:
    """Return the verdict on two dumps.

    Parameters
    ----------
    evidence
        Evidence of the comparison, with the limits.
    findings
        Findings of the rules.
    has_limits
        Whether the user gave the limits. Without limits, nothing passes or fails.
    allow_missing
        Whether the sample may lack layers.
    """
    rows, account, state = evidence.rows, evidence.account, state_of(evidence)
    verdict = Verdict(
        state,
        account,
        not_finite=sum(not (row.finite or row.equal) for row in rows),
        cause=next((finding for finding in findings if _is_fault(finding)), None),
        recommendation=_recommended(evidence, findings),
        allows_missing=allow_missing,
        explanation=next((finding for finding in findings if finding.kind in _EXPLAINING), None),
        environment=evidence.environment,
        by_flow=evidence.by_flow,
        by_statistics=sum(row.is_by_statistics for row in rows),
    )
    outputs = {row.name for row in rows if row.name in evidence.outputs and row.io == "out"}
    if not has_limits:
        if state == "equal" and verdict.cause is not None and "alike" in verdict.cause.facts:
            nothing = Recommendation("nothing" if account.is_complete else "dump what is missing")
            verdict = replace(verdict, cause=None, recommendation=nothing)
        cause, action = verdict.cause, verdict.recommendation and verdict.recommendation.action
        if cause is not None and cause.layer and action == "nothing":
            verdict = replace(verdict, recommendation=Recommendation("compare the operator", layers=(cause.layer,)))
        differing = list(_differing(evidence, state))
        worst = _worst([row for row in differing if row.name in outputs] or differing)
        return replace(verdict, deciding=_deciding(worst, Thresholds(), outputs), past=len(differing))
    past = [row for row in rows if not row.passes(evidence.limits)]
    worst = _worst([row for row in past or rows if row.name in outputs] or past or rows)
    return replace(
        verdict,
        passes=bool(rows) and not past and not account.lacks(allow_missing),
        deciding=None if worst is None else _deciding(worst, evidence.limits.of_layer(*worst.names), outputs),
        past=len(past),
    )


def judged_verdict(evidence: Evidence, findings: Sequence[Finding], allow_missing: bool = False) -> Verdict:
    """Return the verdict on two dumps that were judged by a golden run.

    The state is WITHIN ROUNDING if each operator, recomputed from its recorded inputs, gives its recorded output.
    """
    layers, account = evidence.judged, evidence.account
    failing = [layer for layer in layers if not layer.passes]
    differing = [layer for layer in layers if not layer.is_equal]
    state: State = "differs" if differing else "equal"
    if differing and evidence.recomputed == () and all(layer.is_written for layer in layers):
        state = "within rounding"
    worst = max(failing or differing, key=lambda layer: layer.error, default=None)
    cause = next((finding for finding in findings if _is_fault(finding)), None)
    passes = bool(layers) and not failing and not account.lacks(allow_missing)
    return Verdict(
        state if layers else "not comparable",
        account,
        passes,
        None if worst is None else Deciding(worst.name, *worst.deciding, worst.name in evidence.outputs),
        len(failing),
        sum(not layer.is_finite for layer in layers),
        cause,
        _recommended_of_golden(evidence, passes, cause),
        allows_missing=allow_missing,
        by_flow=evidence.by_flow,
    )


def _recommended_of_golden(evidence: Evidence, passes: bool, cause: Finding | None) -> Recommendation | None:
    if passes:
        return Recommendation("nothing")
    if cause is not None:
        return Recommendation("compare the operator", layers=(cause.layer,))
    return Recommendation("dump what is missing") if evidence.account.missing else None


def state_of(evidence: Evidence) -> State:
    """Return the state of the compared layers.

    NaN and Inf in the same places count as equal. If a recorded argument, weight or operator differs, the state is
    DIFFERS, however small the effect.
    """
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
    """Yield the rows that differ by more than rounding; if there are none, all rows that differ."""
    differing = [row for row in evidence.rows if differs(row) or row.misnamed]
    beyond = [row for row in differing if _is_beyond(row)] if state == "differs" else []
    yield from beyond or differing


def _is_fault(finding: Finding) -> bool:
    return finding.kind in CAUSES or "likeness" in finding.figures


def _worst(rows: Iterable[Row]) -> Row | None:
    return min(rows, key=place_by_error, default=None)


def _deciding(row: Row | None, limits: Thresholds, outputs: Container[str]) -> Deciding | None:
    """Return the figure that exceeds its limit, else the first figure with a limit, else RMSE."""
    if row is None:
        return None
    decided = partial(Deciding, row.name, is_output=row.name in outputs)
    if row.misnamed:
        return decided(OTHER_TENSOR, row.error)
    if not row.finite and not row.equal:
        return decided(NOT_FINITE, row.error)
    if row.is_resolution and limits.max_channel_rmse is None:
        return decided(RESOLUTION, row.error)
    limited = list(_limited(row, limits))
    first = next((one for one in limited if one[3]), next(iter(limited), None))
    if first is not None:
        return decided(*first[:3])
    return decided(RELATIVE if row.statistics or row.indices else "RMSE", row.error)


def _limited(row: Row, limits: Thresholds) -> Iterator[tuple[str, float, float, bool]]:
    """Yield each figure that has a limit: its name, its value, the limit, and whether it exceeds the limit."""
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
    """Return the next action that a comparison can recommend without running the model."""
    if not evidence.rows:
        return Recommendation("dump what is missing") if evidence.account.missing else None
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
        if evidence.account.not_comparable:
            return Recommendation("make layers comparable")
        return Recommendation("nothing" if evidence.account.is_complete else "dump what is missing")
    if any(row.paired == QUANTISED_VALUES for row in evidence.rows):
        command = "sgsdump diagnose -m float.onnx -i inputs --fixed quantised.onnx"
        return Recommendation("measure quantised tensors", command)
    layers = _layers(findings, "cause") or _layers(findings, "not finite")
    if not any(row.step or row.integers for row in evidence.rows):
        are_of_program = any(row.module for row in evidence.rows)
        return Recommendation("compare the operator", "" if are_of_program else TUNE, layers[:1])
    return Recommendation("find convolutions", TUNE, layers)


def _layers(findings: Iterable[Finding], kind: str) -> tuple[str, ...]:
    return tuple(finding.layer for finding in findings if finding.kind == kind)


def named_elsewhere(recorded: Iterable[Finding], layer: str) -> Finding | None:
    """Return the first cause among the recorded operators; None if the cause only says that ``layer`` differs first."""
    first = next((finding for finding in recorded if finding.kind in ("argument", "cause")), None)
    if first is None or (
        first.kind == "cause" and first.layer == layer and not first.facts.keys() & {"how", "only_in"}
    ):
        return None
    return first


def blamed(recorded: Iterable[Finding]) -> Finding | None:
    """Return the fault that decides the state even if its error is small, or None.

    Such a fault is a differing argument or weight, or an operator outside its rounding bound.
    """
    first = next((finding for finding in recorded if finding.kind in ("argument", "cause")), None)
    return first if first is not None and (first.kind == "argument" or "bound" in first.figures) else None
