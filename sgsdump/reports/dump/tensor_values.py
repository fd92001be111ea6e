"""The values of one tensor as text, CSV (a line for each row of the last axis, behind its index) or JSON."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from typing import Any

import numpy as np

from sgsdump.tensors.dtypes import name_of


def text(array: np.ndarray, whole: bool = False) -> str:
    """numpy's way to print an array; a large one abbreviated unless ``whole``."""
    threshold = sys.maxsize if whole else 1000
    return np.array2string(array, threshold=threshold, max_line_width=120, separator=" ") + "\n"


def csv_table(array: np.ndarray) -> str:
    """Columns ``axis0`` … for the index of a row, then its values; text from the dump is never among them."""
    out = io.StringIO()
    rows = array.reshape(1, 1) if array.ndim == 0 else array
    table = csv.writer(out, lineterminator="\n")
    lead = rows.shape[:-1]
    table.writerow([*(f"axis{i}" for i in range(len(lead))), *map(str, range(rows.shape[-1]))])
    for index in np.ndindex(lead):
        table.writerow([*index, *map(_number, rows[index].tolist())])
    return out.getvalue()


def json_document(array: np.ndarray, name: str) -> str:
    """``name``, ``dtype``, ``shape`` and ``values``, flat in C order; "nan", "inf" and "-inf" as text."""
    values = [_plain(value) for value in array.reshape(-1).tolist()]
    document = {"name": name, "dtype": name_of(array.dtype), "shape": list(array.shape), "values": values}
    return json.dumps(document, allow_nan=False) + "\n"


def _number(value: Any) -> Any:
    return value if isinstance(value, (int, float, bool)) else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (bool, int, float)) else str(value)
