"""Findings on recomputed operators, each judged alone (``sgsdump/replay/check.py``); one run is enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from sgsdump.comparison.finding import Finding
from sgsdump.replay.check import Check, Judged
from sgsdump.replay.finiteness import INF, NAN, Finiteness, Made

OVERFLOW, OWN, CAME_IN = "overflow", "made of finite inputs", "read by an operator, and made by none that was dumped"


def check_findings(check: Check) -> tuple[Finding, ...]:
    """Return the findings of a check.

    These are the first operator outside its bound, the first NaN or infinity from finite inputs, and the first
    overflow. Each reason why operators were not judged gives one more finding with these operators.
    """
    return (*_outside(check), *_odd(check), *_not_judged(check))


def finiteness_findings(finiteness: Finiteness) -> tuple[Finding, ...]:
    """Return findings on NaN and Inf in execution order.

    The first is the tensor that was already not finite when it came in, if any. The others are the operators that first
    produced NaN and Inf from finite inputs.
    """
    firsts = [made for what in (NAN, INF) if (made := finiteness.first(what)) is not None]
    findings = [_not_finite(made, OWN) for made in sorted(firsts, key=finiteness.made.index)]
    return tuple(findings) if finiteness.came_in is None else (_not_finite(finiteness.came_in, CAME_IN), *findings)


def _not_finite(made: Made, how: str) -> Finding:
    facts = {"how": how, "what": made.what, "module": made.place.module, "source": made.source}
    return Finding("not finite", made.output, made.place.kind, {}, "measured", facts=facts)


def outside_finding(judged: Judged, names: tuple[str, ...] = ()) -> Finding:
    """Return the finding on an operator outside its bound; ``names`` are all such operators."""
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
