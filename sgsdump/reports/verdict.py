"""The verdict on a comparison, for every report: how many layers are bad, what is missing, what to do next.

They are made of facts, and nothing reads them to decide.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from sgsdump.comparison.alignment import NAME_WAYS
from sgsdump.comparison.dataflow import first_difference
from sgsdump.comparison.finding import Finding
from sgsdump.comparison.naming.network import only_moves
from sgsdump.comparison.row import Row, is_rounding
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.comparison.verdict import blamed, named_elsewhere
from sgsdump.errors import listed
from sgsdump.reports.headline import (
    MOST_ARGUMENTS,
    argument_line,
    between_rounds_sentence,
    cause_sentences,
    headline,
)
from sgsdump.reports.remarks import (
    NAMES_INDENT,
    error_before,
    feeding_row,
    figures_text,
    label,
    label_in_prose,
    left_out_title,
    reason_lines,
    remark,
)
from sgsdump.reports.text import counted, shown

if TYPE_CHECKING:
    from sgsdump.comparison.comparison import Comparison

MOST_JUMPS = 3
MOST_EXCLUDED = 5
MOST_NAMES = 60
WIDTH = 110
UNWRITTEN = "nothing had been written to its memory yet"


@dataclass(frozen=True)
class Step:
    """A next step: a sentence, and the text to copy for it ("" for none)."""

    text: str
    copy: str = ""


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
        return label_in_prose(row, blobs.get(row.name, row.name))

    past, worst = comparison.past(thresholds), comparison.worst
    findings = comparison.findings(thresholds)
    head = tuple(headline(findings, comparison, thresholds))
    if worst is None:
        why = ("The table of what was left out gives the reasons.",) if comparison.failed or not head else ()
        return (*head, "No layer could be compared.", *why)
    count, of = len(comparison.rows), comparison.of
    if not any(row.count or row.statistics or row.checksums for row in comparison.rows):
        return ("No compared layer holds any values.",)
    compared = f"{count} compared layers{f' (of {of})' if of > count else ''}"
    if not worst.error:
        told = comparison.is_complete and not any(row.is_by_statistics for row in comparison.rows)
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


def _all_equal(comparison: Comparison) -> tuple[str, ...]:
    count, of = len(comparison.rows), comparison.of
    if not any(row.count or row.statistics or row.checksums for row in comparison.rows):
        return ("No compared layer holds any values.",)
    compared = f"{counted(count, 'compared layer')}{f' (of {of})' if of > count else ''}"
    if any(row.is_by_statistics for row in comparison.rows):
        doubt = "Equal statistics do not show that values are equal: the same values in another order have them too."
        return (
            f"All statistics of {sum(row.is_by_statistics for row in comparison.rows)} of {compared} are equal.",
            doubt,
        )
    by = ", by their checksums" if any(row.checksums for row in comparison.rows) else ""
    if count == 1:
        return (f"The {'only layer' if of <= 1 else compared.removeprefix('1 ')} holds the same values{by}.",)
    return (f"All {compared} hold the same values{by}.",)


_STEPS = {
    "use the same input": "Dump both models on the same input, and compare again.",
    "make calls alike": "Make what is named above the same on both sides, and compare again.",
    "change the operator": (
        "Run the operator named above by another kernel, or in float32; list all that are outside their bound."
    ),
    "keep channels": "Look at the channels that are lost: a scale per channel or 16 bits keep them.",
    "dump what is missing": "Dump what is missing, and compare again: what was compared is within the thresholds.",
    "nothing": "Nothing has to be raised to INT16: every layer is within the thresholds.",
    "measure quantised tensors": (
        "Measure what each quantised tensor and weight does to the outputs, and what is to stay float."
    ),
    "raise convolutions": (
        "Let sgsdump find, by simulation, the convolutions that deserve INT16; it writes the [CONV_CONFIG] for them."
    ),
}


def next_steps(comparison: Comparison, thresholds: Thresholds = DOCUMENTED) -> tuple[Step, ...]:
    """Return what the verdict recommends, in sentences."""
    recommended = comparison.verdict(thresholds).recommendation
    if recommended is None:
        return ()
    step = Step(_STEPS[recommended.action], recommended.command)
    if recommended.action != "raise convolutions":
        return (step,)
    below = ", all below them inherit it" if comparison.completeness.by_flow else " most, in the order of the file"
    return Step(f"Select the layers marked with a triangle: there the error rises{below}."), step


def verdict_text(comparison: Comparison, thresholds: Thresholds) -> str:
    """``verdict_lines``, control characters as escapes; lines of nothing but names (indented further) are wrapped."""
    lines = map(shown, verdict_lines(comparison, thresholds))
    return "".join(
        f"{part}\n" for line in lines for part in (_wrapped(line) if line.startswith(NAMES_INDENT) else [line])
    )


def verdict_lines(comparison: Comparison, thresholds: Thresholds, around: bool = True) -> Iterator[str]:
    """The verdict under a table, as lines of any length, the further ones of a paragraph indented: which layer to look
    at, and every layer that was not compared; ``around``: in what the runs differ beside their tensors, too."""
    rows, of = comparison.rows, comparison.of
    findings = comparison.findings(thresholds)
    yield from headline(findings, comparison, thresholds, around)
    worst = comparison.worst
    if worst is not None and not worst.error:
        yield from _all_equal(comparison)
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
        equal = "statistics" if any(row.is_by_statistics for row in rows) else "values"
        yield f"Worst layer{by}: {_numbers(worst)}" if worst.error else f"Worst layer: none, all {equal} are equal."
    past = comparison.past(thresholds)
    if rows and not past:
        yield f"Past {thresholds}: none."
    elif past:
        yield f"Past {thresholds}: {len(past)} of {len(rows)}, the first is {_numbers(past[0])}"
    if blamed(comparison.causes) is None and comparison.other_input is None:
        yield from _first_difference(rows, comparison.causes)
    if any(row.extra or row.vendor for row in rows):
        verdicts = Counter(row.verdict(thresholds) for row in rows) + Counter({"not comparable": of - len(rows)})
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
        are_of_program = any(row.module for row in rows)
        which = (
            "Outputs of operators that the sample does not run"
            if are_of_program
            else "Inside fused operators (as on the chip)"
        )
        yield f"{which}, so not missing: {len(fused)}"
        yield f"{NAMES_INDENT}{listed(fused, MOST_NAMES)}"
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


def blamed_lines(comparison: Comparison) -> Iterator[str]:
    """What the operators were called with that differs, a line for each of the first ones; and where the error arises
    if that is not the first layer that differs by more than rounding: a difference that rounding could explain has
    another cause then."""
    yield from (between_rounds_sentence(one) for one in comparison.causes if one.kind == "between rounds")
    arguments = [finding for finding in comparison.causes if finding.kind == "argument"]
    yield from map(argument_line, arguments[:MOST_ARGUMENTS])
    first = first_difference(comparison.rows, beyond_rounding=True)
    causes = [finding for finding in comparison.causes if finding.kind == "cause"][:1]
    if named_elsewhere(causes, "" if first is None else first.output.name) is not None:
        yield from cause_sentences(causes, comparison.completeness.by_flow)


def _rising(comparison: Comparison, findings: Sequence[Finding]) -> tuple[Row, ...]:
    """Return the rows whose error rises most, none of whole numbers. Where a better known cause stands, return none,
    unless that layer left the rounding floor and another one has the largest rise."""
    if comparison.other_input is not None:
        return ()
    known = [f for f in findings if f.kind == "rounding" or (f.kind == "cause" and f.evidence != "by figures")]
    if len(comparison.rows) < 2 or any("before" not in finding.figures for finding in known):
        return ()
    rising = tuple(row for row in comparison.jumps if row.indices is None and not is_rounding(row))[:MOST_JUMPS]
    return () if known and rising and rising[0].name == known[0].layer else rising


def _numbers(row: Row) -> str:
    return f"{label(row)}, {figures_text(row)}."


def _rise(row: Row, comparison: Comparison) -> str:
    feeding = feeding_row(row, comparison)
    if feeding is not None:
        return f"from {feeding.error:f} at {label(feeding)} to {row.error:f}"
    if not comparison.completeness.by_flow:
        return f"to {row.error:f}"
    return f"{row.origin}, {row.error:f}" if row.origin else f"from the input to {row.error:f}"


def _first_difference(rows: Sequence[Row], causes: Sequence[Finding]) -> Iterator[str]:
    """The first operator that differs, and where that is rounding alone the first that differs by more; not one that
    only moves what it reads, nor one that has no part in a cause that is known."""
    rows = [row for row in rows if not only_moves(row.op_type)] or rows
    first = first_difference(rows)
    if first is None or not first.is_placed or any(row.step for row in rows):
        return  # of a quantised side the first layer differs always
    more = first_difference(rows, beyond_rounding=True)
    is_explained = any("inside" in finding.facts for finding in causes)
    if is_explained or named_elsewhere(causes, "" if more is None else more.output.name) is not None:
        return
    by = f" by rounding ({first.output.benchmark_dtype})" if is_rounding(first.output) else ""
    yield f"First operator that differs{by}: {first.output.op_index}.{first.where}: {first}."
    if by:
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


def _list(title: str, rows: Sequence[Row]) -> Iterator[str]:
    if rows:
        yield f"{title}: {len(rows)}"
    yield from reason_lines(((label(row), remark(row)) for row in rows), MOST_NAMES)


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, WIDTH, subsequent_indent=NAMES_INDENT, break_long_words=False, break_on_hyphens=False)
