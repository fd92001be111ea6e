"""The verdict in words: three lines that open every result, then completeness, environment and assumptions.

Line 1 is the outcome with the deciding number, line 2 the cause with its evidence, line 3 the recommended action with
its effect and its cost. The terminal, the page, JUnit, Markdown, JSON and ``repr`` all show these lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from sgsdump import plugins
from sgsdump.comparison.account import Account
from sgsdump.comparison.agreement import DETECTIONS, PIXELS, Agreement
from sgsdump.comparison.finding import Finding
from sgsdump.comparison.remedy import Action
from sgsdump.comparison.row import LEAST
from sgsdump.comparison.thresholds import DOCUMENTED
from sgsdump.comparison.verdict import NOT_FINITE, OTHER_TENSOR, RESOLUTION, Deciding, Outcome, Recommendation, Verdict
from sgsdump.errors import listed
from sgsdump.reports.cause_text import FEW, cause_text, explanation_text
from sgsdump.reports.text import counted, percent, shortened, shown

MOST_OF_ENVIRONMENT, NOT_SET = 12, "not set"
MOST_ASSUMED = 2
_ON_STATISTICS = "all compared statistics are equal; equal statistics do not prove equal values"
_IN_ENVIRONMENT = {
    **dict.fromkeys(("selection", "versions", "settings", "drawn"), ""),
    **{"variables": "variable ", "random": "random "},
}


def verdict_block(verdict: Verdict) -> list[str]:
    """Return the three lines, then at most three more: completeness, environment and assumptions."""
    return [*three_lines(verdict), *_further(verdict)]


def three_lines(verdict: Verdict) -> tuple[str, str, str]:
    """Return the outcome, the cause and the recommended action, one sentence or two each."""
    return result_line(verdict), cause_line(verdict), next_line(verdict)


def lines_of_runs(verdicts: Mapping[str, Verdict | None]) -> list[str]:
    """Return the three lines on several runs, decided by the first run with the worst outcome.

    verdicts  by the run's name; None for a run that could not be compared.
    """
    if not verdicts:
        return []
    outcomes: dict[str, Outcome] = {
        run: "INCOMPLETE" if verdict is None else verdict.outcome for run, verdict in verdicts.items()
    }
    worst = next(outcome for outcome in _WORST_FIRST if outcome in outcomes.values())
    those = [run for run, outcome in outcomes.items() if outcome == worst]
    first = verdicts[those[0]]
    share = f"{len(those)} of {counted(len(verdicts), 'run')}"
    if worst in ("PASS", "EQUAL"):
        line = f"{worst}: all {counted(len(verdicts), 'run')} {_OF_RUNS[worst]}."
    else:
        line = f"{worst}: {share} {_OF_RUNS[worst]}."
    if first is None:
        return [line, f"No cause: {those[0]} could not be compared.", "Next: check the dumps of this run."]
    which = "" if worst in ("PASS", "EQUAL") else f"{those[0]}: {result_line(first).partition(': ')[2]}"
    return [f"{line.rstrip('.')}; first {which}" if which else line, cause_line(first), next_line(first)]


_WORST_FIRST: tuple[Outcome, ...] = ("FAIL", "DIFFERS", "INCOMPLETE", "WITHIN ROUNDING", "PASS", "EQUAL")
_OF_RUNS: Mapping[Outcome, str] = {
    "FAIL": "exceed the limits",
    "DIFFERS": "differ",
    "INCOMPLETE": "incomplete",
    "WITHIN ROUNDING": "differ by rounding",
    "PASS": "are within the limits",
    "EQUAL": "are equal",
}


def result_line(verdict: Verdict) -> str:
    """Return the outcome in capitals, the deciding number and its limit, and how many layers count for it."""
    outcome, deciding, noun = verdict.outcome, verdict.deciding, verdict.noun
    layers = counted(verdict.account.compared, noun)
    lacking = list(_lacking(verdict.account, verdict.allows_missing and verdict.passes is not None))
    parts = [] if deciding is None else [_figure(deciding)]
    if verdict.images > 1 and parts:
        parts[0] += f" (measured on {verdict.images} images)"
    if outcome == "INCOMPLETE":
        compared = verdict.account.compared
        within = f"the {counted(compared, 'compared layer')} {'is' if compared == 1 else 'are'} within the limits"
        none = "no layer could be compared" if noun == "layer" else "no output was measured (no images, -i)"
        parts = [*lacking, within] if compared and lacking else lacking or [none]
    elif outcome == "PASS":
        parts += [
            f"all {layers} are within the limits"
            if verdict.account.compared > 1
            else f"the only {noun} is within the limits"
        ]
    elif outcome == "FAIL":
        exceed = "exceeds" if verdict.past == 1 else "exceed"
        parts += [f"{verdict.past} of {layers} {exceed} the limits", *lacking]
    elif outcome == "EQUAL":
        parts = [*_equal(verdict), *_not_finite(verdict), *lacking]
    else:
        differ = "differs" if verdict.past == 1 else "differ"
        none = "no layer differs, but a cause was found outside the layers"
        by_rounding = ", all by rounding" if outcome == "WITHIN ROUNDING" else ""
        differing = f"{verdict.past} of {layers} {differ}{by_rounding}" if verdict.past else none
        parts += [differing, *_not_finite(verdict), *lacking]
    parts += [] if verdict.agreement is None or not verdict.agreement.of else [agreement_text(verdict.agreement)]
    return f"{outcome}: {'; '.join(parts)}."


def cause_line(verdict: Verdict) -> str:
    """Return the cause and its evidence, or why no single cause is named."""
    if verdict.cause is not None:
        return f"Cause: {shown(cause_text(verdict.cause, verdict.by_flow, verdict.images))}."
    explanation = verdict.explanation
    if explanation is not None and verdict.outcome != "PASS":
        none = {"rounding": "No cause", "part": "No cause to fix"}.get(explanation.kind, "No single cause")
        return f"{none}: {shown(explanation_text(explanation, verdict.images))}."
    reasons = {
        "PASS": f"no {verdict.noun} exceeds the limits",
        "EQUAL": "all compared values are equal" if not verdict.by_statistics else _ON_STATISTICS,
        "WITHIN ROUNDING": "all compared differences are within rounding",
        "INCOMPLETE": "no compared layer exceeds the limits" if verdict.account.compared else "nothing was compared",
    }
    if verdict.outcome in reasons:
        return f"No cause: {reasons[verdict.outcome]}."
    if verdict.recommendation is not None and verdict.recommendation.action == "nothing":
        return f"No cause: no layer exceeds the documented limits ({DOCUMENTED})."
    return "No single cause: no layer adds a large part of the error."


def next_line(verdict: Verdict) -> str:
    """Return the recommended action, its expected and measured effect, and its cost."""
    recommendation = verdict.recommendation
    if recommendation is None:
        if verdict.outcome == "INCOMPLETE":
            return "Next: check that both dumps are of the same model, with the same tensor names."
        return "Next: nothing to recommend; no measured change reduces the error."
    layers, cause = recommendation.layers, verdict.cause
    if cause is not None and (first := cause.facts.get("input", "")) in layers:
        layers = (first, *(name for name in layers if name != first))
    text = _ACTIONS[recommendation.action].format(layers=_named(layers) or "the operator named above")
    if recommendation.action == "correct the cause" and cause is not None:
        text = str(plugins.ask("remedy of a measured cause", cause)).rstrip(".")
    if recommendation.action == "nothing" and verdict.outcome == "FAIL":
        text += ", because all outputs are within the limits"
    effect, command = "; ".join(_effect(recommendation, verdict.images)), recommendation.command
    if "\n" in command or command in text:  # lines to copy, which the commands print below; or already told
        command = ""
    if effect and recommendation.action == "name the nodes":
        effect = f"With the worst nodes in float: {effect[0].lower()}{effect[1:]}"
    if effect:
        return f"Next: {text}{f' ({command})' if command else ''}. {effect}."
    if recommendation.action == "compare the operator" and command:
        return f"Next: {text}. If the sample is a fixed-point model, find the convolutions that need INT16: {command}"
    return f"Next: {text}: {command}" if command else f"Next: {text}."


_ACTIONS: Mapping[Action, str] = {
    "use the same input": "dump both models on the same input, then compare again",
    "make calls alike": "remove the difference named as the cause, then compare again",
    "change the operator": (
        "run {layers} with another kernel or in float32. To list all operators outside their rounding bound, use "
        "sgsdump check TREE"
    ),
    "keep channels": "small channels of {layers} are quantised to zero: use one scale per channel, or INT16",
    "dump what is missing": "dump the missing layers, then compare again",
    "nothing": "nothing to do",
    "measure quantised tensors": "measure the contribution of each quantised tensor",
    "make layers comparable": "check why layers are not comparable; the reasons are listed below",
    "compare the operator": "compare the attributes, weights and implementation of {layers} in sample and benchmark",
    "find convolutions": "find the convolutions that need INT16",
    "raise convolutions": "raise {layers} to INT16",
    "raise by rules": "raise {layers} to INT16; give images (-i) to measure the effect",
    "measure with images": "give images (-i) to measure the contribution of each convolution",
    "correct the cause": "correct the cause",
    "use a scale per channel": "use one weight scale per output channel",
    "raise all convolutions": "raise all convolutions to INT16, or find fewer with sgsdump tune",
    "use the cured model": "use the rewritten model",
    "keep operators in float": "keep {layers} in float",
    "name the nodes": (
        "name all nodes with the Python code below, because only named nodes can be kept in float. "
        "Then quantise and diagnose again"
    ),
    "find the cause": "INT16 barely reduces this error, so find its cause",
    "calibrate on more images": "calibrate on more images, because an output exceeds the limits on held-out images",
    "convert again": "convert the model again, because its weights differ from the weights of the float model",
    "change the quantisation": (
        "keeping a few operators in float does not help. Try other calibration data, another calibration method, one "
        "weight scale per channel, or 16-bit activations"
    ),
    "change the kernels": "run the model with exact kernels (lines below)",
}


def _effect(recommendation: Recommendation, images: int) -> Iterator[str]:
    """Yield the measured effect, the expected effect and the cost."""
    measured, expected = recommendation.measured, recommendation.expected
    for error, label in (("error", "Output error"), ("squared_error", "Output error (relative squared)")):
        after = f"{error}_after"
        if after in measured:
            on = f", measured on {counted(int(measured.get('images', images)), 'image')}" if images else ", measured"
            yield f"{label} {measured[error]:.3g} → {measured[after]:.3g}{on}"
        if after in expected:
            start = "" if after in measured else f"{label} "
            yield f"{start}{expected[error]:.3g} → {expected[after]:.3g} expected on new images"
    if "rate_after" in measured:
        yield f"weight size {percent(measured['rate'])} → {percent(measured['rate_after'])} of the INT16 size"
    if recommendation.within is False:
        yield "an output still exceeds the limits"


def _figure(deciding: Deciding) -> str:
    """Return the deciding number with its limit, such as ``output prob RMSE 0.512, limit 0.1``."""
    name, value = shortened(shown(deciding.layer)), deciding.value
    tensor = f"{'output' if deciding.is_output else 'layer'} {name}"
    if deciding.metric == OTHER_TENSOR:
        return f"{tensor} holds the values of another tensor"
    if deciding.metric == NOT_FINITE:
        return f"{tensor} has NaN or Inf"
    if value == LEAST:
        return f"{tensor}: checksums differ"
    if deciding.metric == RESOLUTION:
        return f"{tensor} RMSE {value:.3g}; no limit applies, because the error is at most half a quantisation step"
    limit = "" if deciding.limit is None else f", limit {deciding.limit:g}"
    return f"{tensor} {deciding.metric} {_told(value, deciding.limit)}{limit}"


def _told(value: float, limit: float | None) -> str:
    """Return three significant digits; six if three would show the value on the other side of its limit."""
    rounded = float(f"{value:.3g}")
    hides = limit is not None and ((rounded < limit) != (value < limit) or (rounded > limit) != (value > limit))
    return f"{value:.6g}" if hides else f"{value:.3g}"


def _equal(verdict: Verdict) -> Iterator[str]:
    compared = verdict.account.compared
    if verdict.by_statistics:
        yield f"the statistics of all {counted(compared, 'layer')} are equal"
    else:
        yield f"all {compared} layers are equal" if compared > 1 else "the only layer is equal"


def _not_finite(verdict: Verdict) -> Iterator[str]:
    """Yield NaN and Inf that the deciding number does not show. Equal NaN do not differ, but are reported."""
    if verdict.not_finite and (verdict.deciding is None or verdict.deciding.metric != NOT_FINITE):
        yield f"NaN or Inf in {counted(verdict.not_finite, 'layer')}"


def _lacking(account: Account, allows_missing: bool = False) -> Iterator[str]:
    """Yield the outputs, layers and runs that are missing or could not be compared."""
    missing = [] if allows_missing else [*account.named("missing", "output"), *account.named("missing", "layer")]
    runs = () if allows_missing else account.named("missing", "run")
    if missing:
        yield f"the sample lacks {counted(len(missing), 'layer')} ({_named(missing)})"
    if runs:
        yield f"the sample lacks {counted(len(runs), 'run')}"
    if failed := account.not_comparable:
        yield f"{counted(len(failed), 'layer')} not comparable ({_named([one.name for one in failed])})"
    elif account.damaged:
        yield f"{counted(len(account.damaged), 'file')} damaged"
    elif not missing and not allows_missing and account.is_less_than_half:
        yield f"only {account.compared} of {account.of} layers compared"


def agreement_text(agreement: Agreement) -> str:
    """Return how many answers agree with the benchmark."""
    agree, of = agreement.agree, agreement.of
    if agreement.template == DETECTIONS:
        return f"{agree} of {counted(of, 'detection')} agree"
    if agreement.template == PIXELS:
        return f"{100 * agreement.share:.3g} % of pixels agree"
    return f"top-1 agrees on {agree} of {counted(of, 'image')}"


def _further(verdict: Verdict) -> Iterator[str]:
    """Yield completeness, environment and assumptions, one line each."""
    account = verdict.account
    left_out = Counter(_status(one.status, one.fused) for one in account.left_out if one.kind not in ("share", "file"))
    beside = "".join(f"; {count} {status}" for status, count in left_out.items())
    if verdict.noun == "layer" and (account.compared or beside):
        yield f"Compared: {account.compared} of {counted(account.of, 'layer')}{beside}."
    yield from environment_lines(verdict.environment)
    if verdict.assumptions:
        first = [shown(text).rstrip(".") for text in verdict.assumptions[:MOST_ASSUMED]]
        more = len(verdict.assumptions) - len(first)
        yield f"Assumed: {'; '.join(first)}{f'; and {more} more' if more else ''}."


def _status(status: str, fused: bool) -> str:
    return "inside fused operators" if fused else _STATUSES.get(status, status)


_STATUSES = {"failed": "not comparable", "missing": "missing from the sample", "unwritten": "not yet written"}


def environment_lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield sentences on the environments of two runs, and on their inputs; none if they are equal."""
    texts = [
        f"{_IN_ENVIRONMENT[finding.facts['what']]}{_both_sides(finding)}"
        for finding in findings
        if finding.facts["what"] in _IN_ENVIRONMENT
    ]
    if texts:
        more = f"; {len(texts) - MOST_OF_ENVIRONMENT} more (--json)" if len(texts) > MOST_OF_ENVIRONMENT else ""
        yield f"Environments differ (sample, benchmark): {'; '.join(texts[:MOST_OF_ENVIRONMENT])}{more}."
    for finding in findings:
        if finding.facts["what"] == "same file":
            yield f"Sample and benchmark are the same file: {finding.facts['argument']}."
        elif finding.facts["what"] == "swapped":
            yield "The benchmark is a fixed-point dump and the sample is not. Check that they are not swapped."
        elif finding.facts["what"] == "inputs" and "likeness" not in finding.figures:
            yield (
                f"The programs had different integer inputs such as tokens or indices ({listed(finding.names, FEW)}). "
                f"Differences that these inputs cause are not errors."
            )


def _both_sides(finding: Finding) -> str:
    facts = finding.facts
    return f"{facts['argument']} {facts.get('sample', NOT_SET)}, {facts.get('benchmark', NOT_SET)}"


def _named(names: Sequence[str]) -> str:
    return listed([shortened(shown(name)) for name in names], FEW)
