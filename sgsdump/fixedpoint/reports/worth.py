"""Sentences and JSON on the results of fixed models by the user's metric and on held-out images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sgsdump.comparison.finding import Finding
from sgsdump.errors import listed
from sgsdump.fixedpoint.tuning.worth import ALL_16, AS_IT_IS, PLAN, Worth, Worths
from sgsdump.reports.text import counted

MOST_NAMED = 4
ADVISED = "with the recommendation"


def worth_lines(worths: Worths, plan: str = ADVISED) -> Iterator[str]:
    """Yield the metric on the judging images, then all figures on held-out images; ``plan``: name of the plan."""
    judged, held = worths.judged, worths.held
    called = {AS_IT_IS: "unchanged", PLAN: plan, ALL_16: "with every convolution at INT16"}
    of_float, of_float_there = worths.float_metric
    count, count_there = (counted(number, "image") for number in worths.pictures)
    if of_float is not None:
        ways = "; ".join(f"{called[kind]} {_number(worth.metric)}" for kind, worth in judged.items())
        yield f"Metric on {count}: float model {of_float:.4g}; {ways}."
    if not held:
        return
    if of_float_there is not None:
        ways = "; ".join(f"{called[kind]} {_number(worth.metric)}" for kind, worth in held.items())
        yield f"Metric on {count_there} that were held out: float model {of_float_there:.4g}; {ways}."
    ways = "; ".join(f"{called[kind]} {worth.error:.3g} ({judged[kind].error:.3g})" for kind, worth in held.items())
    yield (
        f"Relative squared error of the outputs on {count_there} that were held out (in brackets: the "
        f"error on the {count} used for judging): {ways}."
    )
    if judged[AS_IT_IS].good and not worths.holds:
        yield (
            "An output of the unchanged model exceeds the limits on the held-out images, but not on the judging images."
        )


def not_recommended(worths: Worths) -> str:
    """Return why the plan is not recommended; "" if it is."""
    if not worths.beyond:
        return ""
    what = listed(worths.names, MOST_NAMED) if worths.names else "the recommended inputs"
    before, after = (_part(side) for side in (worths.judged, worths.held))
    return (
        f"Not recommended: {what} at INT16. On {counted(worths.pictures[1], 'held-out image')}, "
        f"{after} of the squared error remains with this plan. On the images used to choose the plan, "
        f"{before} of the squared error remains. Judge on more images (--evaluate). With -i, give "
        "calibration images that are like the held-out images."
    )


def worth_document(worths: Worths) -> dict[str, Any]:
    """Return the figures of each way on the judging and the held-out images, for JSON."""
    ways = {each.facts["way"]: {**each.figures, "within": each.facts["within"]} for each in worth_findings(worths)}
    for finding in worth_findings(worths):
        held = finding.facts.get("held_within")
        ways[finding.facts["way"]] |= {} if held is None else {"held_within": held}
    pictures = {"pictures": worths.pictures[0], "held_out": worths.pictures[1]}
    return {**pictures, "recommended": not worths.beyond, "ways": ways}


def worth_findings(worths: Worths) -> Iterator[Finding]:
    """Yield a finding for each way: unchanged, the plan, and every convolution at INT16."""
    for kind, worth in worths.judged.items():
        figures = _figures("", worth, worths.float_metric[0])
        facts = {"way": kind, "within": "yes" if worth.good else "no"}
        if kind in worths.held:
            figures |= _figures("held_", worths.held[kind], worths.float_metric[1])
            facts["held_within"] = "yes" if worths.held[kind].good else "no"
        if kind == PLAN and worths.held:
            facts["recommended"] = "no" if worths.beyond else "yes"
        yield Finding("worth", figures=figures, evidence="measured", names=_names(kind, worths), facts=facts)


def _names(kind: str, worths: Worths) -> tuple[str, ...]:
    return worths.names if kind == PLAN else ()


def _figures(where: str, worth: Worth, of_float: float | None) -> dict[str, float]:
    figures = {f"{where}squared_error": worth.error}
    if worth.metric is not None and of_float is not None:
        figures |= {f"{where}metric": worth.metric, f"{where}float_metric": of_float}
    return figures


def _part(side: Mapping[str, Worth]) -> str:
    before = side[AS_IT_IS].error
    return f"{100 * side[PLAN].error / before:.3g} %" if before > 0 else "all"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
