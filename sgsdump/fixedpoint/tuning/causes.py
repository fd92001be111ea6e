"""Findings of what was measured: the outputs, the causes of their error, what to do, and what was not judged.

A cause is a domain, known by intervention: it alone at 16 bits, with a range that holds its values, gives so much of
the outputs' error back. Causes stand in the order of that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sgsdump.comparison.finding import Finding
from sgsdump.comparison.metrics import cos, mse, rmse
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.fixedpoint.quantisation.objective import Totals, output_error
from sgsdump.fixedpoint.quantisation.trials.integer_outputs import OutputFigures, PlanOutputs
from sgsdump.fixedpoint.tuning.advice import MUCH, SOME, Advice, holds
from sgsdump.fixedpoint.tuning.sensitivity_analysis import (
    Contributions,
    LabelledPictureFeed,
    Measurement,
    SensitivityAnalysis,
)
from sgsdump.tensors.types import Range


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
ALONE_OF_PICTURE = 1 - math.sqrt(1 - MOST_OF_IT**2)
# Candidates that are run in the hardware's integers, the first ones of the float approximation.
TRIED = 5
# An error is spread over the fewest convolutions that remove this part of what all of them remove at INT16.
SPREAD = 0.8
# So few domains are named where they remove most of the error together, and none of them a fifth.
FEW = 4
Left = Callable[[Sequence[str], Mapping[str, Range]], float]


def output_findings(outputs: Mapping[str, OutputFigures], limits: Thresholds) -> tuple[Finding, ...]:
    """Each output with its figures and its verdict: good, resolution, drowned, bad, or bad on pictures that hardly move
    it."""
    findings = []
    for name, figures in outputs.items():
        numbers = {"cos": figures.cos, "rmse": figures.rmse, "largest_error": figures.largest, "reaches": figures.span}
        if figures.centred is not None:
            numbers |= {"cos_about_mean": cos(figures.centred), "rmse_about_mean": rmse(figures.centred)}
        good = figures.good(limits)
        if (made := figures.probabilities) is not None:
            numbers |= {"probability_change": made.largest, "answers_changed": made.changed}
            facts = {"verdict": "good" if good else "bad", "reason": "probabilities"}
            findings.append(Finding("output", name, figures=numbers, evidence="measured", facts=facts))
            continue
        plain = limits.hold(figures.cos, figures.rmse, mse(figures.sums))
        reason = "drowned" if plain and figures.drowned else "resolution" if not plain and good else ""
        if not good and figures.hardly_moved and figures.seen is not None:
            reason, numbers["seen"] = "hardly moved", figures.seen
        facts = {"verdict": "good" if good else "bad"} | ({"reason": reason} if reason else {})
        findings.append(Finding("output", name, figures=numbers, evidence="measured", facts=facts))
    return tuple(findings)


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


def named_causes(
    advice: Iterable[Advice],
    measurement: Measurement | None,
    outputs: PlanOutputs,
    limits: Thresholds,
    left: Left,
) -> tuple[Finding, ...]:
    """Name what the outputs' error comes from, by runs in the hardware's integers.

    Parameters
    ----------
    advice
        On the convolutions at 8 bits; the float approximation in it picks the first TRIED candidates.
    outputs
        Of the fixed model as it is.
    left
        Returns the outputs' error with the inputs of these convolutions alone at INT16 and these ranges in place of
        calibration's; of no convolution with every one at INT16.

    Returns
    -------
    tuple of Finding
        The causes, the largest first; of an error within the limits its largest part alone. Where no candidate removes
        MUCH of the error, but all convolutions together do, one finding of kind "spread", or the FEW causes that remove
        most of it together. Else empty.
    """
    advice, good, error = tuple(advice), outputs.good(limits), output_error(outputs.sums)
    limit = limits.max_rmse if limits.max_rmse is not None else DOCUMENTED.max_rmse
    # Good outputs past a limit are off by what 8 bits leave.
    worth_naming = not good or (limit and holds(outputs.sums, limits) and error >= WORTH_NAMING * limit)
    if measurement is None or not error or not worth_naming:
        return ()
    tried = []
    for finding in ranked(advice, measurement)[:TRIED]:
        picture, clipped = (finding.facts["reason"] == reason for reason in ("picture", "clipped"))
        stays = left(() if picture else (finding.layer,), measurement.held_ranges(finding.layer) if clipped else {})
        figures = {"left": stays} | ({"brings": stays / error} if picture else {"gives_back": 1 - stays / error})
        tried.append(replace(finding, figures={**finding.figures, **figures}))
    tried.sort(key=_removes, reverse=True)
    if tried and _removes(tried[0]) >= (ALONE_OF_PICTURE if tried[0].facts["reason"] == "picture" else MUCH):
        return (replace(tried[0], kind="part", figures={"error": error, **tried[0].figures}),) if good else tuple(tried)
    measured = [entry for entry in advice if entry.measured is not None]
    removed = error - left((), {}) if measured else 0.0
    if removed < MUCH * error:
        return ()
    spread, domains = _spread(measured, error, removed, left)
    named = [finding for finding in tried if finding.layer in spread.names]
    if not good and domains == len(named) <= FEW and spread.figures["gives_back"] >= MOST_OF_IT:
        together = {"error": error, "together": spread.figures["gives_back"], "count": len(named)}
        return tuple(replace(each, figures={**each.figures, **together}) for each in named)
    return (spread,)


def _removes(finding: Finding) -> float:
    """The part of the error that goes away without this cause. Errors add like their squares."""
    if finding.facts["reason"] == "picture":
        return 1 - math.sqrt(1 - min(finding.figures["brings"], 1.0) ** 2)
    return finding.figures["gives_back"]


def _spread(advice: Iterable[Advice], error: float, removed: float, left: Left) -> tuple[Finding, int]:
    """The fewest convolutions, in the order of what each causes alone, that remove SPREAD of what all at INT16 remove,
    and the number of their domains. Found by halving, each trial run in integers."""
    brings = {entry.convolution.domain: entry.measured.brings for entry in advice if entry.measured is not None}
    names: dict[str, list[str]] = {domain: [] for domain in sorted(brings, key=lambda domain: -brings[domain])}
    for entry in advice:
        if entry.measured is not None:
            names[entry.convolution.domain].append(entry.convolution.name)
    domains = list(names)

    def stays(count: int) -> float:
        return left([names[domain][0] for domain in domains[:count]], {})

    low, high = 2, len(domains)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if error - stays(middle) >= SPREAD * removed else (middle + 1, high)
    chosen = tuple(name for domain in domains[:high] for name in names[domain])
    remains = stays(high)
    figures = {"error": error, "left": remains, "gives_back": 1 - remains / error}
    return Finding("spread", figures=figures, evidence="measured", names=chosen), high


def with_contributions(
    sources: tuple[Finding, ...],
    trial: SensitivityAnalysis,
    measurement: Measurement,
    feeds: Iterable[LabelledPictureFeed],
) -> tuple[Finding, ...]:
    """The findings of ``named_causes``; the first one says what its input and its weights bring, as parts of the error
    in the float approximation."""
    if not sources or sources[0].facts.get("reason") not in ("8 bits", "clipped"):
        return sources
    contributions = trial.contributions(sources[0].layer, feeds)
    return (contributed(sources[0], contributions, output_error(measurement.all_8)), *sources[1:])


def contributed(finding: Finding, contributions: Contributions, total: float) -> Finding:
    """A cause with what its input and its weights bring, as parts of the output error ``total``."""
    if not total:
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
