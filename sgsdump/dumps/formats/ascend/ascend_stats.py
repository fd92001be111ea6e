"""Reader and writer of the statistics of one operator on an Ascend device (``dump_data: stats``).

The file is ``{dump file name}.csv``::

    Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,Nan Count,…
    Output,0,640000,DT_FLOAT,NHWC,4x50x50x16,1.99999,1,1.50004,160000,0,0,0

Tensors have statistics but no values; reading values raises ValuesError. Properties of the files:

* The user selects the statistics and their order, so columns are matched by name. ``l2norm`` may be present.
* The header line may be repeated; each row follows the last header above it.
* A row may lack Count although the header has it. The row then has one cell less than the header.
* Empty and ``NA`` cells are unknown statistics, ``-`` is an unknown shape, ``UNKNOW`` an unknown type or format.
* Devices print max and min of float64, uint64 and complex types from half of their bits. These are dropped with a note.
  Devices print max and min of uint32 as int32; the reader converts them back. Values with a decimal point do not come
  from a device and are kept.

Dumps cannot be saved in this format, but ``table`` returns the text of a file. Its columns match the device's writer
or, with selected statistics, the host's writer. Numbers have nine digits, enough for float32 (devices print six).
Statistics without finite values, and of non-numeric types, are NA.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sgsdump.dumps.dump import Damage, Dump, Record
from sgsdump.dumps.format import Format, checked_shape
from sgsdump.dumps.formats.ascend.file_names import FileName, parse
from sgsdump.dumps.formats.shared.ascend_types import GE_TYPES, ge_numbers, layout_fits
from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import read_all
from sgsdump.tensors.dtypes import is_integer
from sgsdump.tensors.statistics import Statistics
from sgsdump.tensors.tensor import Tensor, TensorInfo

HEAD = "Input/Output,Index,"
ENDING = ".csv"
MOST_BYTES, MOST_ROWS = 2**24, 10_000
# Name of a statistic in a configuration -> column, field of Statistics.
_STATISTICS = {
    "Max": ("Max Value", "max"),
    "Min": ("Min Value", "min"),
    "Avg": ("Avg Value", "mean"),
    "Nan": ("Nan Count", "nan"),
    "Negative Inf": ("Negative Inf Count", "negative_inf"),
    "Positive Inf": ("Positive Inf Count", "positive_inf"),
    "L2norm": ("l2norm", "l2norm"),
}
_COLUMNS = {"input/output": "io", "index": "index", "data type": "type", "format": "format", "shape": "shape"}
_COLUMNS |= {"count": "count", "neg inf count": "negative_inf", "pos inf count": "positive_inf"}
_COLUMNS |= {text.lower(): field for name, (head, field) in _STATISTICS.items() for text in (name, head)}
_TYPES = {name: coding.dtype for name, coding in GE_TYPES.values() if coding is not None}
_TYPES |= {"bf16": _TYPES["bfloat16"]}
_UNKNOWN = np.dtype("V1")
# Types whose extremes the device prints from the low 32 bits, as int32.
_LOW_WORD = frozenset(map(np.dtype, (np.float64, np.uint64, np.complex64, np.complex128)))
_FACT_COLUMNS = ("Input/Output", "Index", "Data Size", "Data Type", "Format", "Shape")
DEFAULT = ("Max", "Min", "Avg", "Nan", "Negative Inf", "Positive Inf")
_NUMBERS = ge_numbers()
# Types whose extremes need a decimal point: without it, the reader takes them for a device's half values.
_WIDE = frozenset("float64 uint64 complex64 complex128 uint32".split())


class Row(NamedTuple):
    """Facts of a tensor: ``io`` is Input or Output, ``size`` is in bytes, ``dtype`` is a name."""

    io: str
    slot: int
    size: int
    dtype: str
    shape: tuple[int, ...]
    statistics: Statistics | None


def records_of(path: Path, file_name: FileName | None, op_index: int, name: str, notes: list[str]) -> list[Record]:
    """Return the records of a file, tensors without values. Raises FormatError."""
    op_type = file_name.op_type if file_name else ""
    by_slot: dict[tuple[str, int], Record] = {}
    repeated = 0
    text = read_all(path, MOST_BYTES, "the statistics of an operator").decode("utf-8-sig", "replace")
    for row in _rows(text, path, notes):
        record = _record(row, path, op_type, op_index, name, notes)
        repeated += (record.io, record.slot) in by_slot
        by_slot[record.io, record.slot] = record
    if repeated:
        notes.append(f"{path.name}: {repeated} tensors have several rows; the last row of each is used")
    if not by_slot:
        raise FormatError(f"{path} has no row of statistics")
    return sorted(by_slot.values(), key=lambda record: (record.io, record.slot))


def recognises(path: Path, head: bytes) -> bool:
    return head.removeprefix(b"\xef\xbb\xbf").startswith(HEAD.encode())


def read(path: Path) -> Dump:
    """Read the statistics of one operator's tensors. Raises FormatError."""
    notes: list[str] = []
    stem = path.name.removesuffix(ENDING)
    file_name = parse(stem)
    name = file_name.name_of(file_name.op_name) if file_name else stem
    return Dump(records_of(path, file_name, 0, name, notes), FORMAT.name, None, path, notes)


def table(rows: Iterable[Row], chosen: Sequence[str] = DEFAULT) -> str:
    """Return the text of a file; ``chosen`` holds names of statistics as in ``dump_stats`` of a configuration."""
    columns = [column for name, column in _STATISTICS.items() if name in chosen]
    is_default = columns == [_STATISTICS[name] for name in DEFAULT]
    columns.insert(3 if is_default else 0, ("Count", "count"))
    fields = [field for _, field in columns]
    lines = [
        ",".join((*_FACT_COLUMNS, *(head for head, _ in columns))),
        *(",".join(_cells(row, fields)) for row in rows),
    ]
    return "\n".join(lines) + "\n"


def _rows(text: str, path: Path, notes: list[str]) -> Iterator[Mapping[str, str]]:
    """Yield the cells of each row by column, according to the last header above the row."""
    columns: list[str] = []
    facts: list[str] = []
    odd = 0
    for number, line in enumerate(text.splitlines()):
        cells = [cell.strip() for cell in line.split(",")]
        if number > MOST_ROWS:
            raise FormatError(f"{path} has more than {MOST_ROWS} rows, too many for the statistics of an operator")
        if line.startswith(HEAD):
            columns = [_COLUMNS.get(cell.lower(), cell) for cell in cells]
            facts = columns[: columns.index("shape") + 1] if "shape" in columns else columns[:2]
        elif not columns:
            raise FormatError(f"{path} does not begin with {HEAD!r}. Check that it is a file of statistics")
        elif any(cells):
            names = _names_of(columns, cells)
            odd += names is None
            yield dict(zip(facts if names is None else names, cells))
    if not text.endswith("\n"):
        notes.append(f"{path.name}: the last row has no line end; the run may have been interrupted")
    if odd:
        notes.append(
            Damage(f"{path.name}: left out the statistics of {odd} rows whose columns do not match their header")
        )


def _names_of(columns: list[str], cells: Sequence[str]) -> list[str] | None:
    """Return the columns of a row; one missing cell means that Count was omitted. None if the columns do not match."""
    if len(cells) == len(columns):
        return columns
    without = [column for column in columns if column != "count"]
    return without if len(cells) == len(without) else None


def _record(row: Mapping[str, str], path: Path, op_type: str, op_index: int, name: str, notes: list[str]) -> Record:
    io, index = row["io"].lower(), row.get("index", "")
    if io not in ("input", "output") or not index.isdecimal() or len(index) > 9:
        raise FormatError(
            f"{path} is damaged: a row begins with {row['io'][:20]!r}, {index[:20]!r} instead of 'input' or "
            "'output' and an index"
        )
    kind = row.get("type", "").lower().removeprefix("dt_")
    dtype, shape = _TYPES.get(kind, _UNKNOWN), _shape(row.get("shape", ""), path)
    layout = row.get("format", "")
    info = TensorInfo(
        f"{name}:{io}:{int(index)}",
        shape,
        dtype,
        layout if layout_fits(layout, len(shape or ())) else None,
        None,
        op_type if io == "output" else "",
    )
    low, high, mean, l2norm = (_number(row.get(column, "")) for column in ("min", "max", "mean", "l2norm"))
    counts = (_whole(row.get(column, "")) for column in ("count", "nan", "negative_inf", "positive_inf"))
    statistics = Statistics(low, high, mean, l2norm, *counts)
    halved = not any("." in row.get(column, "") for column in ("min", "max"))
    tensor = Tensor.of_statistics(info, _trusted(statistics, info, notes) if halved else statistics)
    return Record("in" if io == "input" else "out", int(index), op_index, op_type, tensor)


def _shape(text: str, path: Path) -> tuple[int, ...] | None:
    """Return (1, 3) for ``1x3``; None for ``-`` (unknown)."""
    if text in ("", "-", "NA"):
        return None
    sizes = text.split("x")
    if len(text) > 1000 or not all(size.isdecimal() for size in sizes):
        raise FormatError(f"{path} is damaged: {text[:40]!r} is not a shape")
    try:
        return checked_shape(map(int, sizes))
    except FormatError as error:
        raise FormatError(f"{path} is damaged: {error}") from None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 20 else None


def _is_int32(value: float | None) -> bool:
    return value is not None and value.is_integer() and -(2**31) <= value < 2**31


def _trusted(statistics: Statistics, info: TensorInfo, notes: list[str]) -> Statistics:
    """Return the statistics without extremes that the device cannot print correctly."""
    extremes = (statistics.max, statistics.min)
    if info.dtype == np.uint32:
        high, low = (None if value is None or not math.isfinite(value) else value % 2**32 for value in extremes)
        return replace(statistics, max=high, min=low)
    if info.dtype not in _LOW_WORD or not any(map(_is_int32, extremes)):
        return statistics
    notes.append(
        f"tensor {info.name!r}: max and min of {info.dtype} are left out: devices print only half of their bits"
    )
    return replace(statistics, max=None, min=None)


def _cells(row: Row, fields: Sequence[str]) -> list[str]:
    number = _NUMBERS.get(row.dtype)
    kind = "UNKNOW" if number is None else f"DT_{GE_TYPES[number].name.upper()}"
    shape = "x".join(map(str, row.shape)) or "1"
    facts = [row.io, str(row.slot), str(row.size), kind, "ND", shape]
    statistics = row.statistics or Statistics()
    return [*facts, *(_printed(getattr(statistics, field), field, row.dtype) for field in fields)]


def _printed(value: float | None, field: str, dtype: str) -> str:
    if value is None:
        return "NA"
    if field in ("mean", "l2norm"):
        return f"{value:.9g}"
    if field not in ("max", "min"):
        return str(value)
    if dtype in _WIDE:
        return repr(float(value))
    return str(int(value)) if dtype and is_integer(dtype) else f"{value:.9g}"


FORMAT = Format("ascend_stats", recognises, read, own_inputs=True)
