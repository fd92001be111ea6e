"""Layers as JUnit XML for CI servers: one test case per layer.

A layer that exceeds its limits is a ``failure`` whose text has the figures and the limits. A missing layer, output or
run is a ``failure`` too. A pair that could not be compared is an ``error``, as for the exit status. Other layers that
only one dump has, and excluded layers, are ``skipped`` with the reason.

Elements and attributes follow the schema of the Ant task, which Jenkins, GitLab and others read. All layers are
compared together, so the time is divided equally.
"""

from __future__ import annotations

from collections import Counter
from xml.etree import ElementTree

from sgsdump.reports.layers.table import EVERY, Entry, LayerTable, Listing, title_of
from sgsdump.reports.text import shown

_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>'
_OUTCOMES = {"failed": "error", "missing": "failure"}  # layers with another status that were not compared are skipped


def render(table: LayerTable, listing: Listing = EVERY) -> str:
    """Return well-formed XML 1.0; characters that XML cannot represent are escaped (``\\x00``).

    The XML contains every layer, whatever the listing, because servers count the layers.
    """
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
    """Return the test case. Its first child is the outcome (``system-out`` for a layer that passes)."""
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
