"""Findings from measurements: the outputs, the causes of their error, and the layers beyond the limits.

A cause is a domain, known by intervention: raising only this domain to INT16, with a range that contains its values,
removes a share of the output error. Causes are ordered by this share.
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
    """The outputs of three plans with the chip's integer arithmetic.

    raised    with the recommended inputs at INT16; None without a recommendation.
    foreseen  its sums in the float approximation.
    """

    all_8: PlanOutputs
    all_16: PlanOutputs
    raised: PlanOutputs | None = None
    foreseen: Totals | None = None


# An error below this share of the limit gets no named cause.
WORTH_NAMING = 0.1
# Image-reading convolutions are a cause if this share of the error remains with all others at INT16.
MOST_OF_IT = 0.5
ALONE_OF_PICTURE = 1 - math.sqrt(1 - MOST_OF_IT**2)
# Number of candidates, ranked by the float approximation, that are run with the chip's integer arithmetic.
TRIED = 5
# An error is spread over the fewest convolutions that remove this share of the error that all remove at INT16.
SPREAD = 0.8
# Most domains that are named if they remove most of the error together, and none of them a fifth.
FEW = 4
Left = Callable[[Sequence[str], Mapping[str, Range]], float]


def output_findings(outputs: Mapping[str, OutputFigures], limits: Thresholds) -> tuple[Finding, ...]:
    """Return each output with its figures, its verdict (good or bad), and the reason if COS and RMSE do not decide."""
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
    """Return the layers beyond the limits as one finding, with their common cause; None without such layers.

    past   names of these layers; ``count``: number of compared layers.
    found  causes; ``after``: layers that the input of the first cause feeds.
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
    """Name the causes of the output error, measured with the chip's integer arithmetic.

    Parameters
    ----------
    advice
        Of the convolutions at 8 bits; its float approximation selects the first TRIED candidates.
    outputs
        Of the unchanged fixed model.
    left
        Returns the output error with only the inputs of these convolutions at INT16, and with these ranges instead of
        the calibration ranges. Without convolutions, every convolution is at INT16.

    Returns
    -------
    tuple of Finding
        The causes, the largest first. If the outputs are within the limits, only the largest part of their error. If no
        candidate removes MUCH of the error, but all convolutions together do: one finding of kind "spread", or the FEW
        causes that remove most of the error together. Otherwise empty.
    """
    advice, good, error = tuple(advice), outputs.good(limits), output_error(outputs.sums)
    limit = limits.max_rmse if limits.max_rmse is not None else DOCUMENTED.max_rmse
    # Good outputs beyond a limit are within the 8-bit resolution.
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
    """Return the share of the error that disappears without this cause. Errors add like their squares."""
    if finding.facts["reason"] == "picture":
        return 1 - math.sqrt(1 - min(finding.figures["brings"], 1.0) ** 2)
    return finding.figures["gives_back"]


def _spread(advice: Iterable[Advice], error: float, removed: float, left: Left) -> tuple[Finding, int]:
    """Return the fewest convolutions that remove SPREAD of the error that all remove, and the number of their domains.

    Convolutions are added in the order of the error that each causes alone. Found by bisection; each trial runs in
    integers.
    """
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
    """Add to the first finding of ``named_causes`` the shares that its input and its weights cause.

    The shares are of the error in the float approximation.
    """
    if not sources or sources[0].facts.get("reason") not in ("8 bits", "clipped"):
        return sources
    contributions = trial.contributions(sources[0].layer, feeds)
    return (contributed(sources[0], contributions, output_error(measurement.all_8)), *sources[1:])


def contributed(finding: Finding, contributions: Contributions, total: float) -> Finding:
    """Return the cause with the shares of the output error ``total`` that its input and its weights cause."""
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
    """Return the causes of a visible share of the output error, one per domain, the largest first."""
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
        # Errors add like their squares.
        found[""] = (1 - math.sqrt(1 - min(share, 1.0) ** 2), share), picture
    return tuple(finding for _, finding in sorted(found.values(), key=lambda pair: pair[0], reverse=True))


def _of_the_picture(advice: list[Advice], measurement: Measurement) -> Finding | None:
    """Return the convolutions that read an image as a cause, if most of the error remains with all others at INT16.

    Such convolutions always have 8 bits.
    """
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
