"""The statistics of one operator's tensors; ``formats/ascend_stats.py`` specifies the file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from sgsdump.dumps.dump import Record
from sgsdump.dumps.formats.ascend.file_names import FileName
from sgsdump.dumps.formats.ascend.slot import checked_shape
from sgsdump.dumps.formats.ascend.types.ge_types import DATA_TYPES, fits
from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import read_all
from sgsdump.tensors.statistics import Statistics
from sgsdump.tensors.tensor import Tensor, TensorInfo

HEAD = "Input/Output,Index,"
ENDING = ".csv"
MOST_BYTES, MOST_ROWS = 2**24, 10_000
_COLUMNS = {
    "input/output": "io",
    "index": "index",
    "data type": "type",
    "format": "format",
    "shape": "shape",
    "count": "count",
    "l2norm": "l2norm",
    **dict.fromkeys(("max", "max value"), "max"),
    **dict.fromkeys(("min", "min value"), "min"),
    **dict.fromkeys(("avg", "avg value"), "mean"),
    **dict.fromkeys(("nan", "nan count"), "nan"),
    **dict.fromkeys(("neg inf count", "negative inf", "negative inf count"), "negative_inf"),
    **dict.fromkeys(("pos inf count", "positive inf", "positive inf count"), "positive_inf"),
}
_TYPES = {name: coding.dtype for name, coding in DATA_TYPES.values() if coding is not None}
_TYPES |= {"bf16": _TYPES["bfloat16"]}
_UNKNOWN = np.dtype("V1")
# The device prints their extremes from the low 32 bits, as an int32.
_LOW_WORD = frozenset(map(np.dtype, (np.float64, np.uint64, np.complex64, np.complex128)))


def records_of(path: Path, called: FileName | None, op_index: int, name: str, notes: list[str]) -> list[Record]:
    """The records of a file, of tensors without values. Raises FormatError."""
    op_type, by_slot = called.op_type if called else "", {}  # type: str, dict[tuple[str, int], Record]
    again = 0
    for row in _rows(_text(path), path, notes):
        record = _record(row, path, op_type, op_index, name, notes)
        again += (record.io, record.slot) in by_slot
        by_slot[record.io, record.slot] = record
    if again:
        notes.append(f"{path.name}: {again} tensors have several rows; the last of each is taken")
    if not by_slot:
        raise FormatError(f"{path} has no row of statistics")
    return sorted(by_slot.values(), key=lambda record: (record.io, record.slot))


def _text(path: Path) -> str:
    return read_all(path, MOST_BYTES, "the statistics of an operator").decode("utf-8-sig", "replace")


def _rows(text: str, path: Path, notes: list[str]) -> Iterator[Mapping[str, str]]:
    """Each row's cells by column, under the last header above it."""
    columns: list[str] = []
    facts: list[str] = []
    odd = 0
    for number, line in enumerate(text.splitlines()):
        cells = [cell.strip() for cell in line.split(",")]
        if number > MOST_ROWS:
            raise FormatError(f"{path} has more than {MOST_ROWS} rows, no operator's statistics")
        if line.startswith(HEAD):
            columns = [_COLUMNS.get(cell.lower(), cell) for cell in cells]
            facts = columns[: columns.index("shape") + 1] if "shape" in columns else columns[:2]
        elif not columns:
            raise FormatError(f"{path} does not begin with {HEAD!r}; is it a file of statistics?")
        elif any(cells):
            names = _names_of(columns, cells)
            odd += names is None
            yield dict(zip(facts if names is None else names, cells))
    if not text.endswith("\n"):
        notes.append(f"{path.name}: the last row is not ended; was the run cut off?")
    if odd:
        notes.append(f"{path.name}: {odd} rows have other columns than their header; their statistics are left out")


def _names_of(columns: list[str], cells: Sequence[str]) -> list[str] | None:
    """The columns of a row: a cell less than the header means that the writer left Count out. None: undecided."""
    if len(cells) == len(columns):
        return columns
    without = [column for column in columns if column != "count"]
    return without if len(cells) == len(without) else None


def _record(row: Mapping[str, str], path: Path, op_type: str, op_index: int, name: str, notes: list[str]) -> Record:
    io, index = row["io"].lower(), row.get("index", "")
    if io not in ("input", "output") or not index.isdecimal() or len(index) > 9:
        raise FormatError(f"{path} is damaged: a row begins with {row['io'][:20]!r}, {index[:20]!r}")
    kind = row.get("type", "").lower().removeprefix("dt_")
    dtype, shape = _TYPES.get(kind, _UNKNOWN), _shape(row.get("shape", ""), path)
    layout = row.get("format", "")
    info = TensorInfo(
        f"{name}:{io}:{int(index)}",
        shape,
        dtype,
        layout if fits(layout, len(shape or ())) else None,
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
    """``1x3`` as (1, 3); None for ``-``, which says nothing."""
    if text in ("", "-", "NA"):
        return None
    sizes = text.split("x")
    if len(text) > 1000 or not all(size.isdecimal() for size in sizes):
        raise FormatError(f"{path} is damaged: {text[:40]!r} is no shape")
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
    """The statistics without extremes that the device cannot have printed right."""
    extremes = (statistics.max, statistics.min)
    if info.dtype == np.uint32:
        high, low = (None if value is None or not math.isfinite(value) else value % 2**32 for value in extremes)
        return replace(statistics, max=high, min=low)
    if info.dtype not in _LOW_WORD or not any(map(_is_int32, extremes)):
        return statistics
    notes.append(f"tensor {info.name!r}: max and min of {info.dtype} are left out, devices print half of them")
    return replace(statistics, max=None, min=None)
