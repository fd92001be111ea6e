"""Comparison of two calibrations as terminal lines, CSV and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from typing import Any

from sgsdump.comparison.range_change import RangeChange, RangeChanges
from sgsdump.errors import listed
from sgsdump.files.json_yaml import json_text
from sgsdump.reports.text import aligned, counted, csv_text

MOST_NAMED = 8
_COLUMNS = ("apart", "wider", "sample", "benchmark", "tensor")


def range_lines(compared: RangeChanges, past: Sequence[RangeChange], most: int | None = None) -> Iterator[str]:
    """Yield the table, largest change first, then how many ranges differ, and ranges that only one side has.

    past  ranges that exceed the limits.
    """
    rows = [_COLUMNS, *(_cells(change) for change in compared.changes[:most])]
    yield from aligned(rows, right={0})
    counts = {word: sum(c.wider == word for c in compared.changes) for word in ("sample", "benchmark", "shifted")}
    told = ", ".join(f"{count} {_TOLD[word]}" for word, count in counts.items() if count) or "all are equal"
    yield f"{counted(len(compared.changes), 'range')} compared: {told}."
    for side, names in (("sample", compared.only_in_sample), ("benchmark", compared.only_in_benchmark)):
        if names:
            yield f"Ranges that exist only in the {side} ({len(names)}): {listed(list(names), MOST_NAMED)}"
    if past:
        yield f"Exceeding the limits: {len(past)}, first {past[0].name}"


def range_csv(compared: RangeChanges) -> str:
    rows = [_flat(change) for change in compared.changes]
    for side, names in (("sample", compared.only_in_sample), ("benchmark", compared.only_in_benchmark)):
        rows += [{"name": name, "wider": f"only in the {side}"} for name in names]
    return csv_text(_TITLES, rows)


def range_json(compared: RangeChanges, past: Sequence[RangeChange]) -> str:
    """Return the comparison as JSON; infinity is a string, as in every JSON file."""
    head = {"format": "sgsdump ranges", "version": 1}
    return json_text({**head, **asdict(compared), "past_limits": [change.name for change in past]})


_TOLD = {"sample": "wider in the sample", "benchmark": "wider in the benchmark", "shifted": "shifted"}
_ENDS = ("sample", "benchmark")
_TITLES = [
    *(
        title
        for field in fields(RangeChange)
        for title in (
            [f"{field.name}_low", f"{field.name}_high"]
            if field.name in _ENDS
            else [f"{end}_bit" for end in _ENDS]
            if field.name == "bits"
            else [field.name]
        )
    )
]


def _flat(change: RangeChange) -> dict[str, Any]:
    row = {name: value for name, value in asdict(change).items() if value is not None}
    for end in _ENDS:
        row[f"{end}_low"], row[f"{end}_high"] = row.pop(end)
    row |= {f"{end}_bit": bit for end, bit in zip(_ENDS, row.pop("bits", (None, None))) if bit is not None}
    return row


def _cells(change: RangeChange) -> tuple[str, ...]:
    of = "" if change.channel is None else f", channel {change.channel} of {change.channels}"
    bits = "" if change.bits is None else f", bit {' against '.join(str(bit or 'none') for bit in change.bits)}"
    ends = (f"{low:.6g} to {high:.6g}" for low, high in (change.sample, change.benchmark))
    return (f"{change.apart:.3f}", change.wider, *ends, f"{change.name}{of}{bits}")
