"""The verdict of ``tune`` as data: the outputs of the recommended plan, why INT8 is not enough, effect and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sgsdump.comparison.account import Account
from sgsdump.comparison.finding import Finding
from sgsdump.comparison.metrics import cos
from sgsdump.comparison.verdict import Deciding, Recommendation, Verdict
from sgsdump.fixedpoint.quantisation.objective import error_of, output_error
from sgsdump.fixedpoint.tuning.advice import NO

if TYPE_CHECKING:
    from sgsdump.comparison.agreement import Agreement
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.fixedpoint.tuning.advice import Advice
    from sgsdump.fixedpoint.tuning.causes import Exact
    from sgsdump.fixedpoint.tuning.pareto import Pareto
    from sgsdump.fixedpoint.tuning.rounds import Round

# Reasons of a cause: INT8 exceeds the limits; INT16 hardly reduces the error either; the rules of thumb name it.
INT8, NOT_INT8, RULES = "INT8", "not INT8", "rules"
DIAGNOSE = "sgsdump diagnose -m float.onnx -i images/ -n preprocess.py --input-config input_config.ini -o diagnosis"
MOST_LEFT = 0.8  # INT16 has to remove a fifth of the error, else INT8 is not its cause
OUTPUT = "output"  # the noun of a verdict that counts outputs
Figures = Mapping[str, tuple[float, float]]  # by output: COS and RMSE


def verdict_of_search(result: Pareto, passes: bool, agreement: Agreement | None) -> Verdict:
    """Return the verdict on the recommended plan of a search; ``passes``: whether it is within the limits."""
    taken, int8, limits = result.taken, result.rows[0], result.limits
    figures = {name: (taken.outputs.cos[name], taken.outputs.rmse[name]) for name in taken.outputs.cos}
    measured = {"squared_error": int8.error, "squared_error_after": taken.error}
    measured |= {"rate": int8.rate, "rate_after": taken.rate}
    before, after = int8.outputs.unseen, taken.outputs.unseen
    expected = {}
    if before is not None and after is not None:
        expected = {"squared_error": before.expected, "squared_error_after": after.expected}
    recommendation = Recommendation("raise convolutions", "", taken.tensors, expected, measured)
    past = () if limits is None else limits.past
    if taken is int8:
        recommendation = Recommendation("nothing") if passes else Recommendation("raise all convolutions")
    verdict = _of_outputs(figures, passes, None if limits is None else limits.allowed, result.effort.pictures)
    cause = Finding("cause", names=past, evidence="measured", facts={"reason": INT8}) if past else None
    int16 = result.rows[-1]
    if past and not passes and int16.error > MOST_LEFT * int8.error:
        figures_of_both = {"error": int8.error, "left": int16.error}
        cause = Finding("cause", "", "", figures_of_both, "measured", past, {"reason": NOT_INT8})
        recommendation = Recommendation("find the cause", DIAGNOSE)
    return replace(verdict, cause=cause, recommendation=recommendation, agreement=agreement)


def verdict_of_rounds(
    rounds: Sequence[Round],
    best: Round,
    limits: Thresholds,
    words: Sequence[str],
    images: int,
    passes: bool,
    agreement: Agreement | None,
) -> Verdict:
    """Return the verdict on the first plan within the limits; ``words``: of tensor_arrays."""
    first = rounds[0]
    figures = {name: (cos(sums), error_of(sums)) for name, sums in best.run.outputs.items()}
    measured = {"error": first.error, "error_after": best.error, "rate": first.run.rate, "rate_after": best.run.rate}
    recommendation = Recommendation("raise convolutions", "", tuple(words), measured=measured)
    reason = INT8
    if best is first:
        recommendation = Recommendation("nothing") if passes else Recommendation("find the cause", DIAGNOSE)
        reason = INT8 if passes else NOT_INT8
    past = [name for name, sums in first.run.outputs.items() if not limits.hold(cos(sums), error_of(sums), 0.0)]
    cause = Finding("cause", names=tuple(past), evidence="measured", facts={"reason": reason}) if past else None
    verdict = _of_outputs(figures, passes, limits, images)
    return replace(verdict, cause=cause, recommendation=recommendation, agreement=agreement)


def verdict_of_contributions(
    exact: Exact | None,
    findings: Sequence[Finding],
    advice: Sequence[Advice],
    words: Sequence[str],
    limits: Thresholds,
) -> Verdict:
    """Return the verdict of ``tune --explain`` on all convolutions at INT8.

    Without images nothing was measured: the verdict is incomplete, and the rules of thumb name the cause.
    """
    if exact is None:
        first = next((entry for entry in advice if entry.verdict != NO), None)
        cause = None
        if first is not None:
            facts = {"reason": RULES, "input": first.convolution.shown_input, "why": first.reason}
            cause = Finding("cause", first.convolution.name, first.convolution.op_type, facts=facts)
        action = Recommendation("raise by rules", "", tuple(words)) if words else Recommendation("measure with images")
        return Verdict("not comparable", Account(0, 0), cause=cause, recommendation=action, noun=OUTPUT)
    outputs = exact.all_8.outputs
    passes = exact.all_8.good(limits)
    figures = {name: (each.cos, each.rmse) for name, each in outputs.items()}
    cause = next((finding for finding in findings if finding.kind == "cause"), None)
    explanation = next((finding for finding in findings if finding.kind in ("spread", "part")), None)
    recommendation: Recommendation | None = Recommendation("nothing") if passes else None
    if words and exact.raised is not None:
        errors = {"error": output_error(exact.all_8.sums), "error_after": output_error(exact.raised.sums)}
        recommendation = Recommendation("raise convolutions", "", tuple(words), measured=errors)
    verdict = _of_outputs(figures, passes, limits, len(exact.all_8.pictures))
    return replace(verdict, cause=cause, explanation=explanation, recommendation=recommendation)


def _of_outputs(figures: Figures, passes: bool, limits: Thresholds | None, images: int) -> Verdict:
    """Return a verdict that the worst output decides."""
    past = [name for name, both in figures.items() if limits is not None and not limits.hold(*both, 0.0)]
    deciding = None
    is_elsewhere = not passes and not past  # only held-out images exceed a limit, or an output is judged otherwise
    for name in () if is_elsewhere else sorted(past or figures, key=lambda name: -figures[name][1])[:1]:
        similarity, error = figures[name]
        deciding = Deciding(name, "RMSE", error, None if limits is None else limits.max_rmse, True)
        by_cos = limits is not None and limits.min_cos is not None and not similarity >= limits.min_cos
        if by_cos and limits is not None and (limits.max_rmse is None or error <= limits.max_rmse):
            deciding = Deciding(name, "COS", similarity, limits.min_cos, True)
    account = Account(len(figures), len(figures))
    many = max(len(past), int(not passes))
    return Verdict("differs", account, passes, deciding, many, images=images, noun=OUTPUT)
