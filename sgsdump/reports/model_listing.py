"""Listing of a model file as text, CSV and JSON, and the differences between two model files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sgsdump.files.escaping import shown
from sgsdump.files.json_yaml import json_text
from sgsdump.models.listing import ListedDifference, ModelListing
from sgsdump.reports.text import aligned, counted, csv_text

_TENSOR_COLUMNS = (
    "name",
    "shape",
    "type",
    "planned",
    "role",
    "format",
    "scale",
    "zero_point",
    "min",
    "max",
    "memory",
    "domain",
)
_RIGHT = ("scale", "zero_point", "min", "max", "domain")
_SHORT = 4


def listing_text(listing: ModelListing) -> str:
    """Return the facts of a file, a line per operator and a line per tensor."""
    lines = [
        f"{listing.kind}: {counted(len(listing.operators), 'operator')}, {counted(len(listing.tensors), 'tensor')}"
    ]
    for word, value in listing.facts.items():
        for each in value if isinstance(value, list) else [value]:
            text = (
                ", ".join(_fact(key, part) for key, part in each.items() if part not in (None, "", []))
                if isinstance(each, Mapping)
                else _cell(each)
            )
            lines.append(f"{word.removesuffix('s') if isinstance(value, list) else word}: {text}")
    if listing.operators:
        heading = ("#", "operator", "inputs", "outputs", "options", "domain")
        lines += ["", *aligned([heading, *map(_operator_cells, listing.operators)], right=(0, 5))]
    if listing.tensors:
        columns = [name for name in _TENSOR_COLUMNS if any(row.get(name) not in (None, "") for row in listing.tensors)]
        rows = [[_cell(row.get(name)) for name in columns] for row in listing.tensors]
        right = [index for index, name in enumerate(columns) if name in _RIGHT]
        lines += ["", *aligned([[name.replace("_", " ") for name in columns], *rows], right=right)]
    return "".join(f"{line}\n" for line in lines)


def _fact(key: str, value: Any) -> str:
    return shown(value) if key == "name" else f"{key.replace('_', ' ')} {_cell(value)}"


def _operator_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    names = (" ".join(shown(name) or "-" for name in row[key]) for key in ("inputs", "outputs"))
    options = " ".join(f"{key}={_cell(value)}" for key, value in row["options"].items())
    kind = row["type"] if row["known"] else f"{row['type']} (not known)"
    return str(row["number"]), kind, *names, options, _cell(row["domain"])


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, (list, tuple)):
        parts = [_cell(each) for each in value[:_SHORT]] if len(value) > 2 * _SHORT else [_cell(each) for each in value]
        more = f" … ({len(value)})" if len(value) > len(parts) else ""
        return f"[{', '.join(parts)}{more}]"
    return shown(str(value))


def listing_csv(listing: ModelListing) -> str:
    """Return a line per tensor."""
    columns = list(listing.tensors[0]) if listing.tensors else list(_TENSOR_COLUMNS)
    return csv_text(columns, ({key: _csv(value) for key, value in row.items()} for row in listing.tensors))


def _csv(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) else "" if value is None else value


def listing_json(listing: ModelListing) -> str:
    """Return the whole listing."""
    return json_text({"format": "sgsdump model", "version": 1, **asdict(listing)}, indent=1)


def differences_text(found: Sequence[ListedDifference], compared: int) -> str:
    """Return a line per difference, grouped by tensor, and how many tensors were compared."""
    rows = [
        (shown(each.name), each.word.replace("_", " "), _cell(each.sample), _cell(each.benchmark)) for each in found
    ]
    lines = aligned([("tensor", "what", "sample", "benchmark"), *rows]) if rows else []
    names = len({each.name for each in found})
    lines.append(
        f"{names} of {counted(compared, 'tensor')} differ" if names else f"{counted(compared, 'tensor')}: no difference"
    )
    return "".join(f"{line}\n" for line in lines)


def differences_json(found: Sequence[ListedDifference]) -> str:
    """Return every difference."""
    rows = [asdict(each) for each in found]
    return json_text({"format": "sgsdump model differences", "version": 1, "differences": rows}, indent=1)
