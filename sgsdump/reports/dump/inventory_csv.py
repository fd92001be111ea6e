"""What is in a dump as CSV: a line per tensor, numbers in full precision; unknown statistics are empty cells.

Names that a spreadsheet would take for a formula have a ``'`` before them; shapes are ``1x2x3``.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, fields

from sgsdump.dumps.inventory import Item
from sgsdump.files.escaping import escaped
from sgsdump.tensors.statistics import Statistics

_STATISTICS = [field.name for field in fields(Statistics)]
COLUMNS = [field.name for field in fields(Item) if field.name != "statistics"] + _STATISTICS


def render(items: Sequence[Item]) -> str:
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    table.writeheader()
    for item in items:
        row = asdict(item)
        row |= row.pop("statistics")
        row["shape"] = "" if item.shape is None else "x".join(map(str, item.shape))
        row |= {name: "yes" if row[name] else "no" for name in ("constant", "damaged", "saturated")}
        table.writerow(escaped(row))
    return text.getvalue()
