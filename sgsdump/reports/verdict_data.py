"""The verdict as JSON data, in the same form for every command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from sgsdump.comparison.finding import Finding
from sgsdump.comparison.verdict import Recommendation, Verdict
from sgsdump.reports.three_lines import three_lines


def verdict_data(verdict: Verdict) -> dict[str, Any]:
    """Return the verdict as plain data. Layers that were not compared are counted by status, not listed."""
    account, recommendation = verdict.account, verdict.recommendation
    return {
        "lines": list(three_lines(verdict)),
        "outcome": verdict.outcome,
        "state": verdict.state,
        "passes": verdict.passes,
        "deciding": None if verdict.deciding is None else asdict(verdict.deciding),
        "past": verdict.past,
        "not_finite": verdict.not_finite,
        "cause": None if verdict.cause is None else finding_data(verdict.cause),
        "recommendation": None if recommendation is None else plain(recommendation),
        "completeness": {
            "compared": account.compared,
            "of": account.of,
            "is_complete": account.is_complete,
            "left_out": dict(Counter(one.status for one in account.left_out)),
            "allows_missing": verdict.allows_missing,
        },
        "agreement": None if verdict.agreement is None else asdict(verdict.agreement),
        "assumptions": list(verdict.assumptions),
    }


def finding_data(finding: Finding) -> dict[str, Any]:
    """Return a finding as plain data, for any JSON."""
    return plain(finding)


def plain(record: Finding | Recommendation) -> dict[str, Any]:
    """Return the fields of a record by name, mappings as dictionaries."""
    values = ((each.name, getattr(record, each.name)) for each in fields(record))
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in values}
