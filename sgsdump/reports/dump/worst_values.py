"""The elements of two tensors that are farthest apart, as text, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import math

from sgsdump.comparison.worst_values import Number, WorstValue, WorstValues
from sgsdump.files.escaping import escaped, shown

COLUMNS = ("index", "sample", "benchmark", "error", "relative_error")


def text(worst: WorstValues) -> str:
    """A line on the pair, then aligned columns: index, sample, benchmark, error, relative error."""
    sizes = math.prod(worst.shape)
    differ = f"{worst.differing} of {sizes} values differ" if worst.differing else f"all {sizes} values are equal"
    first = f"{shown(worst.pair.benchmark.name)} {list(worst.shape)}: {differ}"
    lines = ["; ".join(filter(None, [first, worst.note]))]
    if worst.values:
        table = [("index", "sample", "benchmark", "error", "relative"), *map(_cells, worst.values)]
        widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
        lines += ["  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths)) for line in table]
    return "".join(f"{line}\n" for line in lines)


def csv_table(worst: WorstValues) -> str:
    """A line for each element, numbers in full precision; the index as ``[0, 3, 1]``."""
    out = io.StringIO()
    table = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    table.writeheader()
    for value in worst.values:
        table.writerow(escaped(dict(zip(COLUMNS, (list(value.index), *value.numbers)))))
    return out.getvalue()


def json_document(worst: WorstValues) -> str:
    """``name``, ``sample_name``, ``shape``, ``note``, ``apart`` and ``values``; "nan", "inf" and "-inf" as text."""
    document = {
        "name": worst.pair.benchmark.name,
        "sample_name": worst.pair.sample.name,
        "shape": list(worst.shape),
        "note": worst.note,
        "apart": worst.differing,
        "values": [dict(zip(COLUMNS, (list(value.index), *map(_plain, value.numbers)))) for value in worst.values],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _cells(value: WorstValue) -> tuple[str, ...]:
    index = ",".join(map(str, value.index))
    return (f"[{index}]", _short(value.sample), _short(value.benchmark), f"{value.error:.6g}", f"{value.relative:.6g}")


def _short(number: Number) -> str:
    return str(number) if isinstance(number, int) else f"{number:.9g}"


def _plain(number: Number) -> object:
    finite = isinstance(number, int) or (isinstance(number, float) and math.isfinite(number))
    return number if finite else str(number)
