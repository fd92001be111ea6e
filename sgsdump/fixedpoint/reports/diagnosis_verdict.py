"""The verdict of ``diagnose`` as data: the deciding output, the cause, and the recommended measured remedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sgsdump.comparison.finding import CAUSES, Finding
from sgsdump.comparison.metrics import cos
from sgsdump.comparison.remedy import Action, Remedy, recommended
from sgsdump.comparison.verdict import TUNE, Deciding, Recommendation, Verdict
from sgsdump.fixedpoint.curing import steps
from sgsdump.fixedpoint.quantisation.objective import output_error
from sgsdump.fixedpoint.quantisation.trials.integer_outputs import (
    LEAST_COS_ABOUT_MEAN,
    WORSE,
    OutputFigures,
    PlanOutputs,
)
from sgsdump.fixedpoint.reports.cause_sentences import conv_config
from sgsdump.fixedpoint.reports.root_causes import told_config
from sgsdump.fixedpoint.tuning.rules_of_thumb import config_names
from sgsdump.fixedpoint.tuning.worth import AS_IT_IS, PLAN

if TYPE_CHECKING:
    from sgsdump.comparison.comparison import Comparison
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.fixedpoint.curing.steps import Way
    from sgsdump.fixedpoint.reports.diagnosis import Diagnosis
    from sgsdump.fixedpoint.reports.quantised_diagnosis import QuantisedDiagnosis
    from sgsdump.fixedpoint.tuning.measured_advice import MeasuredAdvice, Promise


def verdict_of_diagnosis(diagnosis: Diagnosis, comparison: Comparison, assumptions: Sequence[str]) -> Verdict:
    """Return the verdict on a fixed model, decided on held-out images if only those exceed the limits."""
    outputs, unseen = diagnosis.outputs, diagnosis.unseen
    if diagnosis.good and not diagnosis.holds and unseen is not None:
        outputs = unseen.ran[AS_IT_IS]
    verdict = _of_outputs(comparison, outputs, diagnosis.findings, diagnosis.limits)
    if diagnosis.good and diagnosis.past.names:  # a layer decides, not an output
        verdict = replace(verdict, deciding=comparison.verdict(diagnosis.limits).deciding)
    return replace(
        verdict,
        passes=diagnosis.passes and not comparison.failed,
        recommendation=_recommendation(diagnosis),
        assumptions=tuple(assumptions),
    )


def verdict_of_quantised(diagnosis: QuantisedDiagnosis, comparison: Comparison) -> Verdict:
    """Return the verdict on a model that another tool quantised."""
    figures = PlanOutputs(diagnosis.networks.outputs, {})
    found = _of_outputs(comparison, figures, diagnosis.findings, diagnosis.limits)
    recommendation, exclusion = Recommendation("nothing"), diagnosis.measured.exclusion
    if not diagnosis.good_as_defined and exclusion is not None:
        measured = {"error": diagnosis.measured.all_on, "error_after": exclusion.error}
        measured["images"] = diagnosis.measured.inputs
        action: Action = "keep operators in float" if exclusion.names else "name the nodes"
        recommendation = Recommendation(action, "", exclusion.names, {}, measured, exclusion.good)
    elif not diagnosis.good_as_defined:
        recommendation = Recommendation("change the quantisation")
    elif not diagnosis.good:
        recommendation = Recommendation("change the kernels")
    return replace(found, passes=diagnosis.good, recommendation=recommendation, images=diagnosis.inputs)


def with_cured(verdict: Verdict, ways: Sequence[Way], folder: str) -> Verdict:
    """Return the verdict that recommends the cured model, if that reduces the error and makes no output worse."""
    errors = {way.kind: way.errors for way in ways}
    before = errors.get(steps.AS_IT_IS, {})
    remedies = []
    for way in ways:
        if way.kind in (steps.CURED_8, steps.PLAN):
            worse = tuple(name for name, error in way.errors.items() if error > (1 + WORSE) * before.get(name, error))
            model = "cured.onnx" if way.kind == steps.CURED_8 else "planned.onnx"
            total, cost = sum(way.errors.values()), way.raised / max(way.convolutions, 1)
            remedies.append(Remedy("use the cured model", total, cost, worse=worse, command=f"{folder}/{model}"))
    best = recommended(remedies, sum(before.values()))
    if best is None:
        return verdict
    measured = {"squared_error": sum(before.values()), "squared_error_after": best.error}
    return replace(verdict, recommendation=Recommendation(best.action, best.command, measured=measured))


def _of_outputs(
    comparison: Comparison, outputs: PlanOutputs, findings: Sequence[Finding], limits: Thresholds
) -> Verdict:
    """Return the comparison's verdict, decided by the worst output; outputs beyond the limits come first."""
    found = comparison.verdict(limits)
    found = replace(
        found,
        cause=next((finding for finding in findings if finding.kind in CAUSES), None),
        explanation=next((finding for finding in findings if finding.kind in ("spread", "part")), None),
        images=len(outputs.pictures),
    )
    ranked = sorted(outputs.outputs.items(), key=lambda item: (item[1].good(limits), -item[1].rmse))
    for name, figures in ranked[:1]:
        past = found.past if figures.good(limits) else max(found.past, 1)
        return replace(found, deciding=_deciding(name, figures, limits.of_layer(name)), past=past)
    return found


def _deciding(name: str, figures: OutputFigures, limits: Thresholds) -> Deciding:
    """Return the figure that decided: RMSE, or the first figure that makes the output bad."""
    decided = Deciding(name, "RMSE", figures.rmse, limits.max_rmse, True)
    if figures.good(limits) or (limits.max_rmse is not None and not figures.rmse <= limits.max_rmse):
        return decided
    if limits.min_cos is not None and not figures.cos >= limits.min_cos:
        return replace(decided, metric="COS", value=figures.cos, limit=limits.min_cos)
    if figures.probabilities is not None:
        return replace(decided, metric="probability change", value=figures.probabilities.largest, limit=None)
    if figures.centred is not None:
        return replace(decided, metric="COS about the mean", value=cos(figures.centred), limit=LEAST_COS_ABOUT_MEAN)
    return decided


def _recommendation(diagnosis: Diagnosis) -> Recommendation | None:
    if not diagnosis.share.convolutions or not diagnosis.outputs.outputs:
        return Recommendation("nothing") if diagnosis.passes else None
    if diagnosis.root is not None:
        return _of_root(diagnosis)
    if diagnosis.good:
        return Recommendation("nothing") if diagnosis.holds else Recommendation("calibrate on more images", TUNE)
    if diagnosis.advice is None or diagnosis.worse_unseen:
        return None
    before = output_error(diagnosis.advice.outputs.sums)
    best = recommended(remedies_of(diagnosis.advice, diagnosis), before)
    if best is None:
        cause = next((finding for finding in diagnosis.findings if finding.kind in CAUSES), None)
        is_correctable = cause is not None and cause.facts.get("reason") in ("clipped", "misread")
        return Recommendation("correct the cause") if is_correctable else None
    measured = {"error": before, "error_after": best.error}
    if best.cost:
        measured |= {"rate": diagnosis.advice.measured.rate(diagnosis.advice.measured.raised), "rate_after": best.cost}
    return Recommendation(best.action, best.command, best.layers, best.expected, measured, best.within)


def _of_root(diagnosis: Diagnosis) -> Recommendation:
    root = diagnosis.root
    assert root is not None, "there is a cause"
    measured = {"error": output_error(diagnosis.outputs.sums)}
    if root.outputs is not None:
        measured["error_after"] = output_error(root.outputs.sums)
    finding = root.finding
    layers = (finding.layer,) if finding.layer else ()
    return Recommendation("correct the cause", told_config(finding), layers, measured=measured)


def remedies_of(advice: MeasuredAdvice, diagnosis: Diagnosis) -> Iterator[Remedy]:
    """Yield the measured remedies: one weight scale per output channel, the plan, and all convolutions at INT16."""
    limits = diagnosis.limits
    if advice.per_channel is not None:
        yield Remedy(
            "use a scale per channel",
            output_error(advice.per_channel.sums),
            within=advice.per_channel.good(limits),
            worse=advice.per_channel.worse_than(advice.outputs),
            command="--quant-level L2",
        )
    if advice.promise is not None:
        plan = conv_config(config_names(advice.promise.names, advice.measured.convolutions))
        yield _raising("raise convolutions", advice.promise, advice, plan, _expected(diagnosis))
    if advice.all_16 is not None and advice.all_16 is not advice.promise:
        yield _raising("raise all convolutions", advice.all_16, advice, TUNE, {})


def _raising(
    action: Action, promise: Promise, advice: MeasuredAdvice, command: str, expected: Mapping[str, float]
) -> Remedy:
    outputs, names = promise.outputs, config_names(promise.names, advice.measured.convolutions)
    worse = outputs.worse_than(advice.outputs)
    within = outputs.good(advice.limits)
    return Remedy(action, promise.error, promise.rate, within, worse, command, tuple(names), expected)


def _expected(diagnosis: Diagnosis) -> dict[str, float]:
    """Return the expected errors on new images."""
    unseen = diagnosis.unseen
    if unseen is None or PLAN not in unseen.ran:
        return {}
    return {"error": unseen.expected(AS_IT_IS).expected, "error_after": unseen.expected(PLAN).expected}
