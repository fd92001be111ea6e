"""Comparison as CSV and JSON for programs, in full precision. docs/formats/comparison.md describes the files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from sgsdump.comparison.alignment import Unpaired
from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.row import OverRuns, Row
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.comparison.verdict import Verdict
from sgsdump.dumps.dump import Record
from sgsdump.files.json_yaml import json_text
from sgsdump.reports.remarks import remark
from sgsdump.reports.text import csv_text
from sgsdump.reports.verdict_data import finding_data, verdict_data

_PLACE = ["op_index", "name", "io", "slot", "op_type"]
_NUMBERS = ["count", "mse", "cos", "rmse", "rise"]
_NOT_FINITE = ["sample_nan", "sample_inf", "benchmark_nan", "benchmark_inf"]
_PAIR = ["sample_name", "paired"]
_TYPES = ["sample_dtype", "benchmark_dtype"]
_SIGNS = ["sample_minus_inf", "benchmark_minus_inf", "odd_apart"]
_STATISTICS = "statistics_error"
_INTEGERS = ["differing_integers", "largest_step"]
COLUMNS = [
    "status", *_PLACE, "type", *_NUMBERS, "within", *_NOT_FINITE, *_PAIR, "remark", "verdict", *_TYPES, *_SIGNS,
    _STATISTICS, *_INTEGERS,
]  # fmt: skip
FORMAT, VERSION = "sgsdump comparison", 3
_JSON = [
    "name", "io", "slot", "op_index", "op_type", "type_name", "sample_name", "paired", "count", "mse", "cos", "rmse",
    *_NOT_FINITE, "note", "sources", "by_flow", "module", "origin", "rise", "misnamed", *_TYPES, "dtype_note", *_SIGNS,
    "extra", "left_out", "vendor", "vendor_message", "statistics", "equal", "checksums", "integers", "indices",
    "channels", "step", "rearranged", "retried", "runs", "stage", "source",
]  # fmt: skip
_WHERE_THERE = ("integers", "indices", "channels", "runs")  # omitted in rows without them
_JSON_NAMES = {"statistics": "figures"}  # fields whose names in the file differ, for existing readers


def render_csv(comparison: Comparison, thresholds: Thresholds) -> str:
    """Return one line per layer of either dump; ``nan`` and ``inf`` are written as such.

    ``status`` is ``compared``, ``failed``, ``only in benchmark`` or ``only in sample``; the last three have no metrics.
    ``verdict`` is ``pass``, ``warn``, ``fail`` or, for the last three, ``not comparable``. Further metrics follow the
    remark, each with the number of values that it left out, if any. A vendor's metrics are written as the vendor prints
    them. ``statistics_error`` is the largest relative error of a layer with statistics only. For two runs of a fixed
    model, ``differing_integers`` is the number of different integers, and ``largest_step`` the largest difference
    (empty if unknown). For several runs, ``runs`` is the number of runs in which the layer was compared, and
    ``worst_run`` the run with the largest error.
    """
    further = dict.fromkeys(name for row in comparison.rows for name in _further(row))
    return csv_text([*COLUMNS, *further], _csv_lines(comparison, thresholds))


def render_json(comparison: Comparison, thresholds: Thresholds, verdict: Verdict | None = None) -> str:
    """Return the comparison as JSON (``schemas/comparison.json``).

    verdict  verdict with the user's limits; None without limits.
    """
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
            **verdict_data(verdict or comparison.verdict()),
        },
        "findings": [finding_data(finding) for finding in comparison.findings(thresholds)],
        "completeness": asdict(comparison.completeness)
        | {"is_complete": comparison.is_complete, "damaged": comparison.damaged},
        "notes": {"sample": comparison.sample_notes, "benchmark": comparison.benchmark_notes},
        "rows": [
            _row(row) | {"within": row.passes(thresholds), "verdict": row.verdict(thresholds)}
            for row in comparison.rows
        ],
        "failed": [
            _record(failed.pair.benchmark)
            | {"sample_name": failed.pair.sample.name, "paired": failed.pair.how, "reason": failed.reason}
            for failed in comparison.failed
        ],
        "only_in_sample": [_unpaired(u) for u in comparison.only_in_sample],
        "only_in_benchmark": [_unpaired(u) for u in comparison.only_in_benchmark],
        "excluded": comparison.excluded,
        "unwritten": comparison.unwritten,
    }
    return json_text(document)


def _csv_lines(comparison: Comparison, thresholds: Thresholds) -> Iterator[dict[str, object]]:
    for row in comparison.rows:
        line = {name: getattr(row, name) for name in [*_PLACE, *_NUMBERS, *_NOT_FINITE, *_PAIR, *_TYPES, *_SIGNS]}
        line |= _further(row) | {"verdict": row.verdict(thresholds)}
        line |= {_STATISTICS: row.error} if row.statistics else {}
        if row.integers and not row.integers.unlike:
            line |= zip(_INTEGERS, (row.integers.differing, row.integers.largest))
        within = "yes" if row.passes(thresholds) else "no"
        yield line | {"status": "compared", "type": row.type_name, "within": within, "remark": remark(row)}
    for failed in comparison.failed:
        sample = {"sample_name": failed.pair.sample.name, "paired": failed.pair.how}
        yield _csv_record(failed.pair.benchmark, "failed", failed.reason) | sample
    for unpaired in comparison.only_in_benchmark:
        yield _csv_record(unpaired.record, "only in benchmark", unpaired.reason)
    for unpaired in comparison.only_in_sample:
        yield _csv_record(unpaired.record, "only in sample", unpaired.reason)


def _csv_record(record: Record, status: str, reason: str) -> dict[str, object]:
    return _record(record) | {"status": status, "remark": reason, "verdict": "not comparable"}


def _further(row: Row) -> dict[str, object]:
    """Return the further figures. A vendor's columns have a prefix, because names may be equal."""
    left_out = {f"{name} left out": count for name, count in row.left_out.items()}
    vendor = {f"vendor {name}": value for name, value in row.vendor.items()}
    return {**row.extra, **left_out, **vendor, **(_runs(row.runs) if row.runs else {})}


def _runs(runs: OverRuns) -> dict[str, object]:
    means = {"mean_cos": runs.mean_cos, "mean_rmse": runs.mean_rmse}
    worst = {"worst_run": runs.worst, "worst_cos": runs.worst_cos, "worst_rmse": runs.worst_rmse}
    return {"runs": runs.count, **means, **worst}


def _row(row: Row) -> dict[str, Any]:
    """Return the fields of a row, without absent optional fields."""
    facts = {_JSON_NAMES.get(name, name): _plain(getattr(row, name)) for name in _JSON}
    return {name: value for name, value in facts.items() if value is not None or name not in _WHERE_THERE}


def _plain(value: Any) -> Any:
    """Return a record or a mapping as a dict; other values unchanged."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return dict(value) if isinstance(value, Mapping) else value


def _unpaired(unpaired: Unpaired) -> dict[str, Any]:
    return _record(unpaired.record) | {"reason": unpaired.reason, "expected": unpaired.expected}


def _record(record: Record) -> dict[str, Any]:
    return {name: getattr(record, name) for name in ("name", "io", "slot", "op_index", "op_type")}
