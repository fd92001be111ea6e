"""Findings of operators that were computed again, each judged alone (``sgsdump/replay/check.py``). Apart: one run is
enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from sgsdump.comparison.finding import Finding
from sgsdump.replay.check import Check, Judged

OVERFLOW, OWN = "overflow", "made of finite inputs"


def check_findings(check: Check) -> tuple[Finding, ...]:
    """The first operator outside its bound, the first NaN or infinity that was made of finite inputs, the first
    overflow, and what was not judged, each reason once with the operators that it is of."""
    return (*_outside(check), *_odd(check), *_not_judged(check))


def outside_finding(judged: Judged, names: tuple[str, ...] = ()) -> Finding:
    """An operator that is outside its bound; ``names``: all that are."""
    judgement, place = judged.judgement, judged.place
    figures = {
        "error": judgement.error,
        "bound": judgement.bound,
        "value": judgement.value,
        "reference": judgement.reference,
        "index": float(judgement.index),
        "outside": float(judgement.outside),
        "count": float(judgement.count),
    }
    facts = {"module": place.module, "dtype": judged.dtype, "source": place.source}
    return Finding("outside", place.name, place.kind, figures, "measured", names, facts)


def _outside(check: Check) -> Iterator[Finding]:
    outside = check.outside
    if outside:
        yield outside_finding(outside[0], tuple(dict.fromkeys(judged.place.name for judged in outside)))


def _odd(check: Check) -> Iterator[Finding]:
    for kinds, how in ((("NaN", "Inf"), OWN), (("overflow",), OVERFLOW)):
        first = check.first_odd(*kinds)  # type: ignore[arg-type]
        if first is not None:
            facts = {"how": how, "what": first.odd, "module": first.place.module, "dtype": first.dtype}
            facts |= {"source": first.place.source}
            yield Finding("not finite", first.place.name, first.place.kind, {}, "measured", facts=facts)


def _not_judged(check: Check) -> Iterator[Finding]:
    for why in dict.fromkeys(unjudged.why for unjudged in check.unjudged):
        those = [unjudged for unjudged in check.unjudged if unjudged.why == why]
        kinds = Counter(unjudged.place.kind for unjudged in those)
        facts = {"why": why, "kinds": ", ".join(kinds), "detail": those[0].detail}
        names = tuple(unjudged.place.name for unjudged in those)
        yield Finding("not judged", figures={"count": float(len(those))}, names=names, facts=facts)
