"""The first sentences of a comparison, made of its findings once for every report: outputs, what is missing, the cause.

They are made of facts, and nothing reads them to decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from sgsdump.comparison.finding import ACCUMULATION, KINDS, PACKED, Finding
from sgsdump.comparison.row import LEAST
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.errors import listed
from sgsdump.reports.text import counted, number, shortened

if TYPE_CHECKING:
    from sgsdump.comparison.comparison import Comparison

MOST_ARGUMENTS = 5
_CALLED = {
    "argument": "argument {name}",
    "type": "element type",
    "size": "size of {name}",
    "weight": "weight {name}",
    "initializer": "initializer {name}",
    "input": "input {name}, which no compared operator made,",
}
MOST_OUTPUTS = 4
MOST_OF_ENVIRONMENT, NOT_SET = 12, "not set"
_IN_ENVIRONMENT = {
    **dict.fromkeys(("selection", "versions", "settings", "drawn"), ""),
    **{"variables": "variable ", "random": "random "},
}
FEW = 3  # names in a sentence
MOST_CHANNELS = 3
_HOW = {
    "rearranged": "its values are the benchmark's in another order (channels or axes permuted)",
    "zero": "all of the sample's values are 0",
    PACKED: "its quantised weights are not the benchmark's",
    ACCUMULATION: "the sample keeps its sum in a narrower type",
}
_WHERE = ("argument", "cause", "another tensor")


def headline(
    findings: Sequence[Finding],
    comparison: Comparison,
    thresholds: Thresholds = DOCUMENTED,
    with_environment: bool = True,
) -> Iterator[str]:
    """The first sentences: the environments, the outputs, what is missing, where the error arises and which channels
    are lost; ahead of them an argument, type or weight that differs where nothing does before it."""
    around = [finding for finding in findings if finding.kind == "environment"]
    yield from environment_lines(around if with_environment else ())
    findings = [finding for finding in findings[len(around) :] if not (_is_by_inputs(finding) and _are_fed(around))]
    yield from (between_rounds_sentence(finding) for finding in findings if finding.kind == "between rounds")
    findings = [finding for finding in findings if finding.kind != "between rounds"]
    leads = findings[:1] if findings and findings[0].kind == "argument" else ()
    yield from map(argument_line, leads)
    findings = findings[len(leads) :]
    of = {kind: [finding for finding in findings if finding.kind == kind] for kind in KINDS}
    if of["output"] and any(row.error for row in comparison.rows):
        yield _outputs_sentence(of["output"], comparison, thresholds)
    yield from map(_missing_sentence, of["missing"])
    told = {finding.layer for finding in of["cause"]}
    not_finite = [finding for finding in of["not finite"] if finding.layer not in told]
    for kind, those in groupby([finding for finding in findings if finding.kind in _WHERE], lambda found: found.kind):
        if kind == "argument":
            yield from map(argument_line, list(those)[:MOST_ARGUMENTS])
        elif kind == "cause":
            yield from cause_sentences(list(those), comparison.completeness.by_flow)
        elif kind == "another tensor":
            yield from map(_other_tensor_sentence, those)
    yield from (f"NaN or Inf first at {_named(finding)}: {_odd_text(finding)}." for finding in not_finite)
    yield from map(_quantisation_sentence, of["quantisation"])
    yield from _channel_sentences(of["channel"])
    yield from map(_magnified_sentence, of["magnified"])
    yield from map(_rounding_sentence, of["rounding"])
    yield from map(proposal_line, of["not comparable"])
    if any(finding.facts.get("why") == "statistics only" for finding in of["not judged"]):
        yield from _on_statistics(comparison)


def _are_fed(around: Sequence[Finding]) -> bool:
    """Whether the two programs were fed other whole numbers, which explain any difference."""
    return any(finding.facts["what"] == "inputs" for finding in around)


def _is_by_inputs(finding: Finding) -> bool:
    """Whether other inputs may be all that it tells of."""
    return finding.kind == "cause" or finding.facts.get("what") in ("input", "reads")


def environment_lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Sentences on the environments of two programs, and their inputs; none where they are alike."""
    texts = [
        f"{_IN_ENVIRONMENT[finding.facts['what']]}{_both_sides(finding)}"
        for finding in findings
        if finding.facts["what"] in _IN_ENVIRONMENT
    ]
    if texts:
        more = f"; {len(texts) - MOST_OF_ENVIRONMENT} more (--json)" if len(texts) > MOST_OF_ENVIRONMENT else ""
        yield f"The programs' environments differ (sample, benchmark): {'; '.join(texts[:MOST_OF_ENVIRONMENT])}{more}."
    for finding in findings:
        if finding.facts["what"] == "same file":
            yield f"Sample and benchmark are one file, {finding.facts['argument']}: nothing can differ."
        elif finding.facts["what"] == "swapped":
            yield "The benchmark is a fixed model's dump and the sample is none: are they swapped?"
        elif "likeness" in finding.figures:
            yield (
                f"The two dumps are of different inputs ({shortened(finding.layer)}: correlation "
                f"{finding.figures['likeness']:.2g}), so no cause is sought. Dump both models on the same input."
            )
        elif finding.facts["what"] == "inputs":
            yield (
                f"The programs were fed other whole numbers, tokens or indices say, as {listed(finding.names, FEW)}: "
                f"what differs after them is no error of its own."
            )


def _both_sides(finding: Finding) -> str:
    facts = finding.facts
    return f"{facts['argument']} {facts.get('sample', NOT_SET)}, {facts.get('benchmark', NOT_SET)}"


def _outputs_sentence(outputs: Sequence[Finding], comparison: Comparison, thresholds: Thresholds) -> str:
    ranked = sorted(outputs, key=lambda finding: finding.facts["verdict"] == "good")
    past = sum(finding.facts["verdict"] == "bad" for finding in outputs)
    texts = [f"{shortened(finding.layer)}{_output_text(finding)}" for finding in ranked[:MOST_OUTPUTS]]
    if len(ranked) > MOST_OUTPUTS:
        bad = past - sum(finding.facts["verdict"] == "bad" for finding in ranked[:MOST_OUTPUTS])
        texts.append(f"and {len(ranked) - MOST_OUTPUTS} more, {f'{bad} of them bad' if bad else 'good'}")
    inner = 0 if past else len(comparison.past(thresholds))
    beside = (
        f"; {counted(inner, 'inner layer')} {'is' if inner == 1 else 'are'} past the thresholds, which did not reach "
        f"the {'output' if len(outputs) == 1 else 'outputs'}"
        if inner
        else ""
    )
    return f"{'Output' if len(outputs) == 1 else 'Outputs'}: {'; '.join(texts)}{beside}."


def _output_text(finding: Finding) -> str:
    is_bad = finding.facts["verdict"] == "bad"
    by_statistics = finding.figures.get("statistics_error") == 0
    text = _figures_of(finding)
    if worst := finding.facts.get("worst_run", ""):
        text += f" over all runs, RMSE {number(finding.figures['worst_rmse'])} in {worst}"
    begin = ", " if "cos" not in finding.figures or _odd_text(finding) or not finding.figures["rmse"] else " "
    return f"{begin}{text}" + ("" if by_statistics and not is_bad else ": bad" if is_bad else ": good")


def _figures_of(finding: Finding) -> str:
    figures = finding.figures
    if odd := _odd_text(finding):
        return odd
    if "differing" in figures:
        return f"{figures['differing']:.0f} of {figures['count']:.0f} values differ"
    if "statistics_error" in figures:
        error = figures["statistics_error"]
        if error == LEAST:
            return "statistics equal, checksums differ"
        return f"statistics off by {error:.3g}" if error else "all statistics equal"
    if "cos" not in figures:
        error = figures["error"]
        return "checksums differ" if error == LEAST else f"relative error {error:.3g}"
    if not figures["rmse"]:
        return "all values equal"
    cos = "" if math.isnan(figures["cos"]) else f"COS {number(figures['cos'])}, "
    return f"{cos}RMSE {number(figures['rmse'])}"


def _odd_text(finding: Finding) -> str:
    """NaN and Inf of both sides: ``5 NaN in the sample, 2 Inf in the benchmark``; "" for none."""
    counts = (
        (finding.figures.get(f"{side}_{odd.lower()}", 0), odd, side)
        for side in ("sample", "benchmark")
        for odd in ("NaN", "Inf")
    )
    return ", ".join(f"{count:,.0f} {odd} in the {side}" for count, odd, side in counts if count)


def _missing_sentence(finding: Finding) -> str:
    what, names = finding.facts["what"], listed([shortened(name) for name in finding.names], FEW)
    if what == "more than half":
        compared, of = finding.figures["compared"], finding.figures["of"]
        return f"Incomplete: only {compared:.0f} of the benchmark's {of:.0f} layers could be compared."
    if what == "not comparable":
        why = f" ({finding.facts['why']})" if len(finding.names) == 1 else ""
        return f"Could not be compared: {counted(len(finding.names), 'pair')}, {names}{why}."
    return f"Missing from the sample: {counted(len(finding.names), what.removesuffix('s'))}, {names}."


def cause_sentences(causes: Sequence[Finding], by_flow: bool) -> Iterator[str]:
    first, *others = causes
    figures = first.facts.get("unlike") or ("" if not _has_error(first) else _figures_of(first) + _how_text(first))
    if first.evidence == "measured" and "bound" in first.figures:
        yield f"The error arises at {_called(first)}, whose own result is outside its bound: {_outside_text(first)}."
    elif "compiled" in first.facts:
        yield (
            f"The error arises inside the compiled graph that gives {_named(first)}: {figures}. To locate the "
            f"operator, capture the compiled program again with sgsdump exec --inside eager."
        )
    elif first.facts.get("how") == PACKED:
        yield (
            f"The error arises at {_called(first)}, whose quantised weights are not the benchmark's: its output is off "
            f"by {first.figures['times']:.3g} times what 8 bits cost."
        )
    elif first.facts.get("how") == ACCUMULATION:
        yield (
            f"The sample keeps the sum of {_named(first)} in {first.facts['dtype']}: "
            f"{first.figures['additions']:.0f} additions by {first.facts['added']}"
            f"{_at(first)}; its error is {first.figures['error']:.3g}, the benchmark's "
            f"{first.figures['benchmark_error']:.3g}."
        )
    elif "collective" in first.facts:
        yield (
            f"The error comes from another rank, by {_called(first)}, whose own inputs are equal: {figures}; look at "
            f"the other ranks of this step."
        )
    elif "only_in" in first.facts and not first.names:
        side = first.facts["only_in"]
        yield f"The error arises at {_called(first)}, which writes into memory and which only the {side} has."
    elif "only_in" in first.facts:
        side, read = first.facts["only_in"], f"what reads it, {listed(first.names, FEW)}, differs by {figures}"
        which = f"an operator that only the {side} has"
        if chain := first.facts.get("chain"):
            which = f"of operators that only the {side} has ({listed(chain.split(', '), MOST_ARGUMENTS)})"
        yield f"The error arises at {_called(first)}, {which}; {read}."
    elif "unlike" in first.facts:
        yield f"The error arises at {_named(first)}, which the two sides have quantised in another way: {figures}."
    elif first.evidence != "by value":
        how = "Judging by the figures alone" + ("" if by_flow else ", in file order")
        yield f"{how}, the error arises at {_named(first)}: {figures}."
    else:
        which = "which differs while all its inputs are equal"
        if first.facts.get("inputs") in ("differ", "unknown"):
            before = first.figures.get("before")
            which = (
                f"the first layer whose error exceeds rounding ({before:.3g} before it)"
                if before
                else "the first to differ by more than rounding"
            )
        yield f"The error arises at {_called(first)}, {which}: {figures}."
    if others:
        by = "Judging by the figures alone, also" if first.evidence == "by value" else "Also"
        yield f"{by} at {'; '.join(map(_short_cause, others))}."


def _short_cause(cause: Finding) -> str:
    return f"{_named(cause)}: {_figures_of(cause)}{_how_text(cause)}" if _has_error(cause) else _named(cause)


def _has_error(finding: Finding) -> bool:
    """Whether it says how far two sides differ; what was measured of one side does not."""
    return bool(finding.figures) and "bound" not in finding.figures


def _outside_text(finding: Finding) -> str:
    figures = finding.figures
    return (
        f"element {figures['index']:.0f} is {figures['value']:.9g}, exactly {figures['reference']:.9g}, "
        f"{figures['error']:.3g} units of the last place of {finding.facts['dtype']} (bound {figures['bound']:.3g}), "
        f"as are {figures['outside']:.0f} of {figures['count']:.0f} elements"
    )


def _how_text(finding: Finding) -> str:
    how = finding.facts.get("how", "")
    if how == "times":
        return f"; its values are the benchmark's times {finding.figures['factor']:.6g}"
    return f"; {_HOW[how]}" if how else ""


def _other_tensor_sentence(finding: Finding) -> str:
    return f"{_named(finding)} of the sample is another tensor of the same name: it matches {finding.facts['found']}."


def _magnified_sentence(finding: Finding) -> str:
    figures, facts = finding.figures, finding.facts
    rounded = facts["rounded"]
    first = "" if rounded == finding.layer else f", which was first rounded at {shortened(rounded)}"
    return (
        f"Rounding is magnified {figures['times']:.3g} times at {_called(finding)}: a relative error of "
        f"{figures['error']:.3g} from {figures['before']:.3g} in what it reads{first}; compute that in float32."
    )


def _rounding_sentence(finding: Finding) -> str:
    types, why = finding.facts["types"], finding.facts.get("why")
    if inside := finding.facts.get("inside"):
        return (
            f"The outputs of all modules agree to within rounding. Inside the modules, {shortened(inside)} differs "
            f"first, with no effect on their outputs."
        )
    if why:
        return (
            f"No weight, argument or operator differs but by rounding to {types}; the operators were not computed "
            f"again, which needs torch: pip install 'sgsdump[torch]'."
        )
    but = f"; not seen are the quantised weights of {unseen}" if (unseen := finding.facts.get("unseen")) else ""
    return f"What differs is rounding to {types}: weights, arguments and each operator's own result are within it{but}."


def proposal_line(finding: Finding) -> str:
    """Return why modules cannot be compared as they were dumped, and what makes them comparable."""
    side = finding.facts["side"]
    other = "benchmark" if side == "sample" else "sample"
    parts = listed([part.rpartition(".")[2] for part in finding.names], MOST_ARGUMENTS)
    return (
        f"{finding.layer} of the {side} fuses {parts} of the {other}: its weight holds their rows. To compare the "
        f"parts, save this JSON as parts.json and add --name-map parts.json: {finding.facts['map']}"
    )


def _quantisation_sentence(finding: Finding) -> str:
    what, of = finding.facts["what"], int(finding.figures["operators"])
    if what == "alike":
        return f"Both networks quantise {of} operators alike: an exclusion between them took no effect."
    names = listed([shortened(name) for name in finding.names], FEW)
    which = "less quantised" if what == "float" else "more quantised"
    return f"In the sample {counted(len(finding.names), 'operator')} of {of} {which} than in the benchmark: {names}."


def _channel_sentences(channels: Sequence[Finding]) -> Iterator[str]:
    ranked = sorted(channels, key=lambda finding: -finding.figures["lost"] / finding.figures["count"])
    for finding in ranked[:MOST_CHANNELS]:
        lost, count, worst = (int(finding.figures["lost"]), int(finding.figures["count"]), finding.facts["worst"])
        rmse = number(finding.figures["worst_rmse"])
        which = "is lost: channel" if lost == 1 else "are lost: the worst is channel"
        text = f"{lost} of its {count} channels {which} {worst}" if lost else f"channel {worst} is past the limit"
        yield f"{_named(finding)} looks right as a whole, but {text}, RMSE {rmse}."
    if len(ranked) > MOST_CHANNELS:
        yield f"The same holds for {counted(len(ranked) - MOST_CHANNELS, 'more layer')}."


def _on_statistics(comparison: Comparison) -> Iterator[str]:
    count, of = sum(row.is_by_statistics for row in comparison.rows), len(comparison.rows)
    if any(row.error for row in comparison.rows):
        which = "the layers" if count == of else f"{count} of {of} layers"
        yield f"Not judged: the values of {which}; of those there are statistics only."


def _called(finding: Finding) -> str:
    """Its name, and where the program calls it."""
    return f"{_named(finding)}{_at(finding)}"


def _at(finding: Finding) -> str:
    return f", called at {finding.facts['source']}" if finding.facts.get("source") else ""


def _named(finding: Finding) -> str:
    name = shortened(finding.layer)
    return f"{name} ({finding.op_type})" if finding.op_type not in ("", finding.layer) else name


def between_rounds_sentence(finding: Finding) -> str:
    """Return where two programs differ outside their modules."""
    facts = finding.facts
    names = listed([shortened(name) for name in finding.names], FEW)
    inputs = f"all earlier rounds are equal, but inputs of this round differ ({names})" if names else ""
    where = (
        "The cause is outside the modules, between the previous round and this round (sampling, logits processing or "
        "cache handling)"
    )
    if "source" not in facts:
        unlike = [
            f"{facts[f'unlike {side}']} in the {side}" for side in ("sample", "benchmark") if f"unlike {side}" in facts
        ]
        is_recorded = facts["recorded"] != "no"
        seen = "the operators recorded there are alike" if is_recorded else "the operators there were not recorded"
        if unlike:
            seen = f"the operators there first differ at {' and '.join(unlike)}"
        return f"{where}: {inputs}; {seen}."
    at = " and ".join(dict.fromkeys(line for line in (facts["sample source"], facts["source"]) if line))
    operator = f"{finding.op_type}{f', called at {at},' if at else ''}"
    if "argument" in facts:
        what = f"{facts['argument']} = {facts['sample']} in the sample and {facts['benchmark']} in the benchmark"
        told = f"{operator} has the same inputs on both sides but {what}"
    else:
        why = ", because it draws random numbers" if "random" in facts else ""
        told = f"{operator} has the same inputs on both sides but different outputs{why}"
    return f"{where}: {told}{f'; {inputs}' if inputs else ''}."


def argument_line(finding: Finding) -> str:
    """An argument, a type or a weight that differs, and of which operator."""
    facts = finding.facts
    of = f" ({finding.op_type})" if finding.op_type else ""
    where = f" in {facts['module']}" if facts.get("module") else ""
    at = f", called at {facts['source']}" if facts.get("source") else ""
    operator = f"{shortened(finding.layer)}{of}{where}{at}"
    if facts["what"] == "reads":
        return (
            f"{operator}{',' if at else ''} reads the output of {facts['sample']} in the sample but of "
            f"{facts['benchmark']} in the benchmark; these inputs differ by {finding.figures['error']:.3g}."
        )
    what = _CALLED[facts["what"]].format(name=facts["argument"])
    if not finding.figures:
        return f"The {what} differs: {facts['sample']} in sample, {facts['benchmark']} in benchmark, at {operator}."
    other = f", where the sample reads {facts['sample']}" if facts["sample"] else ""
    return f"The {what} differs by {finding.figures['error']:.3g}{other}, at {operator}."
