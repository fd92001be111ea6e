"""The comparison as JSON: ``rows`` (numbers in full precision), ``failed``, ``only_in_sample``, ``only_in_benchmark``,
``excluded``, ``unwritten``, the dumps' ``notes``, ``thresholds`` and the ``verdict``'s names. Each row's ``verdict`` is
``pass``, ``warn`` or ``fail``; what failed to be compared is not comparable. ``schema.json`` beside this module is its
JSON Schema; docs/formats/comparison.md tells more.

JSON has no NaN and no infinity: they are the strings ``"nan"``, ``"inf"`` and ``"-inf"``, which float() reads.
"""

from __future__ import annotations

from dataclasses import asdict, is_dataclass
from typing import Any

from sgsdump.comparison.alignment import Unpaired
from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.row import FACTS, Row
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.dumps.dump import Record
from sgsdump.reports.strict_json import text_of

FORMAT, VERSION = "sgsdump comparison", 1
ABSENT = (("runs", None), ("integers", None))


def render(comparison: Comparison, thresholds: Thresholds) -> str:
    worst = comparison.worst
    document = {
        "format": FORMAT,
        "version": VERSION,
        "thresholds": asdict(thresholds),
        "verdict": {
            "worst": worst.name if worst else None,
            "past_thresholds": [row.name for row in comparison.past(thresholds)],
            "rises_most": [row.name for row in comparison.jumps],
            "other_tensors": [row.name for row in comparison.suspects],
        },
        "notes": {"sample": comparison.sample_notes, "benchmark": comparison.benchmark_notes},
        "rows": [
            _row(row) | {"within": row.passes(thresholds), "verdict": row.verdict(thresholds)}
            for row in comparison.rows
        ],
        "failed": [
            _facts(failed.pair.benchmark)
            | {"sample_name": failed.pair.sample.name, "paired": failed.pair.how, "reason": failed.reason}
            for failed in comparison.failed
        ],
        "only_in_sample": [_unpaired(u) for u in comparison.only_in_sample],
        "only_in_benchmark": [_unpaired(u) for u in comparison.only_in_benchmark],
        "excluded": comparison.excluded,
        "unwritten": comparison.unwritten,
    }
    return text_of(document)


def _row(row: Row) -> dict[str, Any]:
    """The row's fields; two of them have other names here, which readers of the file know. Left out are
    ``runs`` where there is only one, and ``integers`` where a side has none."""
    facts = {name: getattr(row, name) for name in FACTS}
    fields = {
        name: asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
        for name, value in facts.items()
        if (name, value) not in ABSENT
    }
    return {{"misnamed": "twin", "statistics": "figures"}.get(name, name): value for name, value in fields.items()}


def _unpaired(unpaired: Unpaired) -> dict[str, Any]:
    return _facts(unpaired.record) | {"reason": unpaired.reason, "expected": unpaired.expected}


def _facts(record: Record) -> dict[str, Any]:
    return {name: getattr(record, name) for name in ("name", "io", "slot", "op_index", "op_type")}
