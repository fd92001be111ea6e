"""Findings of what was measured: the outputs, the causes of their error, what to do, and what was not judged.

A cause is a domain, known by intervention: it alone at 16 bits, with a range that holds its values, gives so much of
the outputs' error back. Causes stand in the order of that.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sgsdump.comparison.finding import Finding
from sgsdump.comparison.metrics import cos, mse, rmse
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.quantisation.objective import Totals, output_error
from sgsdump.quantisation.trials.integer_outputs import OutputFigures, PlanOutputs
from sgsdump.tuning.advice import SOME, Advice, holds
from sgsdump.tuning.sensitivity_analysis import Contributions, Measurement


@dataclass(frozen=True, eq=False)
class Exact:
    """The outputs in the hardware's integers of three plans; ``raised``: with what is advised, None for nothing, and
    ``foreseen`` the sums of that in the float approximation."""

    all_8: PlanOutputs
    all_16: PlanOutputs
    raised: PlanOutputs | None = None
    foreseen: Totals | None = None


# Of the limit; below that an error is not worth a name.
WORTH_NAMING = 0.1
# So much of the error with everything else at 16 bits is the doing of what reads the picture.
MOST_OF_IT = 0.5


def output_findings(outputs: Mapping[str, OutputFigures], limits: Thresholds) -> tuple[Finding, ...]:
    """Each output with its figures and its verdict: good, resolution, drowned, bad, or bad on pictures that hardly move
    it."""
    findings = []
    for name, figures in outputs.items():
        numbers = {"cos": figures.cos, "rmse": figures.rmse, "largest_error": figures.largest, "reaches": figures.span}
        if figures.centred is not None:
            numbers |= {"cos_about_mean": cos(figures.centred), "rmse_about_mean": rmse(figures.centred)}
        good = figures.good(limits)
        plain = limits.hold(figures.cos, figures.rmse, mse(figures.sums))
        reason = "drowned" if plain and figures.drowned else "resolution" if not plain and good else ""
        if not good and figures.hardly_moved and figures.seen is not None:
            reason, numbers["seen"] = "hardly moved", figures.seen
        facts = {"verdict": "good" if good else "bad"} | ({"reason": reason} if reason else {})
        findings.append(Finding("output", name, figures=numbers, evidence="measured", facts=facts))
    return tuple(findings)


def findings_of(
    advice: Iterable[Advice],
    measurement: Measurement | None,
    exact: Exact,
    limits: Thresholds,
    contributions: Contributions | None = None,
) -> tuple[Finding, ...]:
    """The outputs with all at 8 bits, and the causes of their error, or its largest part where it is within the limits;
    ``contributions``: of the first of these."""
    advice, good = tuple(advice), exact.all_8.good(limits)
    found = output_findings(exact.all_8.outputs, limits)
    first, *others = causes(advice, measurement, good) or (None,)
    if first is None and good and holds(exact.all_8.sums, limits):
        first = largest_part(advice, measurement, output_error(exact.all_8.sums), limits)
    if measurement is None or first is None:
        return found
    return (*found, with_contributions(first, contributions, output_error(measurement.all_8)), *others)


def layers_finding(
    past: Sequence[str], count: int, found: Sequence[Finding], after: Container[str], good: bool
) -> Finding | None:
    """The layers past the limits as one finding, with the cause that they share; None where there are none.

    past   their names, of ``count`` compared.
    found  the causes; ``after``: the layers that the first one's input feeds.
    """
    if not past:
        return None
    figures = {"past": float(len(past)), "of": float(count)}
    if good or not found:
        reason = "not reached" if good else "many"
        return Finding("layers", figures=figures, evidence="measured", names=tuple(past), facts={"reason": reason})
    first = found[0]
    figures["after"] = float(sum(name in after for name in past))
    facts = {"reason": "cause", "input": first.facts["input"]}
    return Finding("layers", first.layer, first.op_type, figures, "measured", tuple(past), facts)


def causes(advice: Iterable[Advice], measurement: Measurement | None, good: bool) -> tuple[Finding, ...]:
    """What the outputs' error comes from, the largest part first, one for each domain; none where they are good."""
    return () if measurement is None or good else ranked(advice, measurement)


def largest_part(
    advice: Iterable[Advice], measurement: Measurement | None, error: float, limits: Thresholds
) -> Finding | None:
    """Of an error that is within the limits what brings most of it; None where the error is near nothing.

    advice  on what is at 8 bits.
    error   of the outputs, in the hardware's integers.
    """
    limit = limits.max_rmse if limits.max_rmse is not None else DOCUMENTED.max_rmse
    if measurement is None or not limit or error < WORTH_NAMING * limit:
        return None
    first = next(iter(ranked(advice, measurement)), None)
    if first is None:
        return None
    left = first.figures["brings"] if first.facts["reason"] == "picture" else 1 - first.figures["gives_back"]
    figures = {"error": error, "left": error * min(left, 1.0), **first.figures}
    return replace(first, kind="part", figures=figures)


def with_contributions(finding: Finding, contributions: Contributions | None, total: float) -> Finding:
    """A cause with what its input and its weights bring, as parts of the output error ``total``."""
    if contributions is None or not total or finding.facts["reason"] == "picture":
        return finding
    figures = {"input_brings": contributions.inputs / total, "weights_bring": contributions.weights / total}
    for name, loud in (("channel", contributions.channel), ("row", contributions.row)):
        if loud is not None:
            figures |= {name: float(loud.index), f"{name}s": float(loud.count)}
            figures |= {f"{name}_reaches": loud.reach, f"{name}_others": loud.others}
    facts = {"scale": "one at every level"} if "row" in figures and contributions.one_scale else {}
    return replace(finding, figures={**finding.figures, **figures}, facts={**finding.facts, **facts})


def ranked(advice: Iterable[Advice], measurement: Measurement) -> tuple[Finding, ...]:
    """What brings a visible part of the outputs' error, one for each domain, the largest part first."""
    found: dict[str, tuple[tuple[float, float], Finding]] = {}
    advice = list(advice)
    for entry in sorted(advice, key=lambda entry: entry.measured.weight if entry.measured else (), reverse=True):
        measured, conv = entry.measured, entry.convolution
        if measured is None or conv.domain in found or max(*measured.weight, measured.gives_back) < SOME:
            continue
        names = tuple(a.convolution.name for a in advice if a.convolution.domain == conv.domain)
        figures = {
            "gives_back": measured.gives_back,
            "brings": measured.brings_share,
            "own": measured.own,
            "inherited": measured.inherited,
        }
        facts = {"input": conv.known_input, "reason": "clipped" if measured.clipped else "8 bits"}
        finding = Finding("cause", conv.name, conv.op_type, figures, "measured", names, facts)
        found[conv.domain] = measured.weight, finding
    picture = _of_the_picture(advice, measurement)
    if picture is not None:
        share = picture.figures["brings"]
        # errors add like their squares
        found[""] = (1 - math.sqrt(1 - min(share, 1.0) ** 2), share), picture
    return tuple(finding for _, finding in sorted(found.values(), key=lambda pair: pair[0], reverse=True))


def _of_the_picture(advice: list[Advice], measurement: Measurement) -> Finding | None:
    """What is left with all others at 16 bits, where that is most of the error: the picture's own convolutions, which
    are always 8 bits."""
    readers = [entry.convolution for entry in advice if entry.convolution.reads_picture]
    total = output_error(measurement.all_8)
    if not readers or not total or any(entry.measured and entry.measured.clipped for entry in advice):
        return None
    share = output_error(measurement.all_16) / total
    if share < MOST_OF_IT:
        return None
    first, names = readers[0], tuple(conv.name for conv in readers)
    facts = {"input": first.input, "reason": "picture"}
    return Finding("cause", first.name, first.op_type, {"brings": share}, "measured", names, facts)
