"""``statistic.csv`` of an ATB dump (msprobe): a row per tensor, beside the operators' folders of one execution.

::

    Device and PID,Execution Count,Op Name,Op Type,Op Id,Input/Output,Index,Dtype,Format,Shape,
    Max,Min,Mean,Norm,Tensor Path                                            (all on one line)

Cells are never quoted. Op Name joins the operators' names with ``/``, Op Id their ids with ``_``; Shape is ``4x4``,
nothing for a scalar; statistics are N/A where only tensors were dumped, Tensor Path where only statistics were. For a
complex tensor the first three statistics are ``(re,im)``, whose comma the vendor's own reader takes for another column:
it drops the row, as its writer drops rows whose statistics begin with ``-inf`` or ``-nan``. So the table may lack rows.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, NamedTuple

from sgsdump.dumps.formats.ascend.types.acl_types import format_number, named
from sgsdump.dumps.formats.ascend.types.ge_types import DataType, layout_of
from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import open_file, read_all
from sgsdump.tensors.statistics import Statistics

NAME = "statistic.csv"
HEADER = (
    "Device and PID,Execution Count,Op Name,Op Type,Op Id,Input/Output,Index,Dtype,Format,Shape,"
    "Max,Min,Mean,Norm,Tensor Path"
)
MOST_BYTES = 2**26
_MOST_DIGITS = 400
_COLUMNS = HEADER.count(",") + 1
_COMPLEX = re.compile(r"\(([^(),]*),([^(),]*)\)")
_INDEX = re.compile(r"([0-9]{1,9})((?:_.*)?)")
_NONE = "N/A"


class Row(NamedTuple):
    """A tensor as its row describes it; ``type`` and ``shape`` are None where the row is not understood, ``statistics``
    where there are none; ``dumped`` says that its values were to be dumped too."""

    operators: tuple[str, ...]
    io: Literal["in", "out"]
    slot: int
    label: str
    type: DataType | None
    layout: str | None
    shape: tuple[int, ...] | None
    statistics: Statistics | None
    dumped: bool


def recognised(path: Path) -> bool:
    """Whether a file begins with the header of these columns."""
    try:
        with open_file(path) as file:
            return file.read(len(HEADER) + 1).rstrip(b"\r\n") == HEADER.encode()
    except OSError:
        return False


def read(path: Path) -> tuple[list[Row], int]:
    """The rows of a file, and how many were not understood. Raises FormatError when it is no such file."""
    lines = read_all(path, MOST_BYTES, "a table of statistics").decode("utf-8", "replace").splitlines()
    if not lines or lines[0] != HEADER:
        raise FormatError(f"{path} has not the columns of a {NAME}")
    rows = [_row(line) for line in lines if line and line != HEADER]
    known = [row for row in rows if row is not None]
    return known, len(rows) - len(known)


def _row(line: str) -> Row | None:
    cells = _COMPLEX.sub(r"(\1;\2)", line).split(",")
    if len(cells) != _COLUMNS:
        return None
    _, _, names, _, ids, io, index, dtype, format, shape, *statistics, path = cells
    parts = list(zip(ids.split("_"), names.split("/")))
    place = _INDEX.fullmatch(index)
    if io not in ("input", "output") or not place or len(parts) != names.count("/") + 1 or ids.count("_") >= len(parts):
        return None
    dims = _shape(shape)
    return Row(
        tuple(f"{id}_{name}" for id, name in parts),
        "in" if io == "input" else "out",
        int(place[1]),
        place[2],
        named(dtype),
        None if dims is None else layout_of(format_number(format.upper()), len(dims)),
        dims,
        _statistics(statistics),
        path != _NONE,
    )


def _shape(text: str) -> tuple[int, ...] | None:
    parts = text.split("x") if text else []
    if len(parts) > 32 or not all(re.fullmatch(r"[0-9]{1,15}", part) for part in parts):
        return None
    return tuple(map(int, parts))


def _statistics(cells: list[str]) -> Statistics | None:
    largest, least, mean, norm = (_number(cell) for cell in cells)
    if largest is least is mean is norm is None:
        return None
    return Statistics(least, largest, mean, norm)


def _number(cell: str) -> float | None:
    """A figure; None for N/A, and for those of complex numbers, which are two."""
    try:
        return float(cell[:_MOST_DIGITS])
    except ValueError:
        return None
