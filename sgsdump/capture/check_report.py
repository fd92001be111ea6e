"""Results of ``sgsdump check`` as text, JSON and JUnit XML."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from xml.sax.saxutils import quoteattr

from sgsdump.comparison.finding import Finding
from sgsdump.comparison.replayed import CAME_IN, OVERFLOW, check_findings, finiteness_findings
from sgsdump.files.json_yaml import json_text
from sgsdump.replay.check import Check, Judged
from sgsdump.replay.finiteness import Finiteness
from sgsdump.reports.verdict_data import finding_data

FORMAT, VERSION = "sgsdump check", 1
MOST = 5
WHY = {
    "random": "random",
    "collective": "collective",
    "custom": "custom operators",
    "memory": "result depends on memory contents",
    "no bound": "no error bound is known",
    "no values": "values are missing from the dump",
    "not recorded": "operator overload was not recorded; dump the program again",
    "refused": "could not be computed again",
}


@dataclass(frozen=True)
class CheckedRun:
    """Result of one run.

    ``name`` is "" if the tree has a single run. ``finiteness`` is set for a dump of another tool, whose operators
    cannot be judged.
    """

    name: str
    check: Check
    notes: tuple[str, ...] = ()
    finiteness: Finiteness | None = None


def check_lines(run: CheckedRun) -> Iterator[str]:
    """Yield the report lines: first operator outside its bound, first non-finite value, overflow, counts, unjudged."""
    if run.finiteness is not None:
        yield from _finiteness_lines(run.finiteness)
        return
    check = run.check
    findings = check_findings(check)
    yield from (line for finding in findings if finding.kind != "not judged" for line in _lines_of(finding))
    operators = len({judged.place.op_index for judged in check.outside})
    yield (
        f"Operators checked against their rounding bound: {check.operators}; outside the bound: "
        f"{operators}; not checked: {len(check.unjudged)}."
    )
    yield from (line for finding in findings if finding.kind == "not judged" for line in _lines_of(finding))


def _finiteness_lines(finiteness: Finiteness) -> Iterator[str]:
    for finding in finiteness_findings(finiteness):
        yield from _lines_of(finding)
    operators = list(dict.fromkeys(made.place.name for made in finiteness.made))
    if len(operators) > 1:
        more = f" and {len(operators) - MOST} more" if len(operators) > MOST else ""
        yield f"Operators that produced NaN or Inf from finite inputs: {', '.join(operators[:MOST])}{more}."
    unknown = f", not enough data: {finiteness.unknown}" if finiteness.unknown else ""
    yield (
        f"Operators checked for NaN and Inf: {finiteness.looked_at}; operators that produced NaN or "
        f"Inf from finite inputs: {len(operators)}{unknown}."
    )


def _lines_of(finding: Finding) -> Iterator[str]:
    facts, figures = finding.facts, finding.figures
    where = f" in {facts['module']}" if facts.get("module") else ""
    at = f", called at {facts['source']}" if facts.get("source") else ""
    operator = f"{finding.layer} ({finding.op_type}){where}{at}"
    if finding.kind == "outside":
        yield f"First operator outside its rounding bound: {operator}."
        yield (
            f"  Element {figures['index']:.0f} is {figures['value']:.9g}. The exact result is "
            f"{figures['reference']:.9g}. The error is {_units(figures['error'])} in the last place "
            f"of {facts['dtype']}, and the bound is {figures['bound']:.3g}. {figures['outside']:.0f} "
            f"of {figures['count']:.0f} elements exceed the bound."
        )
        if len(finding.names) > 1:
            others = ", ".join(finding.names[1:MOST])
            more = f" and {len(finding.names) - MOST} more" if len(finding.names) > MOST else ""
            yield f"  Other operators outside their rounding bound: {others}{more}."
    elif finding.kind == "not finite":
        if facts["how"] == OVERFLOW:
            yield (
                f"The first operator that overflowed is {operator}: the exact result exceeds the range of "
                f"{facts['dtype']}."
            )
        elif facts["how"] == CAME_IN:
            yield f"{facts['what']} first appears in an input of {operator}; no dumped operator produced this input."
        else:
            yield f"The first operator that produced {facts['what']} from finite inputs is {operator}."
    else:
        detail = f"; {facts['detail']}" if facts["detail"] else ""
        yield f"Not judged, {WHY[facts['why']]}: {figures['count']:.0f} ({facts['kinds']}){detail}"


def _units(error: float) -> str:
    return f"{error:.3g} units" if math.isfinite(error) else "infinitely many units"


def check_json(runs: Sequence[CheckedRun]) -> str:
    """Return the results as JSON: per run its name, findings, and judged and unjudged operators in execution order."""
    document = {"format": FORMAT, "version": VERSION, "runs": [_run_json(run) for run in runs]}
    return json_text(document)


def _run_json(run: CheckedRun) -> dict[str, Any]:
    finiteness = run.finiteness
    of_another = {} if finiteness is None else {"finiteness": asdict(finiteness)}
    found = check_findings(run.check) if finiteness is None else finiteness_findings(finiteness)
    return {
        "run": run.name,
        "findings": [finding_data(finding) for finding in found],
        **of_another,
        "judged": [
            {**asdict(j.place), "slot": j.slot, "dtype": j.dtype, "odd": j.odd, **asdict(j.judgement)}
            for j in run.check.judged
        ],
        "not_judged": [{**asdict(u.place), "why": u.why, "detail": u.detail} for u in run.check.unjudged],
        "notes": list(run.notes),
    }


def check_junit(runs: Sequence[CheckedRun]) -> str:
    """Return JUnit XML: a test case per judged operator, a failure if outside its bound, skipped if not judged."""
    suites = "\n".join(_suite(run) for run in runs)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="sgsdump check">\n{suites}\n</testsuites>\n'


def _suite(run: CheckedRun) -> str:
    check = run.check
    cases = [_case(judged) for judged in check.judged]
    made = run.finiteness.made if run.finiteness else ()
    cases += [
        f"  <testcase name={quoteattr(m.output)} classname={quoteattr(m.place.kind)}>"
        f"<failure message={quoteattr(f'{m.what} produced from finite inputs')}/></testcase>"
        for m in made
    ]
    cases += [
        f"  <testcase name={quoteattr(u.place.name)} classname={quoteattr(u.place.kind)}>"
        f"<skipped message={quoteattr(WHY[u.why])}/></testcase>"
        for u in check.unjudged
    ]
    failures = len(check.outside) + len(made)
    head = (
        f'<testsuite name={quoteattr(run.name or "run")} tests="{len(cases)}" failures="{failures}" '
        f'skipped="{len(check.unjudged)}">'
    )
    return "\n".join([head, *cases, "</testsuite>"])


def _case(judged: Judged) -> str:
    judgement = judged.judgement
    start = f"  <testcase name={quoteattr(f'{judged.place.name}')} classname={quoteattr(judged.place.kind)}"
    if not judgement.outside:
        return f"{start}/>"
    why = f"error {_units(judgement.error)} in the last place, bound {judgement.bound:.3g}"
    return f"{start}><failure message={quoteattr(why)}/></testcase>"
