"""The comparison of two or three runs as JSON: ``settings``, ``rows`` with their verdicts, and the files apart.
``schema.json`` beside this module is its JSON Schema.

JSON has no NaN and no infinity: they are the strings ``"nan"``, ``"inf"`` and ``"-inf"``, which float() reads. What a
comparison of two does not have is null.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sgsdump.comparison.golden import GoldenComparison, GoldenRow
from sgsdump.reports.strict_json import text_of

_THREE = ("max_sw", "max_g", "mean_sw", "mean_g", "max_passes", "mean_passes", "tag")


def render(comparison: GoldenComparison) -> str:
    sample, benchmark, golden = comparison.titles
    document = {
        "format": "sgsdump golden comparison",
        "version": 1,
        "sample": sample,
        "benchmark": benchmark,
        "golden": golden,
        "settings": {"tag": comparison.tag, "th1": comparison.th1, "th2": comparison.th2},
        "passes": comparison.passes,
        "rows": [_row(row, golden is not None) for row in comparison.rows],
        "not_compared": [{"file": file, "reason": reason} for file, reason in comparison.unmatched()],
    }
    return text_of(document)


def _row(row: GoldenRow, three: bool) -> dict[str, Any]:
    facts = asdict(row) | {"max_passes": row.max_passes, "mean_passes": row.mean_passes, "verdict": row.verdict}
    if not three:
        facts |= dict.fromkeys(_THREE)
    return facts
