"""The sentences of a comparison, made once for every report: the remark on a layer, the verdict, what to do next.

They are made of facts, and nothing reads them to decide.
"""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType

from sgsdump.comparison.alignment import NAME_WAYS
from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.dataflow import first_difference
from sgsdump.comparison.finding import KINDS, Finding
from sgsdump.comparison.findings import findings_of
from sgsdump.comparison.naming.network import only_moves
from sgsdump.comparison.naming.pairs_by_quantisation import HOW as QUANTISED_VALUES
from sgsdump.comparison.packed_weights import PACKED
from sgsdump.comparison.row import EQUAL, LEAST, Row, is_rounding
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.errors import listed
from sgsdump.reports.text import counted, number, shortened, shown, unfused

MOST_JUMPS = 3
MOST_ARGUMENTS = 5
MOST_EXCLUDED = 5
MOST_NAMES = 60
WIDTH = 110
LONGEST = 72  # of a name in a sentence
CANCELLED = "cancellation: this gradient is zero in theory, both sides hold what rounding left of it"
_CALLED = {
    "argument": "argument {name}",
    "type": "element type",
    "weight": "weight {name}",
    "initializer": "initializer {name}",
    "input": "input {name}, which no compared operator made,",
}
UNWRITTEN = "nothing had been written to its memory yet"
_NAMES = " " * 4  # before names that share a reason
MOST_OUTPUTS = 4
MOST_OF_ENVIRONMENT, NOT_SET = 12, "not set"
_IN_ENVIRONMENT = {
    **dict.fromkeys(("selection", "versions", "settings", "drawn"), ""),
    **{"variables": "variable ", "random": "random "},
}
FEW = 3  # names in a sentence
MOST_CHANNELS = 3
_REARRANGED = "the same values in another order (channels or axes permuted)"
_HOW = {
    "rearranged": "its values are the benchmark's in another order (channels or axes permuted)",
    "zero": "all of the sample's values are 0",
    PACKED: "its quantised weights are not the benchmark's",
}
_WHERE = ("argument", "cause", "another tensor")


@dataclass(frozen=True)
class Step:
    """A next step: a sentence, and the text to copy for it ("" for none)."""

    text: str
    copy: str = ""


def remark(row: Row) -> str:
    """The remark beside a line's numbers: non-finite values, another tensor, how the pair was made."""
    remarks = []
    if not row.finite:
        remarks.append(
            f"NaN: {row.sample_nan} in sample, {row.benchmark_nan} in benchmark; "
            f"Inf: {row.sample_inf} in sample, {row.benchmark_inf} in benchmark"
        )
    if row.misnamed:
        remarks.append(str(row.misnamed))
    if row.sample_name != row.name and row.paired != "cut name":
        by = "" if row.paired in NAME_WAYS else f" by {row.paired}"
        of_both = f": {row.sample_name!r} of the sample, {row.name!r} of the benchmark"
        remarks.append(f"paired{by}{of_both if row.stage else f' with {row.sample_name!r} of the sample'}")
    if row.integers and not row.integers.unlike:
        remarks.append(str(row.integers))
    remarks += _beside(row)
    if row.runs:
        remarks.append(str(row.runs))
    if row.cancelled:
        remarks.append(CANCELLED)
    if row.note:
        remarks.append(row.note)
    if row.extra or row.vendor:
        remarks += filter(None, [row.dtype_note, _left_out(row), row.vendor_message])
    return "; ".join(remarks)


def _beside(row: Row) -> Iterator[str]:
    """What stands beside the figures of a row that they do not say."""
    if row.indices is not None:
        yield f"whole numbers: {figures_text(row)}"
    if row.rearranged:
        yield _REARRANGED
    if row.is_resolution and row.sums is not None and row.rmse > (DOCUMENTED.max_rmse or 0.0):
        mean = math.sqrt(row.sums.dd / row.count)
        yield f"off by {mean:.3g} (root mean square), within half a step of the sample's own scale ({row.step:.3g})"
    if row.channels is not None and row.channels.lost:
        channels = row.channels
        which = "is lost," if channels.lost == 1 else "are lost, the worst is"
        yield (
            f"{channels.lost} of {channels.count} channels {which} channel {channels.worst}, "
            f"RMSE {channels.worst_rmse:.6g}"
        )


def figures_text(row: Row) -> str:
    """How far a row is off, by what its kind of values has."""
    if row.indices is not None:
        differing, count = row.indices.differing, row.indices.count
        return f"{differing} of {count} values differ" if differing else f"all {count} values are equal"
    if row.checksums == EQUAL:
        return "checksums equal"
    if row.checksums and row.error in (LEAST, math.inf):
        return "statistics equal, checksums differ" if row.statistics else "checksums differ"
    if row.statistics:
        return f"statistics off by {row.error:.3g}"
    return f"COS {number(row.cos)}, RMSE {number(row.rmse)}"


def why(row: Row) -> str:
    """The remark, and why a row's verdict is ``warn`` where its line in a table does not tell."""
    tells = row.extra or row.vendor
    return "; ".join(filter(None, [remark(row), "" if tells else row.dtype_note]))


def trouble(row: Row) -> str:
    """NaN and Inf of either side, in a few words: ``sample 5 NaN, benchmark 2 Inf``; "" for none."""
    sides = []
    for side, nan, inf in (
        ("sample", row.sample_nan, row.sample_inf),
        ("benchmark", row.benchmark_nan, row.benchmark_inf),
    ):
        kinds = [f"{count:,} {kind}" for count, kind in ((nan, "NaN"), (inf, "Inf")) if count]
        sides += [f"{side} {' '.join(kinds)}"] if kinds else []
    return ", ".join(sides) if sides or row.count else "no values"


def left_out_title(missing: int, expected: int) -> str:
    """The heading over what was not compared: what is missing, and what the other dump cannot have."""
    without = f"Without counterpart, so not missing: {expected}"
    return f"Not compared: {missing}{f'. {without}' if expected else ''}" if missing or not expected else without


def by_reason(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The names under each reason, of (name, reason): one that many share is given once."""
    groups: dict[str, list[str]] = {}
    for name, reason in pairs:
        groups.setdefault(reason, []).append(name)
    return groups


def reason_lines(pairs: Iterable[tuple[str, str]], most: int | None = None) -> Iterator[str]:
    """Lines of (name, reason); a reason that several names share stands once, before all or ``most`` of them."""
    for reason, names in by_reason(pairs).items():
        if len(names) == 1:
            yield f"  {names[0]}: {reason}"
        else:
            yield f"  {reason} ({len(names)}):"
            yield f"{_NAMES}{listed(names, most or len(names))}"


def verdict(
    comparison: Comparison,
    thresholds: Thresholds = DOCUMENTED,
    blobs: Mapping[str, str] = MappingProxyType({}),
) -> tuple[str, ...]:
    """Sentences: how the outputs are, where that is known, and what is missing; how many layers are past the thresholds
    and which is worst; where the error arises. Then others, on what is not finite, misnamed or not compared.

    blobs  the Caffe blob that a layer is a stage of, by the layer's name.
    """

    def label(row: Row) -> str:
        return _label_in_prose(row, blobs.get(row.name, row.name))

    past, worst = comparison.past(thresholds), comparison.worst
    findings = findings_of(comparison, thresholds)
    head = tuple(headline(findings, comparison, thresholds))
    if worst is None:
        why = ("The table of what was left out gives the reasons.",) if comparison.failed or not head else ()
        return (*head, "No layer could be compared.", *why)
    count, of = len(comparison.rows), comparison.completeness.of
    if not any(row.count or row.statistics or row.checksums for row in comparison.rows):
        return ("No compared layer holds any values.",)
    compared = f"{count} compared layers{f' (of {of})' if of > count else ''}"
    if not worst.error:
        told = comparison.is_complete and not any(map(_is_by_statistics, comparison.rows))
        done = ("There is nothing to repair.",) if told else ()
        return (*head, *_all_equal(comparison), *done)
    first = (
        f"{len(past)} of {compared} {'is' if len(past) == 1 else 'are'} bad ({thresholds})"
        if past
        else f"None of {compared} is bad ({thresholds})"
    )
    which = "; the worst is"
    if count == 1:
        first, which = f"The only compared layer is {f'bad ({thresholds})' if past else 'good'}", ":"
    sentences = [*head, f"{first}{which} {label(worst)}, {figures_text(worst)}."]
    jumps = _rising(comparison, findings)
    if jumps:
        if comparison.completeness.by_flow:
            rises = [f"{label(row)}, from {error_before(row, comparison):.4f} to {row.error:.4f}" for row in jumps]
            sentences.append(f"RMSE rises most at {'; '.join(rises)}.")
        else:
            rises = [f"{label(row)}, to {row.error:.4f}" for row in jumps]
            sentences.append(f"RMSE rises most, in file order, at {'; '.join(rises)}.")
    not_finite = [row for row in comparison.rows if not row.finite and not row.equal]
    if not_finite:
        sentences.append(f"NaN or Inf in {counted(len(not_finite), 'layer')}, the first is {label(not_finite[0])}.")
    if comparison.suspects:
        sentences.append(f"{counted(len(comparison.suspects), 'pair')} of one name hold different tensors.")
    if comparison.failed:
        sentences.append(f"{counted(len(comparison.failed), 'pair')} could not be compared.")
    return tuple(sentences)


def headline(findings: Sequence[Finding], comparison: Comparison, thresholds: Thresholds = DOCUMENTED) -> Iterator[str]:
    """The first sentences: the environments, the outputs, what is missing, where the error arises and which channels
    are lost; ahead of them an argument, type or weight that differs where nothing does before it."""
    around = [finding for finding in findings if finding.kind == "environment"]
    yield from environment_lines(around)
    findings = [finding for finding in findings[len(around) :] if not (_is_by_inputs(finding) and _are_fed(around))]
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
            yield from _cause_sentences(list(those), comparison.completeness.by_flow)
        elif kind == "another tensor":
            yield from map(_other_tensor_sentence, those)
    yield from (f"NaN or Inf first at {_named(finding)}: {_odd_text(finding)}." for finding in not_finite)
    yield from map(_quantisation_sentence, of["quantisation"])
    yield from _channel_sentences(of["channel"])
    yield from map(_magnified_sentence, of["magnified"])
    yield from map(_rounding_sentence, of["rounding"])
    if any(finding.facts.get("why") == "statistics only" for finding in of["not judged"]):
        yield from _on_statistics(comparison)


def _are_fed(around: Sequence[Finding]) -> bool:
    """Whether the two programs were fed other whole numbers, which explain any difference."""
    return any(finding.facts["what"] == "inputs" for finding in around)


def _is_by_inputs(finding: Finding) -> bool:
    """Whether other inputs may be all that it tells of."""
    return finding.kind == "cause" or finding.facts.get("what") == "input"


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
        if finding.facts["what"] == "inputs":
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
    texts = [f"{shortened(finding.layer, LONGEST)}{_output_text(finding)}" for finding in ranked[:MOST_OUTPUTS]]
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
    what, names = finding.facts["what"], listed([shortened(name, LONGEST) for name in finding.names], FEW)
    if what == "more than half":
        compared, of = finding.figures["compared"], finding.figures["of"]
        return f"Incomplete: only {compared:.0f} of the benchmark's {of:.0f} layers could be compared."
    if what == "not comparable":
        why = f" ({finding.facts['why']})" if len(finding.names) == 1 else ""
        return f"Could not be compared: {counted(len(finding.names), 'pair')}, {names}{why}."
    return f"Missing from the sample: {counted(len(finding.names), what.removesuffix('s'))}, {names}."


def _cause_sentences(causes: Sequence[Finding], by_flow: bool) -> Iterator[str]:
    first, *others = causes
    figures = first.facts.get("unlike") or ("" if not _has_error(first) else _figures_of(first) + _how_text(first))
    if first.evidence == "measured" and "bound" in first.figures:
        yield f"The error arises at {_called(first)}, whose own result is outside its bound: {_outside_text(first)}."
    elif first.facts.get("how") == PACKED:
        yield (
            f"The error arises at {_called(first)}, whose quantised weights are not the benchmark's: its output is off "
            f"by {first.figures['times']:.3g} times what 8 bits cost."
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
            which = "the first to differ by more than rounding"
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
    first = "" if rounded == finding.layer else f", which was first rounded at {shortened(rounded, LONGEST)}"
    return (
        f"Rounding is magnified {figures['times']:.3g} times at {_called(finding)}: a relative error of "
        f"{figures['error']:.3g} from {figures['before']:.3g} in what it reads{first}; compute that in float32."
    )


def _rounding_sentence(finding: Finding) -> str:
    types, why = finding.facts["types"], finding.facts.get("why")
    if why:
        return (
            f"No weight, argument or operator differs but by rounding to {types}; the operators were not computed "
            f"again, which needs torch: pip install 'sgsdump[torch]'."
        )
    but = f"; not seen are the quantised weights of {unseen}" if (unseen := finding.facts.get("unseen")) else ""
    return f"What differs is rounding to {types}: weights, arguments and each operator's own result are within it{but}."


def _quantisation_sentence(finding: Finding) -> str:
    what, of = finding.facts["what"], int(finding.figures["operators"])
    if what == "alike":
        return f"Both networks quantise {of} operators alike: an exclusion between them took no effect."
    names = listed([shortened(name, LONGEST) for name in finding.names], FEW)
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
    count, of = sum(_is_by_statistics(row) for row in comparison.rows), len(comparison.rows)
    if any(row.error for row in comparison.rows):
        which = "the layers" if count == of else f"{count} of {of} layers"
        yield f"Not judged: the values of {which}; of those there are statistics only."


def _called(finding: Finding) -> str:
    """Its name, and where the program calls it."""
    return _named(finding) + (f", called at {finding.facts['source']}" if finding.facts.get("source") else "")


def _named(finding: Finding) -> str:
    name = shortened(finding.layer, LONGEST)
    return f"{name} ({finding.op_type})" if finding.op_type not in ("", finding.layer) else name


def _all_equal(comparison: Comparison) -> tuple[str, ...]:
    count, of = len(comparison.rows), comparison.completeness.of
    if not any(row.count or row.statistics or row.checksums for row in comparison.rows):
        return ("No compared layer holds any values.",)
    compared = f"{counted(count, 'compared layer')}{f' (of {of})' if of > count else ''}"
    if any(map(_is_by_statistics, comparison.rows)):
        doubt = "Equal statistics do not show that values are equal: the same values in another order have them too."
        return (f"All statistics of {sum(map(_is_by_statistics, comparison.rows))} of {compared} are equal.", doubt)
    by = ", by their checksums" if any(row.checksums for row in comparison.rows) else ""
    if count == 1:
        return (f"The {'only layer' if of <= 1 else compared.removeprefix('1 ')} holds the same values{by}.",)
    return (f"All {compared} hold the same values{by}.",)


def _is_by_statistics(row: Row) -> bool:
    return bool(row.statistics) and not row.checksums


def blamed(comparison: Comparison) -> Finding | None:
    """What is at fault whatever the size of its error: an argument or weight that differs, an operator outside its
    bound."""
    first = next((finding for finding in comparison.causes if finding.kind in ("argument", "cause")), None)
    return first if first is not None and (first.kind == "argument" or "bound" in first.figures) else None


def next_steps(comparison: Comparison, thresholds: Thresholds = DOCUMENTED) -> tuple[Step, ...]:
    """The advice of a comparison alone: look where the error rises, then let the model's own figures decide."""
    if not comparison.rows:
        return ()
    fault = blamed(comparison)
    if fault is not None and fault.kind == "argument":
        return (Step("Make what is named above the same on both sides, and compare again."),)
    if fault is not None:
        kernel = "Run the operator named above by another kernel, or in float32; list all that are outside their bound."
        return (Step(kernel, "sgsdump check TREE"),)
    kinds = {finding.kind for finding in findings_of(comparison, thresholds)}
    if not comparison.past(thresholds) and "channel" in kinds:
        return (Step("Look at the channels that are lost: a scale per channel or 16 bits keep them."),)
    if not comparison.past(thresholds) and not comparison.is_complete:
        return (Step("Dump what is missing, and compare again: what was compared is within the thresholds."),)
    if not comparison.past(thresholds):
        return (Step("Nothing has to be raised to INT16: every layer is within the thresholds."),)
    if any(row.paired == QUANTISED_VALUES for row in comparison.rows):
        measure = "Measure what each quantised tensor and weight does to the outputs, and what is to stay float."
        return (Step(measure, "sgsdump diagnose -m float.onnx -i inputs --fixed quantised.onnx"),)
    tune = "Let sgsdump find, by simulation, the convolutions that deserve INT16; it writes the [CONV_CONFIG] for them."
    below = ", all below them inherit it" if comparison.completeness.by_flow else " most, in the order of the file"
    return (
        Step(f"Select the layers marked with a triangle: there the error rises{below}."),
        Step(tune, "sgsdump tune -m float.onnx -i pictures --input-config input_config.ini -o tuned"),
    )


def verdict_text(comparison: Comparison, thresholds: Thresholds) -> str:
    """``verdict_lines``, control characters as escapes; lines of nothing but names (indented further) are wrapped."""
    lines = map(shown, verdict_lines(comparison, thresholds))
    return "".join(f"{part}\n" for line in lines for part in (_wrapped(line) if line.startswith(_NAMES) else [line]))


def verdict_lines(comparison: Comparison, thresholds: Thresholds) -> Iterator[str]:
    """The verdict under a table, as lines of any length, the further ones of a paragraph indented: which layer to look
    at, and every layer that was not compared."""
    rows, missing_rows = comparison.rows, _not_compared(comparison)
    findings = findings_of(comparison, thresholds)
    yield from headline(findings, comparison, thresholds)
    worst = comparison.worst
    if worst is not None and not worst.error:
        yield from _all_equal(comparison)
    of = len(rows) + missing_rows
    yield (
        f"Compared: {len(rows)} of the benchmark's {of} layers." if of > 1 else "Compared: the benchmark's only layer."
    )
    if comparison.excluded:
        more = " …" if len(comparison.excluded) > MOST_EXCLUDED else ""
        yield f"Excluded: {len(comparison.excluded)} ({', '.join(comparison.excluded[:MOST_EXCLUDED])}{more})."
    if comparison.unwritten:
        yield (
            f"Not compared, as nothing had been written to their memory yet: {len(comparison.unwritten)} "
            f"({listed(comparison.unwritten, MOST_NAMES)})."
        )
    ways = Counter([row.paired for row in rows] + [failed.pair.how for failed in comparison.failed])
    if ways.keys() - set(NAME_WAYS):
        yield f"Paired: {', '.join(f'{number} by {how}' for how, number in ways.most_common())}."
    if worst is not None:
        by = " by RMSE" if worst.extra or worst.vendor else ""
        equal = "statistics" if any(map(_is_by_statistics, rows)) else "values"
        yield f"Worst layer{by}: {_numbers(worst)}" if worst.error else f"Worst layer: none, all {equal} are equal."
    past = comparison.past(thresholds)
    if rows and not past:
        yield f"Past {thresholds}: none."
    elif past:
        yield f"Past {thresholds}: {len(past)} of {len(rows)}, the first is {_numbers(past[0])}"
    if blamed(comparison) is None:
        yield from _first_difference(rows)
    if any(row.extra or row.vendor for row in rows):
        verdicts = Counter(row.verdict(thresholds) for row in rows) + Counter({"not comparable": missing_rows})
        yield f"Verdicts: {', '.join(f'{count} {name}' for name, count in sorted(verdicts.items()))}."
    yield from _integers(comparison)
    jumps = _rising(comparison, findings)
    if jumps:
        yield "RMSE rises most at:" if comparison.completeness.by_flow else "RMSE rises most, in file order, at:"
    yield from (f"  {label(row)}, {_rise(row, comparison)}" for row in jumps)
    yield from _list("NaN or Inf, never within thresholds", [r for r in rows if not r.finite and not r.equal])
    yield from _list("Same name, another tensor (no threshold passes it)", comparison.suspects)
    fused = comparison.completeness.fused
    if fused:
        yield f"Inside fused operators (as on the chip), so not missing: {len(fused)}"
        yield f"{_NAMES}{listed(fused, MOST_NAMES)}"
    unpaired = [u for u in comparison.only_in_benchmark if u.record.name not in fused]
    unpaired += comparison.only_in_sample
    missing = [(failed.pair.benchmark.name, failed.reason) for failed in comparison.failed]
    missing += [(u.record.name, u.reason) for u in unpaired if not u.expected]
    if missing:
        yield f"Not compared: {len(missing)}"
    yield from reason_lines(missing, MOST_NAMES)
    expected = [(u.record.name, u.reason) for u in unpaired if u.expected]
    if expected:
        yield left_out_title(0, len(expected))
    yield from reason_lines(expected, MOST_NAMES)


def _rising(comparison: Comparison, findings: Sequence[Finding]) -> tuple[Row, ...]:
    """The rows whose error rises most, for want of a place that is known better; not those that hold whole numbers."""
    known = any(f.kind == "rounding" or (f.kind == "cause" and f.evidence != "by figures") for f in findings)
    if len(comparison.rows) < 2 or known:
        return ()
    return tuple(row for row in comparison.jumps if row.indices is None and not is_rounding(row))[:MOST_JUMPS]


def label(row: Row) -> str:
    """``3.conv1 (CONV_2D)``: the layer's place in the network, its name and its operator."""
    return f"{row.op_index}.{unfused(row.name)}" + (f" ({row.op_type})" if row.op_type not in ("", row.name) else "")


def argument_lines(comparison: Comparison) -> Iterator[str]:
    """What the operators were called with that differs, a line for each of the first ones."""
    arguments = [finding for finding in comparison.causes if finding.kind == "argument"]
    yield from map(argument_line, arguments[:MOST_ARGUMENTS])


def blamed_lines(comparison: Comparison) -> Iterator[str]:
    """``argument_lines``, and where the error arises if that is not the first layer that differs by more than rounding:
    a difference that rounding could explain has another cause then."""
    yield from argument_lines(comparison)
    cause = next((finding for finding in comparison.causes if finding.kind == "cause"), None)
    first = first_difference(comparison.rows, beyond_rounding=True)
    if cause is not None and (first is None or cause.layer != first.output.name):
        yield from _cause_sentences([cause], comparison.completeness.by_flow)


def argument_line(finding: Finding) -> str:
    """An argument, a type or a weight that differs, and of which operator."""
    facts = finding.facts
    of = f" ({finding.op_type})" if finding.op_type else ""
    where = f" in {facts['module']}" if facts.get("module") else ""
    at = f", called at {facts['source']}" if facts.get("source") else ""
    operator = f"{shortened(finding.layer, LONGEST)}{of}{where}{at}"
    what = _CALLED[facts["what"]].format(name=facts["argument"])
    if not finding.figures:
        return f"The {what} differs: {facts['sample']} in sample, {facts['benchmark']} in benchmark, at {operator}."
    other = f", where the sample reads {facts['sample']}" if facts["sample"] else ""
    return f"The {what} differs by {finding.figures['error']:.3g}{other}, at {operator}."


def error_before(row: Row, comparison: Comparison) -> float:
    """The largest error among the rows that feed this one; 0 of the network's input."""
    feeding = _feeding(row, comparison)
    return feeding.error if feeding else 0.0


def _feeding(row: Row, comparison: Comparison) -> Row | None:
    rows = {row.name: row for row in comparison.alike}
    return max((rows[name] for name in row.sources if name in rows), key=lambda source: source.error, default=None)


def _left_out(row: Row) -> str:
    """How many values the extra metrics left out, "" for none."""
    metrics: dict[int, list[str]] = {}
    for name, count in row.left_out.items():
        metrics.setdefault(count, []).append(name)
    return "; ".join(
        f"{count} values where only the benchmark is 0 left out of {', '.join(names)}"
        for count, names in metrics.items()
    )


def _label_in_prose(row: Row, blob: str) -> str:
    """The layer, by its Caffe blob where it is a stage of one; then its stage and its operator."""
    name, stage = (row.name, row.stage) if blob == row.name else (blob, row.name)
    beside = [shortened(text, LONGEST) for text in (stage, row.op_type) if text and text != name]
    return f"{shortened(name, LONGEST)} ({', '.join(beside)})" if beside else shortened(name, LONGEST)


def _numbers(row: Row) -> str:
    return f"{label(row)}, {figures_text(row)}."


def _rise(row: Row, comparison: Comparison) -> str:
    feeding = _feeding(row, comparison)
    if feeding is not None:
        return f"from {feeding.error:f} at {label(feeding)} to {row.error:f}"
    if not comparison.completeness.by_flow:
        return f"to {row.error:f}"
    return f"{row.origin}, {row.error:f}" if row.origin else f"from the input to {row.error:f}"


def _first_difference(rows: Sequence[Row]) -> Iterator[str]:
    """The first operator that differs, and where that is rounding alone the first that differs by more; not one that
    only moves what it reads."""
    rows = [row for row in rows if not only_moves(row.op_type)] or rows
    first = first_difference(rows)
    if first is None or not first.is_placed or any(row.step for row in rows):
        return  # of a quantised side the first layer differs always
    by = f" by rounding ({first.output.benchmark_dtype})" if is_rounding(first.output) else ""
    yield f"First operator that differs{by}: {first.output.op_index}.{first.where}: {first}."
    if by:
        more = first_difference(rows, beyond_rounding=True)
        which = f"{more.output.op_index}.{more.where}: {more}" if more else "none"
        yield f"First that differs by more: {which}."


def _integers(comparison: Comparison) -> Iterator[str]:
    """Of two runs of a fixed model: in how many layers they hold the same integers, and where the first ones differ,
    stored in another type or not."""
    rows = comparison.rows
    pairs = [(row, row.integers) for row in rows if row.integers]
    alike = [(row, integers) for row, integers in pairs if not integers.unlike]
    if not alike:
        return
    text = f"integers: {sum(integers.identical for _, integers in alike)} of {len(alike)} layers identical"
    differing = [
        (
            row.op_index,
            row.name,
            row.op_type,
            integers.unlike or f"{integers.differing} of {integers.count} values{integers.size}",
        )
        for row, integers in pairs
        if not integers.identical and not integers.is_hidden
    ]
    failed = [(failed.pair.benchmark, failed.unlike) for failed in comparison.failed if failed.unlike]
    differing += [(record.op_index, record.name, record.op_type, unlike) for record, unlike in failed]
    if differing:
        _, name, op_type, how = min(differing, key=lambda found: found[0])
        text += f"; the first that differs is {name}{f' ({op_type})' if op_type else ''}: {how}"
    yield text
    yield from (f"  {label(row)}: {integers}" for row, integers in pairs if integers.unlike)


def _not_compared(comparison: Comparison) -> int:
    """How many of the benchmark's layers have no row though they could; of several runs, in none of them."""
    records = [failed.pair.benchmark for failed in comparison.failed]
    fused = comparison.completeness.fused
    records += [u.record for u in comparison.only_in_benchmark if not u.expected and u.record.name not in fused]
    if not any(row.runs for row in comparison.rows):
        return len(records)
    return len({record.name for record in records} - {row.name for row in comparison.rows})


def _list(title: str, rows: Sequence[Row]) -> Iterator[str]:
    if rows:
        yield f"{title}: {len(rows)}"
    yield from reason_lines(((label(row), remark(row)) for row in rows), MOST_NAMES)


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, WIDTH, subsequent_indent=_NAMES, break_long_words=False, break_on_hyphens=False)
