"""Values of a tensor, and the largest differences of two tensors, as text, CSV and JSON."""

from __future__ import annotations

import csv
import io
import math
import sys
from typing import Any

import numpy as np

from sgsdump.comparison.worst_values import Number, WorstValue, WorstValues
from sgsdump.files.escaping import shown
from sgsdump.files.json_yaml import json_text
from sgsdump.reports.text import aligned, csv_text
from sgsdump.tensors.dtypes import name_of

WORST_COLUMNS = ("index", "sample", "benchmark", "error", "relative_error")


def values_text(array: np.ndarray, whole: bool = False) -> str:
    """Return the array as numpy prints it; a large array is abbreviated unless ``whole``."""
    threshold = sys.maxsize if whole else 1000
    return np.array2string(array, threshold=threshold, max_line_width=120, separator=" ") + "\n"


def values_csv(array: np.ndarray) -> str:
    """Return a line per row of the last axis: its index (``axis0`` …), then its values.

    The CSV contains no text from the dump, so nothing is escaped.
    """
    out = io.StringIO()
    rows = array.reshape(1, 1) if array.ndim == 0 else array
    table = csv.writer(out, lineterminator="\n")
    lead = rows.shape[:-1]
    table.writerow([*(f"axis{i}" for i in range(len(lead))), *map(str, range(rows.shape[-1]))])
    for index in np.ndindex(lead):
        table.writerow([*index, *map(_number, rows[index].tolist())])
    return out.getvalue()


def values_json(array: np.ndarray, name: str) -> str:
    """Return ``name``, ``dtype``, ``shape`` and ``values``, flat in C order."""
    values = list(map(_number, array.reshape(-1).tolist()))
    document: dict[str, Any] = {"format": "sgsdump values", "version": 1, "name": name}
    document |= {"dtype": name_of(array.dtype), "shape": list(array.shape), "values": values}
    return json_text(document, indent=None)


def worst_text(worst: WorstValues) -> str:
    """Return a line on the pair, then aligned columns: index, sample, benchmark, error, relative error."""
    size = math.prod(worst.shape)
    differ = f"{worst.differing} of {size} values differ" if worst.differing else f"all {size} values are equal"
    first = f"{shown(worst.pair.benchmark.name)} {list(worst.shape)}: {differ}"
    lines = ["; ".join(filter(None, [first, worst.note]))]
    if worst.values:
        head = ("index", "sample", "benchmark", "error", "relative")
        lines += aligned([head, *map(_cells, worst.values)], range(len(head)))
    return "".join(f"{line}\n" for line in lines)


def worst_csv(worst: WorstValues) -> str:
    """Return a line per element in full precision; the index is ``[0, 3, 1]``."""
    rows = (dict(zip(WORST_COLUMNS, (list(value.index), *value.numbers))) for value in worst.values)
    return csv_text(WORST_COLUMNS, rows)


def worst_json(worst: WorstValues) -> str:
    """Return ``name``, ``sample_name``, ``shape``, ``note``, ``apart`` and ``values``."""
    document = {
        "format": "sgsdump worst values",
        "version": 1,
        "name": worst.pair.benchmark.name,
        "sample_name": worst.pair.sample.name,
        "shape": list(worst.shape),
        "note": worst.note,
        "apart": worst.differing,
        "values": [dict(zip(WORST_COLUMNS, (v.index, *map(_number, v.numbers)))) for v in worst.values],
    }
    return json_text(document)


def _number(value: Any) -> Any:
    """Return the value; complex numbers and bytes as text, because CSV and JSON lack them."""
    return value if isinstance(value, (int, float)) else str(value)


def _cells(value: WorstValue) -> tuple[str, ...]:
    index = ",".join(map(str, value.index))
    return (f"[{index}]", _short(value.sample), _short(value.benchmark), f"{value.error:.6g}", f"{value.relative:.6g}")


def _short(number: Number) -> str:
    return str(number) if isinstance(number, int) else f"{number:.9g}"
