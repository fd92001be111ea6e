"""The verdict on a comparison, for every report: the first lines, further sentences, and the next steps.

Sentences are written from findings and figures, and no program logic reads them.
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
from sgsdump.comparison.verdict import Verdict, blamed, named_elsewhere
from sgsdump.errors import listed
from sgsdump.reports.cause_text import MOST_ARGUMENTS, argument_text, between_rounds_text, cause_text
from sgsdump.reports.further_findings import further_findings
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
from sgsdump.reports.three_lines import verdict_block

if TYPE_CHECKING:
    from sgsdump.comparison.comparison import Comparison

MOST_JUMPS = 3
MOST_EXCLUDED = 5
MOST_NAMES = 60
WIDTH = 110
UNWRITTEN = "the program had not yet written its memory when it was dumped"


@dataclass(frozen=True)
class Step:
    """A next step: a sentence, and the text to copy ("" for none)."""

    text: str
    copy: str = ""


def details(
    comparison: Comparison,
    thresholds: Thresholds,
    verdict: Verdict,
    blobs: Mapping[str, str] = MappingProxyType({}),
) -> tuple[str, ...]:
    """Return the sentences that follow the first lines of the verdict on a page.

    Parameters
    ----------
    comparison
        The comparison.
    thresholds
        Limits that mark layers as bad.
    verdict
        The verdict, whose sentences are not repeated.
    blobs
        Caffe blob that a layer is a stage of, by the layer's name.
    """

    def label(row: Row) -> str:
        return label_in_prose(row, blobs.get(row.name, row.name))

    findings = comparison.findings(thresholds)
    sentences = [*further_findings(findings, comparison, verdict, thresholds)]
    if comparison.worst is None or not comparison.worst.error:
        return tuple(sentences)
    past, worst = comparison.past(thresholds), comparison.worst
    if past and len(comparison.rows) > 1:
        sentences.append(f"{len(past)} of {counted(len(comparison.rows), 'layer')} exceed the limits ({thresholds}).")
    sentences.append(f"Largest error: {label(worst)}, {figures_text(worst)}.")
    jumps = _rising(comparison, findings)
    if jumps:
        if comparison.completeness.by_flow:
            rises = [f"{label(row)}, {error_before(row, comparison):.3g} → {row.error:.3g}" for row in jumps]
            sentences.append(f"RMSE rises most at {'; '.join(rises)}.")
        else:
            rises = [f"{label(row)}, to {row.error:.3g}" for row in jumps]
            sentences.append(f"RMSE rises most, in file order, at {'; '.join(rises)}.")
    return tuple(sentences)


_STEPS = {
    "use the same input": "Dump both models on the same input, then compare again.",
    "make calls alike": "Remove the difference named as the cause, then compare again.",
    "change the operator": (
        "Run the operator with another kernel or in float32. The command lists all operators outside their rounding "
        "bound."
    ),
    "keep channels": "Small channels are quantised to zero: use one scale per channel, or raise the layers to INT16.",
    "dump what is missing": "Dump the missing layers, then compare again. The compared layers are within the limits.",
    "nothing": "No INT16 needed: every layer is within the limits.",
    "measure quantised tensors": (
        "Measure the contribution of each quantised tensor, and find the tensors to keep in float."
    ),
    "make layers comparable": "Check why layers are not comparable.",
    "compare the operator": (
        "Compare the attributes, weights and implementation of the operator in sample and benchmark. If the sample "
        "is a fixed-point model, find the convolutions that need INT16."
    ),
    "find convolutions": (
        "Find the convolutions that need INT16. The command verifies its plan by simulation and writes [CONV_CONFIG]."
    ),
}


def next_steps(comparison: Comparison, thresholds: Thresholds = DOCUMENTED) -> tuple[Step, ...]:
    """Return the recommended steps, in sentences."""
    recommended = comparison.verdict(thresholds).recommendation
    if recommended is None:
        return ()
    step = Step(_STEPS[recommended.action], recommended.command)
    if recommended.action not in ("find convolutions", "compare the operator"):
        return (step,)
    below = ", and later layers inherit it" if comparison.completeness.by_flow else " most, in file order"
    return Step(f"Select the layers marked with a triangle: the error rises there{below}."), step


def verdict_text(comparison: Comparison, thresholds: Thresholds, conclusion: Verdict | None = None) -> str:
    """Return the first lines and ``verdict_lines``, with control characters escaped and lists of names wrapped."""
    concluded = comparison.verdict(thresholds) if conclusion is None else conclusion
    lines = map(shown, (*verdict_block(concluded), *verdict_lines(comparison, thresholds, concluded)))
    return "".join(
        f"{part}\n" for line in lines for part in (_wrapped(line) if line.startswith(NAMES_INDENT) else [line])
    )


def verdict_lines(comparison: Comparison, thresholds: Thresholds, verdict: Verdict) -> Iterator[str]:
    """Yield the lines under a table of layers: further findings, and every layer that was not compared."""
    rows = comparison.rows
    findings = comparison.findings(thresholds)
    yield from further_findings(findings, comparison, verdict, thresholds)
    worst = comparison.worst
    if comparison.excluded:
        more = " …" if len(comparison.excluded) > MOST_EXCLUDED else ""
        yield f"Excluded: {len(comparison.excluded)} ({', '.join(comparison.excluded[:MOST_EXCLUDED])}{more})."
    if comparison.unwritten:
        yield (
            "Tensors not compared, because the program had not yet written the values at the time of "
            f"the dump: {len(comparison.unwritten)} ({listed(comparison.unwritten, MOST_NAMES)})."
        )
    ways = Counter([row.paired for row in rows] + [failed.pair.how for failed in comparison.failed])
    if ways.keys() - set(NAME_WAYS):
        yield f"Paired tensors: {', '.join(f'{number} by {how}' for how, number in ways.most_common())}."
    if worst is not None and worst.error:
        by = " by RMSE" if worst.extra or worst.vendor else ""
        yield f"Largest error{by}: {_numbers(worst)}"
    past = comparison.past(thresholds)
    if past:
        yield f"Layers with {thresholds}: {len(past)} of {len(rows)}; the first is {_numbers(past[0])}"
    if blamed(comparison.causes) is None and comparison.other_input is None:
        yield from _first_difference(rows, comparison.causes)
    if any(row.extra or row.vendor for row in rows):
        verdicts = Counter(row.verdict(thresholds) for row in rows)
        verdicts += Counter({"not comparable": comparison.of - len(rows)})
        yield f"Layers: {', '.join(f'{count} {name}' for name, count in sorted(verdicts.items()))}."
    yield from _integers(comparison)
    jumps = _rising(comparison, findings)
    if jumps:
        yield "RMSE rises most at:" if comparison.completeness.by_flow else "RMSE rises most, in file order, at:"
    yield from (f"  {label(row)}, {_rise(row, comparison)}" for row in jumps)
    yield from _list(
        "Layers with NaN or Inf, which always exceed the limits", [r for r in rows if not r.finite and not r.equal]
    )
    yield from _list(
        "Layers with the same name but another tensor, which always exceed the limits", comparison.suspects
    )
    yield from _not_compared(comparison)


def _not_compared(comparison: Comparison) -> Iterator[str]:
    """Yield every layer that was not compared, and why."""
    fused = comparison.completeness.fused
    if fused:
        are_of_program = any(row.module for row in comparison.rows)
        which = "their operators do not run in the sample" if are_of_program else "they are inside fused operators"
        yield f"Not missing, because {which}: {len(fused)}"
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
    """Yield the differences between the calls of operators, and the cause.

    The cause is left out if it is the first layer that differs by more than rounding.
    """
    yield from (f"{between_rounds_text(one)}." for one in comparison.causes if one.kind == "between rounds")
    arguments = [finding for finding in comparison.causes if finding.kind == "argument"]
    yield from (f"{argument_text(finding)}." for finding in arguments[:MOST_ARGUMENTS])
    first = first_difference(comparison.rows, beyond_rounding=True)
    causes = [finding for finding in comparison.causes if finding.kind == "cause"][:1]
    if named_elsewhere(causes, "" if first is None else first.output.name) is not None:
        yield from (f"Cause: {cause_text(cause, comparison.completeness.by_flow)}." for cause in causes)


def _rising(comparison: Comparison, findings: Sequence[Finding]) -> tuple[Row, ...]:
    """Return the rows whose error rises most, without integers; none if the cause is known better.

    A cause that left the rounding floor does not hide that another layer has the largest rise.
    """
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
    """Yield the first operator that differs; if it differs by rounding alone, also the first that differs by more.

    Operators that only move data, and operators without a part in a known cause, are skipped.
    """
    rows = [row for row in rows if not only_moves(row.op_type)] or rows
    first = first_difference(rows)
    if first is None or not first.is_placed or any(row.step for row in rows):
        return  # the first layer of a quantised side always differs
    more = first_difference(rows, beyond_rounding=True)
    is_explained = any("inside" in finding.facts for finding in causes)
    if is_explained or named_elsewhere(causes, "" if more is None else more.output.name) is not None:
        return
    by = f" by rounding ({first.output.benchmark_dtype})" if is_rounding(first.output) else ""
    yield f"First operator that differs{by}: {first.output.op_index}.{first.where}: {first}."
    if by:
        which = f"{more.output.op_index}.{more.where}: {more}" if more else "none"
        yield f"First operator that differs beyond rounding: {which}."


def _integers(comparison: Comparison) -> Iterator[str]:
    """Yield how many layers of two runs of a fixed-point model have the same integers, and where the first differ."""
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
        text += f"; the first layer that differs is {name}{f' ({op_type})' if op_type else ''}: {how}"
    yield text
    yield from (f"  {label(row)}: {integers}" for row, integers in pairs if integers.unlike)


def _list(title: str, rows: Sequence[Row]) -> Iterator[str]:
    if rows:
        yield f"{title}: {len(rows)}"
    yield from reason_lines(((label(row), remark(row)) for row in rows), MOST_NAMES)


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, WIDTH, subsequent_indent=NAMES_INDENT, break_long_words=False, break_on_hyphens=False)
