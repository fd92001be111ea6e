"""The sentences of a comparison, made once for every report: the remark on a layer, the verdict, what to do next.

They are made of facts, and nothing reads them to decide.
"""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from sgsdump.comparison.alignment import NAME_WAYS
from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.dataflow import first_difference, is_rounding
from sgsdump.comparison.finding import Finding
from sgsdump.comparison.findings import findings_of
from sgsdump.comparison.row import EQUAL, LEAST, Row
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.errors import listed
from sgsdump.reports.text import counted, shortened, shown

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
    "input": "input {name}, which no compared operator made,",
}
UNWRITTEN = "nothing had been written to its memory yet"
_NAMES = " " * 4  # before names that share a reason
MOST_OUTPUTS = 4
FEW = 3  # names in a sentence
_HOW = {"rearranged": "the same values in another order (channels or axes permuted)"}


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
        yield _HOW["rearranged"]
    if row.is_resolution and row.sums is not None and row.rmse > (DOCUMENTED.max_rmse or 0.0):
        mean = math.sqrt(row.sums.dd / row.count)
        yield f"off by {mean:.3g} (root mean square), within half a step of the sample's own scale ({row.step:.3g})"
    if row.channels is not None and row.channels.lost:
        channels = row.channels
        yield (
            f"{channels.lost} of {channels.count} channels are lost, the worst is channel {channels.worst}, "
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
        return f"statistics apart by {row.error:.3g}"
    return f"COS {row.cos:f}, RMSE {row.rmse:f}"


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
    if worst is None:
        return ("No layer could be compared.", "The table of what was left out gives the reasons.")
    findings = findings_of(comparison, thresholds)
    head = tuple(headline(findings, comparison, thresholds))
    count, of = len(comparison.rows), comparison.completeness.of
    compared = f"{count} compared layers{f' (of {of})' if of > count else ''}"
    if not worst.error:
        return (*head, *_all_equal(comparison, compared))
    first = (
        f"{len(past)} of {compared} {'is' if len(past) == 1 else 'are'} bad ({thresholds})"
        if past
        else f"None of {compared} is bad ({thresholds})"
    )
    figures = f"RMSE {worst.rmse:f}, COS {worst.cos:f}" if _is_plain(worst) else figures_text(worst)
    sentences = [*head, f"{first}; the worst is {label(worst)}, {figures}."]
    jumps = comparison.jumps[:MOST_JUMPS]
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
    """The first sentences: the outputs, what is missing, where the error arises and which channels are lost."""
    outputs = [finding for finding in findings if finding.kind == "output"]
    arguments = [finding for finding in findings if finding.kind == "argument"]
    for finding in findings:
        if outputs and finding is outputs[0] and any(map(_is_off, outputs)):
            yield _outputs_sentence(outputs, comparison, thresholds)
        elif finding.kind == "missing":
            yield _missing_sentence(finding)
        elif finding.kind == "argument" and finding in arguments[:MOST_ARGUMENTS]:
            yield argument_line(finding)
        elif finding.kind == "cause":
            yield _cause_sentence(finding)
        elif finding.kind == "channel":
            lost, count, worst = (finding.figures[name] for name in ("lost", "count", "worst_rmse"))
            yield (
                f"{_named(finding)} looks right as a whole, and {lost:.0f} of its {count:.0f} channels are lost: the "
                f"worst is channel {finding.facts['worst']}, RMSE {worst:.6g}."
            )


def _outputs_sentence(outputs: Sequence[Finding], comparison: Comparison, thresholds: Thresholds) -> str:
    ranked = sorted(outputs, key=lambda finding: finding.facts["verdict"] == "within")
    past = sum(finding.facts["verdict"] == "past" for finding in outputs)
    texts = [f"{shortened(finding.layer, LONGEST)} {_figures_of(finding)}" for finding in ranked[:MOST_OUTPUTS]]
    texts += [f"and {len(ranked) - MOST_OUTPUTS} more"] if len(ranked) > MOST_OUTPUTS else []
    outcome = f"{past} of {len(outputs)} past the limits" if past else "within the limits"
    inner = 0 if past else len(comparison.past(thresholds))
    beside = (
        f"; {counted(inner, 'inner layer')} {'is' if inner == 1 else 'are'} past the thresholds, which did not reach "
        f"the {'output' if len(outputs) == 1 else 'outputs'}"
        if inner
        else ""
    )
    return f"{'Output' if len(outputs) == 1 else 'Outputs'}: {', '.join(texts)}: {outcome}{beside}."


def _is_off(finding: Finding) -> bool:
    return bool(
        finding.figures.get("rmse") or finding.figures.get("differing") or finding.figures.get("statistics_error")
    )


def _figures_of(finding: Finding) -> str:
    figures = finding.figures
    if "differing" in figures:
        return f"{figures['differing']:.0f} of {figures['count']:.0f} values differ"
    if "statistics_error" in figures:
        return f"statistics apart by {figures['statistics_error']:.3g}"
    if "cos" not in figures:
        return f"relative error {figures['error']:.3g}"
    return f"COS {figures['cos']:f} RMSE {figures['rmse']:f}"


def _missing_sentence(finding: Finding) -> str:
    what, names = finding.facts["what"], listed([shortened(name, LONGEST) for name in finding.names], FEW)
    many = len(finding.names)
    if what == "outputs":
        return f"Missing: {counted(many, 'output')} of the benchmark that the sample lacks: {names}."
    if what == "runs":
        return f"Missing: {counted(many, 'run')} of the benchmark that the sample lacks: {names}."
    if what == "more than half":
        compared, of = finding.figures["compared"], finding.figures["of"]
        return f"Incomplete: only {compared:.0f} of the benchmark's {of:.0f} layers could be compared."
    if what == "not comparable":
        return f"Not comparable: {counted(many, 'pair')}, {names}."
    return f"Missing: {counted(many, 'layer')} of the benchmark that the sample lacks: {names}."


def _cause_sentence(finding: Finding) -> str:
    how = finding.facts.get("how", "")
    figures = _figures_of(finding) + (f", {_HOW.get(how, f'the benchmark {how}')}" if how else "")
    if finding.evidence == "by value":
        return f"The error arises at {_named(finding)}, which differs while all that feeds it is equal: {figures}."
    return f"By its figures the error arises at {_named(finding)}: {figures}."


def _named(finding: Finding) -> str:
    name = shortened(finding.layer, LONGEST)
    return f"{name} ({finding.op_type})" if finding.op_type else name


def _all_equal(comparison: Comparison, compared: str) -> tuple[str, ...]:
    by_statistics = [row for row in comparison.rows if row.statistics and not row.checksums]
    if by_statistics:
        doubt = "Equal statistics do not show that values are equal: the same values in another order have them too."
        return (f"All statistics of {len(by_statistics)} of {compared} are equal.", doubt)
    by = ", by their checksums" if any(row.checksums for row in comparison.rows) else ""
    return (f"All {compared} hold the same values{by}.", "There is nothing to repair.")


def _is_plain(row: Row) -> bool:
    return not row.statistics and not row.checksums and row.indices is None


def next_steps(comparison: Comparison, thresholds: Thresholds = DOCUMENTED) -> tuple[Step, ...]:
    """The advice of a comparison alone: look where the error rises, then let the model's own figures decide."""
    if not comparison.rows:
        return ()
    kinds = {finding.kind for finding in findings_of(comparison, thresholds)}
    if not comparison.past(thresholds) and "channel" in kinds:
        return (Step("Look at the channels that are lost: a scale per channel or 16 bits keep them."),)
    if not comparison.past(thresholds) and not comparison.is_complete:
        return (Step("Dump what is missing, and compare again: what was compared is within the thresholds."),)
    if not comparison.past(thresholds):
        return (Step("Nothing has to be raised to INT16: every layer is within the thresholds."),)
    tune = "Let sgsdump find, by simulation, the convolutions that deserve INT16; it writes the [CONV_CONFIG] for them."
    return (
        Step("Select the layers marked with a triangle: there the error rises, all below them inherit it."),
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
    yield f"Compared: {len(rows)} of the benchmark's {len(rows) + missing_rows} layers."
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
    worst = comparison.worst
    if worst is not None:
        by = " by RMSE" if worst.extra or worst.vendor else ""
        equal = "statistics" if any(row.statistics and not row.checksums for row in rows) else "values"
        yield f"Worst layer{by}: {_numbers(worst)}" if worst.error else f"Worst layer: none, all {equal} are equal."
    past = comparison.past(thresholds)
    if rows and not past:
        yield f"Past {thresholds}: none."
    elif past:
        yield f"Past {thresholds}: {len(past)} of {len(rows)}, the first is {_numbers(past[0])}"
    yield from _first_difference(rows)
    if any(row.extra or row.vendor for row in rows):
        verdicts = Counter(row.verdict(thresholds) for row in rows) + Counter({"not comparable": missing_rows})
        yield f"Verdicts: {', '.join(f'{count} {name}' for name, count in sorted(verdicts.items()))}."
    yield from _integers(comparison)
    jumps = comparison.jumps[:MOST_JUMPS]
    if jumps:
        yield "RMSE rises most at:" if comparison.completeness.by_flow else "RMSE rises most, in file order, at:"
    yield from (f"  {label(row)}, {_rise(row, comparison)}" for row in jumps)
    yield from _list("NaN or Inf, never within thresholds", [r for r in rows if not r.finite and not r.equal])
    yield from _list("Same name, another tensor (no threshold passes it)", comparison.suspects)
    if comparison.completeness.fused:
        yield f"Inside fused operators (as on the chip), so not missing: {len(comparison.completeness.fused)}"
    unpaired = comparison.only_in_benchmark + comparison.only_in_sample
    missing = [(failed.pair.benchmark.name, failed.reason) for failed in comparison.failed]
    missing += [(u.record.name, u.reason) for u in unpaired if not u.expected]
    if missing:
        yield f"Not compared: {len(missing)}"
    yield from reason_lines(missing, MOST_NAMES)
    expected = [(u.record.name, u.reason) for u in unpaired if u.expected]
    if expected:
        yield left_out_title(0, len(expected))
    yield from reason_lines(expected, MOST_NAMES)


def label(row: Row) -> str:
    """``3.conv1 (CONV_2D)``: the layer's place in the network, its name and its operator."""
    return f"{row.op_index}.{row.name}" + (f" ({row.op_type})" if row.op_type else "")


def argument_lines(comparison: Comparison) -> Iterator[str]:
    """What the operators were called with that differs, a line for each of the first ones."""
    arguments = [finding for finding in comparison.causes if finding.kind == "argument"]
    yield from map(argument_line, arguments[:MOST_ARGUMENTS])


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
    return f"The {what} differs by {finding.figures['error']:.3g}, at {operator}."


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
    beside = [shortened(text, LONGEST) for text in (stage, row.op_type) if text]
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
    """The first operator that differs, and where that is rounding alone the first that differs by more."""
    first = first_difference(rows)
    if first is None or not first.is_placed:
        return
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
    records += [unpaired.record for unpaired in comparison.only_in_benchmark if not unpaired.expected]
    if not any(row.runs for row in comparison.rows):
        return len(records)
    return len({record.name for record in records} - {row.name for row in comparison.rows})


def _list(title: str, rows: Sequence[Row]) -> Iterator[str]:
    if rows:
        yield f"{title}: {len(rows)}"
    yield from reason_lines(((label(row), remark(row)) for row in rows), MOST_NAMES)


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, WIDTH, subsequent_indent=_NAMES, break_long_words=False, break_on_hyphens=False)
