"""Sentences on a finding that names a fault: one place for each kind of finding.

A text has no full stop at its end, and begins so that it can follow ``Cause:``. Texts are written from findings, and
no program logic reads them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from sgsdump import plugins
from sgsdump.comparison.finding import ACCUMULATION, PACKED, Finding
from sgsdump.comparison.row import LEAST
from sgsdump.errors import listed
from sgsdump.reports.text import counted, number, shortened

MOST_ARGUMENTS = 5
FEW = 3  # names in a sentence
_ARGUMENTS = {
    "argument": "argument {name}",
    "type": "element type",
    "size": "size of {name}",
    "weight": "parameter {name}",
    "initializer": "initializer {name}",
    "input": "input {name}, which no compared operator computes,",
}
_METRICS = {"error": "relative error", "own_error": "own error"}
_HOW = {
    "rearranged": "the sample has the same values in another order (permuted channels or axes)",
    "zero": "all values of the sample are 0",
}


def cause_text(finding: Finding, by_flow: bool = True, images: int = 0) -> str:
    """Return the cause and its evidence.

    Parameters
    ----------
    finding
        A finding that names a fault.
    by_flow
        Whether the dataflow between layers is known.
    images
        Number of images that a measured cause was measured on.
    """
    if "reason" in finding.facts:  # measured by running changed models
        return str(plugins.ask("text of a measured cause", finding, images))
    if "likeness" in finding.figures:
        return (
            f"the two dumps were made from different inputs (correlation of input {shortened(finding.layer)}: "
            f"{finding.figures['likeness']:.2g})"
        )
    if finding.kind == "argument":
        return argument_text(finding)
    if finding.kind == "another tensor":
        return (
            f"tensor {called(finding)} of the sample holds the values of another tensor. In the benchmark, these "
            "values "
            f"belong to {finding.facts['found']}"
        )
    if finding.kind == "not finite":
        return f"NaN or Inf appear first at {called(finding)}: {odd_text(finding)}"
    if finding.kind == "between rounds":
        return between_rounds_text(finding)
    return _operator_text(finding, by_flow)


def _operator_text(finding: Finding, by_flow: bool) -> str:
    """Return the text on the operator where the error arises."""
    figures, facts = finding.figures, finding.facts
    error = facts.get("unlike") or (_error_text(finding) if _has_error(finding) else "")
    if finding.evidence == "measured" and "bound" in figures:
        return (
            f"operator {_placed(finding)}: its result in the sample is outside the rounding bound "
            f"({_outside_text(finding)})"
        )
    if "own_error" in figures:
        return (
            f"operator {called(finding)}: the operator was recomputed from its recorded inputs, and "
            f"its own error is {figures['own_error']:.3g}, which is {figures['rounding_bounds']:.3g} "
            "times its rounding bound"
        )
    if "compiled" in facts:
        return (
            f"an operator inside the compiled graph that computes {called(finding)}: {error}. To locate the operator, "
            f"capture the compiled program again with sgsdump exec --inside eager"
        )
    if facts.get("how") == PACKED:
        return (
            f"the quantised weights of {_subject(finding)} differ between sample and benchmark; the output error "
            f"is {figures['times']:.3g} times the error expected from 8-bit weights"
        )
    if facts.get("how") == ACCUMULATION:
        return (
            f"the benchmark computes {called(finding)} with one operator, but the sample adds partial sums in "
            f"{facts['dtype']}: {figures['additions']:.0f} additions by {facts['added']}"
            f"{f' (called at {source})' if (source := facts.get('source')) else ''}. Error relative to a float64 "
            f"recomputation: sample {figures['error']:.3g}, benchmark {figures['benchmark_error']:.3g}"
        )
    if "collective" in facts:
        return (
            f"the values that another rank contributes to {_subject(finding)} differ between the two dumps "
            f"({error}), although this rank's inputs are equal in both dumps. Compare the other ranks of this step"
        )
    if "only_in" in facts:
        return _one_sided_text(finding)
    if "unlike" in facts:
        return f"tensor {called(finding)} is quantised differently in the two dumps: {error}"
    if finding.evidence != "by value":
        how = "" if by_flow else ", with the layers in file order"
        error = _error_text(finding, _rise_text(finding, by_flow))
        return f"layer {called(finding)}, inferred from error metrics only{how}: {error}"
    if facts.get("inputs") in ("differ", "unknown"):
        before = f" ({figures['before']:.3g} before this operator)" if figures.get("before") else ""
        return f"operator {_subject(finding)} is the first operator whose error exceeds rounding: {error}{before}"
    return (
        f"operator {_placed(finding)}: all its inputs are equal in sample and benchmark, but its output "
        f"differs ({error})"
    )


def _one_sided_text(finding: Finding) -> str:
    """Return the text on operators that only one side runs."""
    side = finding.facts["only_in"]
    if not finding.names:
        return f"operator {_subject(finding)} exists only in the {side} and modifies a tensor in place"
    readers = f"as a result, {listed(finding.names, FEW)} differs, {_error_text(finding)}"
    if chain := finding.facts.get("chain"):
        chained = listed(chain.split(", "), MOST_ARGUMENTS)
        return f"operator {_placed(finding)}, one of several that exist only in the {side} ({chained}); {readers}"
    return f"operator {_subject(finding)} exists only in the {side}; {readers}"


def _rise_text(finding: Finding, by_flow: bool) -> str:
    """Return how the error rises from the layer's inputs to its output; empty if the inputs' error is unknown."""
    rise, rmse = finding.figures.get("rise", math.nan), finding.figures.get("rmse", math.nan)
    known = by_flow and math.isfinite(rise) and rmse - rise > 0
    return f"RMSE rises from {rmse - rise:.3g} in its inputs to {rmse:.3g} in its output" if known else ""


def further_causes(causes: Sequence[Finding]) -> Iterator[str]:
    """Yield one sentence on the causes after the first."""
    if causes:
        texts = (f"{called(one)}: {_error_text(one)}" if _has_error(one) else called(one) for one in causes)
        yield f"Further possible causes: {'; '.join(texts)}."


def argument_text(finding: Finding) -> str:
    """Return the text on an argument, a type or a weight that differs."""
    facts = finding.facts
    of = f" ({finding.op_type})" if finding.op_type else ""
    where = f" in {facts['module']}" if facts.get("module") else ""
    operator = f"{shortened(finding.layer)}{of}{where}{_at(finding)}"
    if facts["what"] == "reads":
        return (
            f"{operator}: the sample reads the output of {facts['sample']}, the benchmark reads "
            f"{facts['benchmark']}; relative error of this input {finding.figures['error']:.3g}"
        )
    what = _ARGUMENTS[facts["what"]].format(name=facts["argument"])
    if not finding.figures:
        return f"the {what} differs at {operator}: {facts['sample']} in sample, {facts['benchmark']} in benchmark"
    other = f" (the sample reads {facts['sample']})" if facts["sample"] else ""
    return f"the {what} differs at {operator}{other}: relative error {finding.figures['error']:.3g}"


def between_rounds_text(finding: Finding) -> str:
    """Return where two programs differ outside their modules."""
    facts = finding.facts
    names = listed([shortened(name) for name in finding.names], FEW)
    inputs = f"all earlier rounds are equal, but inputs of this round differ ({names})" if names else ""
    where = "the first difference is between two rounds (calls of the model), for example in sampling"
    if "source" not in facts:
        unlike = [
            f"{facts[f'unlike {side}']} in the {side}" for side in ("sample", "benchmark") if f"unlike {side}" in facts
        ]
        is_recorded = facts["recorded"] != "no"
        seen = "the operators recorded there are equal" if is_recorded else "the operators there were not recorded"
        if unlike:
            seen = f"the operators there first differ at {' and '.join(unlike)}"
        return f"{where}; {inputs}; {seen}"
    at = " and ".join(dict.fromkeys(line for line in (facts["sample source"], facts["source"]) if line))
    operator = f"{finding.op_type}{f', called at {at},' if at else ''}"
    if "argument" in facts:
        what = f"'{facts['argument']}' is {facts['sample']} in the sample and {facts['benchmark']} in the benchmark"
        text = f"{operator} has equal input tensors in both dumps, but its argument {what}"
    else:
        why = ", because it draws random numbers" if "random" in facts else ""
        text = f"{operator} has equal input tensors in both dumps, but different outputs{why}"
    return f"{where}. Operator {text}{f'; {inputs}' if inputs else ''}"


def explanation_text(finding: Finding, images: int = 0) -> str:
    """Return the text on a finding that explains the error without naming a single fault."""
    figures = finding.figures
    if finding.kind == "rounding":
        return _rounding_text(finding)
    if finding.kind == "magnified":
        rounded = finding.facts["rounded"]
        first = "" if rounded == finding.layer else f"; first rounding error at {shortened(rounded)}"
        return (
            f"operator {_subject(finding)} magnifies rounding errors {figures['times']:.3g} times (relative error "
            f"{figures['before']:.3g} → {figures['error']:.3g}{first})"
        )
    return str(plugins.ask("text of a measured cause", finding, images))


def _rounding_text(finding: Finding) -> str:
    types, why = finding.facts["types"], finding.facts.get("why")
    if inside := finding.facts.get("inside"):
        return (
            f"the outputs of all modules agree within rounding. Inside a module, {shortened(inside)} differs first, "
            f"but the outputs are unaffected"
        )
    if why:
        return (
            f"rounding to {types} can explain all differences of weights, arguments and operators. The operators "
            f"were not recomputed, because torch is not installed: pip install 'sgsdump[torch]'"
        )
    unseen = finding.facts.get("unseen")
    but = f"; the quantised weights of {unseen} were not checked" if unseen else ""
    return (
        f"all differences are caused by rounding to {types}. The weights, arguments and results of all operators were "
        f"checked{but}"
    )


def called(finding: Finding) -> str:
    """Return the name of the layer, with its operator."""
    name = shortened(finding.layer)
    return f"{name} ({finding.op_type})" if finding.op_type not in ("", finding.layer) else name


def _placed(finding: Finding) -> str:
    """Return the name of the layer, and the line of the program that calls it."""
    return f"{called(finding)}{_at(finding)}"


def _subject(finding: Finding) -> str:
    """Return ``_placed`` before a verb."""
    return f"{_placed(finding)}{',' if _at(finding) else ''}"


def _at(finding: Finding) -> str:
    return f", called at {finding.facts['source']}" if finding.facts.get("source") else ""


def _has_error(finding: Finding) -> bool:
    """Return whether the finding says how far the two sides differ."""
    return bool(finding.figures) and "bound" not in finding.figures


def _error_text(finding: Finding, figures: str = "") -> str:
    """Return how far the two sides differ, and in which way; ``figures``: other words for the figures."""
    how = finding.facts.get("how", "")
    text = figures or figures_text(finding, 3)
    if how == "times":
        return f"{text}; the sample equals the benchmark times {finding.figures['factor']:.6g}"
    return f"{text}; {_HOW[how]}" if how in _HOW else text


def figures_text(finding: Finding, digits: int = 6) -> str:
    """Return how far a tensor is off, in the figures of its kind of values; ``digits`` 3: significant digits."""
    figures = finding.figures
    if odd := odd_text(finding):
        return odd
    if "differing" in figures:
        return f"{figures['differing']:.0f} of {figures['count']:.0f} values differ"
    if "statistics_error" in figures:
        error = figures["statistics_error"]
        if error == LEAST:
            return "statistics equal, checksums differ"
        return f"statistics differ by {error:.3g}" if error else "all statistics equal"
    if "cos" not in figures:
        name, error = next(
            ((n, figures[n]) for n in ("error", "own_error") if n in figures), next(iter(figures.items()))
        )
        return "checksums differ" if error == LEAST else f"{_METRICS.get(name, name)} {error:.3g}"
    if not figures["rmse"]:
        return "all values equal"
    if digits == 3:
        return f"RMSE {figures['rmse']:.3g}"
    cos = "" if math.isnan(figures["cos"]) else f"COS {number(figures['cos'])}, "
    return f"{cos}RMSE {number(figures['rmse'])}"


def odd_text(finding: Finding) -> str:
    """Return NaN and Inf of both sides, such as ``5 NaN in the sample, 2 Inf in the benchmark``; "" for none."""
    counts = (
        (finding.figures.get(f"{side}_{odd.lower()}", 0), odd, side)
        for side in ("sample", "benchmark")
        for odd in ("NaN", "Inf")
    )
    return ", ".join(f"{count:,.0f} {odd} in the {side}" for count, odd, side in counts if count)


def _outside_text(finding: Finding) -> str:
    figures = finding.figures
    return (
        f"element {figures['index']:.0f} is {figures['value']:.9g} instead of "
        f"{figures['reference']:.9g}: error {figures['error']:.3g} units in the last place of "
        f"{finding.facts['dtype']}, bound {figures['bound']:.3g} units; "
        f"{figures['outside']:.0f} of {counted(int(figures['count']), 'element')} exceed the bound"
    )
