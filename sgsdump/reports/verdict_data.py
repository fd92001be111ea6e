"""The verdict for programs: one object, the same in the JSON of every command."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, fields
from typing import Any

from sgsdump.comparison.finding import Finding
from sgsdump.comparison.verdict import Verdict


def verdict_data(verdict: Verdict) -> dict[str, Any]:
    """Return the verdict as plain data. What was left out is counted by status; its lists stand elsewhere."""
    account, recommendation = verdict.account, verdict.recommendation
    return {
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
        "assumptions": list(verdict.assumptions),
    }


def finding_data(finding: Finding) -> dict[str, Any]:
    """Return a finding as plain data."""
    return plain(finding)


def plain(record: Any) -> dict[str, Any]:
    """Return a record's facts, mappings as dictionaries."""
    facts = {fact.name: getattr(record, fact.name) for fact in fields(record)}
    return {name: dict(value) if hasattr(value, "keys") else value for name, value in facts.items()}
