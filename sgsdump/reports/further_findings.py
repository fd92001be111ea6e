"""Sentences on the findings of a comparison that the first three lines do not contain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sgsdump.comparison.finding import CAUSES, Finding
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.errors import listed
from sgsdump.reports.cause_text import (
    FEW,
    MOST_ARGUMENTS,
    called,
    cause_text,
    explanation_text,
    figures_text,
    further_causes,
)
from sgsdump.reports.text import counted, number, shortened

if TYPE_CHECKING:
    from sgsdump.comparison.comparison import Comparison
    from sgsdump.comparison.verdict import Verdict

MOST_OUTPUTS = 4
MOST_CHANNELS = 3


def further_findings(
    findings: Sequence[Finding], comparison: Comparison, verdict: Verdict, thresholds: Thresholds = DOCUMENTED
) -> Iterator[str]:
    """Yield sentences on outputs, faults, channels and what was not judged, without those of the first three lines."""
    are_fed = any(finding.facts["what"] == "inputs" for finding in findings if finding.kind == "environment")
    findings = [finding for finding in findings if finding is not verdict.cause and finding.kind != "environment"]
    of = {kind: [finding for finding in findings if finding.kind == kind] for kind in {one.kind for one in findings}}
    outputs = of.get("output", [])
    if len(outputs) > 1 and any(row.error for row in comparison.rows):
        yield _outputs_sentence(outputs)
    yield from _inner_sentence(outputs, comparison, thresholds)
    yield from _missing_sentences(of.get("missing", []), verdict)
    faults = [finding for finding in findings if finding.kind in CAUSES and not (are_fed and _is_by_inputs(finding))]
    yield from (f"Also: {cause_text(one, verdict.by_flow)}." for one in faults[:MOST_ARGUMENTS] if one.kind != "cause")
    yield from further_causes([one for one in faults if one.kind == "cause"])
    yield from map(_quantisation_sentence, of.get("quantisation", []))
    yield from _channel_sentences(of.get("channel", []))
    for finding in (*of.get("magnified", []), *of.get("rounding", [])):
        if finding is not verdict.explanation or verdict.cause is not None:
            yield f"Also: {explanation_text(finding)}."
    yield from map(proposal_line, of.get("not comparable", []))
    if any(finding.facts.get("why") == "statistics only" for finding in of.get("not judged", [])):
        yield from _on_statistics(comparison)


def _is_by_inputs(finding: Finding) -> bool:
    """Return whether different inputs may explain the finding."""
    return finding.kind == "cause" or finding.facts.get("what") in ("input", "reads")


def _outputs_sentence(outputs: Sequence[Finding]) -> str:
    ranked = sorted(outputs, key=lambda finding: finding.facts["verdict"] == "good")
    bad = sum(finding.facts["verdict"] == "bad" for finding in outputs)
    texts = [f"{shortened(finding.layer)} {_output_text(finding)}" for finding in ranked[:MOST_OUTPUTS]]
    if len(ranked) > MOST_OUTPUTS:
        more = bad - sum(finding.facts["verdict"] == "bad" for finding in ranked[:MOST_OUTPUTS])
        texts.append(f"and {len(ranked) - MOST_OUTPUTS} more, {f'{more} of them bad' if more else 'good'}")
    return f"Outputs: {'; '.join(texts)}."


def _inner_sentence(outputs: Sequence[Finding], comparison: Comparison, thresholds: Thresholds) -> Iterator[str]:
    """Yield how many internal layers exceed the limits while all outputs are within them."""
    inner = len(comparison.past(thresholds))
    if inner and outputs and not any(finding.facts["verdict"] == "bad" for finding in outputs):
        are = f"{counted(inner, 'internal layer')} {'exceeds' if inner == 1 else 'exceed'}"
        yield f"{are} the limits ({thresholds}), but the outputs are unaffected."


def _output_text(finding: Finding) -> str:
    is_bad = finding.facts["verdict"] == "bad"
    by_statistics = finding.figures.get("statistics_error") == 0
    text = figures_text(finding)
    if worst := finding.facts.get("worst_run", ""):
        text += f" over all runs, RMSE {number(finding.figures['worst_rmse'])} in {worst}"
    return text + ("" if by_statistics and not is_bad else ": bad" if is_bad else ": good")


def _missing_sentences(missing: Sequence[Finding], verdict: Verdict) -> Iterator[str]:
    """Yield what is missing, if the first line does not say so."""
    if verdict.outcome in ("FAIL", "INCOMPLETE"):
        return
    for finding in missing:
        what, names = finding.facts["what"], listed([shortened(name) for name in finding.names], FEW)
        if what == "not comparable":
            why = f" ({finding.facts['why']})" if len(finding.names) == 1 else ""
            yield f"Not comparable: {counted(len(finding.names), 'pair')}, {names}{why}."
        elif what != "more than half":
            yield f"Missing from the sample: {counted(len(finding.names), what.removesuffix('s'))}, {names}."


def proposal_line(finding: Finding) -> str:
    """Return why modules cannot be compared as they were dumped, and what makes them comparable."""
    side = finding.facts["side"]
    other = "benchmark" if side == "sample" else "sample"
    parts = listed([part.rpartition(".")[2] for part in finding.names], MOST_ARGUMENTS)
    return (
        f"{finding.layer} of the {side} fuses {parts} of the {other}: the weight of the fused module "
        "contains the rows of these parts. To compare the parts, save this JSON as parts.json and "
        f"add --name-map parts.json: {finding.facts['map']}"
    )


def _quantisation_sentence(finding: Finding) -> str:
    what, of = finding.facts["what"], int(finding.figures["operators"])
    if what == "alike":
        return f"Both models quantise the same {of} operators, so excluding operators from quantisation had no effect."
    names = listed([shortened(name) for name in finding.names], FEW)
    which = "fewer" if what == "float" else "more"
    have = "has" if len(finding.names) == 1 else "have"
    return (
        f"{len(finding.names)} of {counted(of, 'operator')} {have} {which} quantised tensors in the sample than in the "
        f"benchmark: {names}."
    )


def _channel_sentences(channels: Sequence[Finding]) -> Iterator[str]:
    ranked = sorted(channels, key=lambda finding: -finding.figures["lost"] / finding.figures["count"])
    for finding in ranked[:MOST_CHANNELS]:
        lost, count, worst = (int(finding.figures["lost"]), int(finding.figures["count"]), finding.facts["worst"])
        rmse = number(finding.figures["worst_rmse"])
        which = (
            f"{lost} of its {count} channels {'is' if lost == 1 else 'are'} lost (error at least half of the values)"
            if lost
            else "one channel is bad"
        )
        yield (
            f"{called(finding)} is within the limits as a whole, but {which}; the worst channel is "
            f"{worst}, with RMSE {rmse}."
        )
    more = len(ranked) - MOST_CHANNELS
    if more > 0:
        have = "has" if more == 1 else "have"
        yield f"{counted(more, 'more layer')} also {have} lost channels or a channel that exceeds its limit."


def _on_statistics(comparison: Comparison) -> Iterator[str]:
    count, of = sum(row.is_by_statistics for row in comparison.rows), len(comparison.rows)
    if any(row.error for row in comparison.rows):
        which = "the layers" if count == of else f"{count} of {of} layers"
        yield f"Not judged: the values of {which}, because the dumps contain only their statistics."
