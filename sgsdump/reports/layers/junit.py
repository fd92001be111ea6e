"""The layers as JUnit XML, which every CI server shows: a test case per layer.

A layer past its limits is a ``failure`` whose text has the figures and the limits, and so is a layer, an output or a
run that is missing. A pair that could not be compared is an ``error``, as it is for the exit status; what else stands
in one dump only or was excluded is ``skipped``, with the reason. Elements and attributes are those of the Ant task's
schema, as Jenkins, GitLab and the like read them. The layers are compared together: each has its share of the time.
"""

from __future__ import annotations

from collections import Counter
from xml.etree import ElementTree

from sgsdump.reports.layers.table import EVERY, Entry, LayerTable, Listing, title_of
from sgsdump.reports.text import shown

_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>'
_OUTCOMES = {"failed": "error", "missing": "failure"}  # of what was not compared; the others are skipped


def render(table: LayerTable, listing: Listing = EVERY) -> str:
    """Well-formed XML 1.0 whatever the names hold: what XML cannot hold is shown as an escape, ``\\x00``. It has every
    layer, whatever the listing: a server counts them."""
    entries, name = (*table.entries, *table.lacking), shown(table.suite or table.title)
    cases = [_case(entry, name, f"{table.seconds / len(entries):.6f}") for entry in entries]
    outcomes = Counter(case[0].tag for case in cases)
    counts = {"tests": len(cases), "failures": outcomes["failure"], "errors": outcomes["error"]}
    counts["skipped"] = outcomes["skipped"]
    facts = {"name": name, **{kind: str(count) for kind, count in counts.items()}, "time": f"{table.seconds:.3f}"}
    suites = ElementTree.Element("testsuites", facts)
    suite = ElementTree.SubElement(suites, "testsuite", facts)
    suite.extend(cases)
    ElementTree.SubElement(suite, "system-out").text = "\n".join(map(shown, (*table.verdict, *table.details)))
    ElementTree.indent(suites)
    return f"{_DECLARATION}\n{ElementTree.tostring(suites, encoding='unicode')}\n"


def _case(entry: Entry, suite: str, seconds: str) -> ElementTree.Element:
    """The test case, whose first child is the outcome (``system-out`` of a layer that passes)."""
    number = f"{entry.number}." if entry.number else ""
    group = f"{suite}.{shown(entry.op_type)}" if entry.op_type else suite
    case = ElementTree.Element("testcase", {"classname": group, "name": number + shown(entry.name), "time": seconds})
    figures = shown(", ".join(f"{title_of(name)} {entry.text(name)}" for name in entry.figures))
    remark = shown(entry.remark)
    if entry.status != "compared":
        ElementTree.SubElement(case, _OUTCOMES.get(entry.status, "skipped"), {"message": remark})
    elif entry.bad:
        failure = ElementTree.SubElement(case, "failure", {"message": figures, "type": "past limits"})
        limits = f"limits: {shown(entry.limits)}" if entry.limits else ""
        failure.text = "\n".join(filter(None, [figures, limits, remark]))
    else:
        ElementTree.SubElement(case, "system-out").text = "\n".join(filter(None, [figures, remark]))
    return case
