"""Writing the statistics of one operator's tensors, the file that ``ascend_stats.py`` specifies.

Columns are those of the device's writer; with a choice of statistics those of the host's. Numbers have nine digits
(devices print six), which is all of a float32. Statistics of no finite value, and of types that are no numbers, are NA.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sgsdump.dumps.formats.ascend.types.ge_types import DATA_TYPES, numbers
from sgsdump.tensors.dtypes import is_integer
from sgsdump.tensors.statistics import Statistics

FACTS = ("Input/Output", "Index", "Data Size", "Data Type", "Format", "Shape")
DEFAULT = ("Max", "Min", "Avg", "Nan", "Negative Inf", "Positive Inf")
COLUMNS = {
    "Max": "Max Value",
    "Min": "Min Value",
    "Avg": "Avg Value",
    "Nan": "Nan Count",
    "Negative Inf": "Negative Inf Count",
    "Positive Inf": "Positive Inf Count",
    "L2norm": "l2norm",
}
_NUMBERS = numbers()
# Devices print their extremes from half of the bits, without a point.
_WIDE = frozenset("float64 uint64 complex64 complex128 uint32".split())


class Row(NamedTuple):
    """A tensor: ``io`` Input or Output, ``size`` its bytes, ``dtype`` by name; statistics None where it has none."""

    io: str
    slot: int
    size: int
    dtype: str
    shape: tuple[int, ...]
    statistics: Statistics | None


def table(rows: Iterable[Row], chosen: Sequence[str] = DEFAULT) -> str:
    """The file's text. ``chosen`` are statistics by the names of ``dump_stats`` in a configuration."""
    items = [name for name in COLUMNS if name in chosen]
    plain = items == list(DEFAULT)
    columns = [COLUMNS[name] for name in items]
    columns.insert(3 if plain else 0, "Count")
    lines = [",".join((*FACTS, *columns)), *(",".join(_cells(row, columns)) for row in rows)]
    return "\n".join(lines) + "\n"


def _cells(row: Row, columns: Sequence[str]) -> list[str]:
    number = _NUMBERS.get(row.dtype)
    kind = "UNKNOW" if number is None else f"DT_{DATA_TYPES[number].name.upper()}"
    shape = "x".join(map(str, row.shape)) or "1"
    facts = [row.io, str(row.slot), str(row.size), kind, "ND", shape]
    known = row.statistics or Statistics()
    values = {
        "Max Value": _number(known.max, row.dtype),
        "Min Value": _number(known.min, row.dtype),
        "Avg Value": _number(known.mean, ""),
        "Count": _count(known.count),
        "Nan Count": _count(known.nan),
        "Negative Inf Count": _count(known.negative_inf),
        "Positive Inf Count": _count(known.positive_inf),
        "l2norm": _number(known.l2norm, ""),
    }
    return [*facts, *(values[column] for column in columns)]


def _number(value: float | None, dtype: str) -> str:
    if value is None:
        return "NA"
    if dtype in _WIDE:
        return repr(float(value))
    if dtype and is_integer(dtype):
        return str(int(value))
    return f"{value:.9g}"


def _count(value: int | None) -> str:
    return "NA" if value is None else str(value)
