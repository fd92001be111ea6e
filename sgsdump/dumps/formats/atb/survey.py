"""Survey of an ATB dump's folder: readable files, the relevant copy of each tensor, and the rows of ``statistic.csv``.

``statistic.csv`` (msprobe) lies beside the operators' folders of one execution and has one row per tensor::

    Device and PID,Execution Count,Op Name,Op Type,Op Id,Input/Output,Index,Dtype,Format,Shape,
    Max,Min,Mean,Norm,Tensor Path                                            (all on one line)

Cells are never quoted. Op Name joins the operators' names with ``/``, Op Id their ids with ``_``. Shape is ``4x4``, or
empty for a scalar. Statistics are N/A if only tensors were dumped; Tensor Path is N/A if only statistics were dumped.
For a complex tensor, the first three statistics are ``(re,im)``. The vendor's own reader takes their comma as a column
separator and drops the row. The vendor's writer drops rows whose statistics begin with ``-inf`` or ``-nan``, so rows
may be missing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from sgsdump.dumps.dump import Damage
from sgsdump.dumps.formats.atb import tensor
from sgsdump.dumps.formats.atb.location import Location, split
from sgsdump.dumps.formats.atb.tensor import Content
from sgsdump.dumps.formats.shared.ascend_types import DataType, acl_type_named, format_number, layout_of
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
_SHOWN = 3
_DAMAGED_SHOWN = 20


class Row(NamedTuple):
    """One row of ``statistic.csv``.

    type, shape  None if the cell cannot be parsed.
    statistics   None if the row has none.
    dumped       True if the tensor's values were dumped too.
    """

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
    """Return whether a file begins with the header of ``statistic.csv``."""
    try:
        with open_file(path) as file:
            return file.read(len(HEADER) + 1).rstrip(b"\r\n") == HEADER.encode()
    except OSError:
        return False


def read(path: Path) -> tuple[list[Row], int]:
    """Return the rows of a file and the number of malformed rows. Raises FormatError for another file."""
    lines = read_all(path, MOST_BYTES, "a table of statistics").decode("utf-8", "replace").splitlines()
    if not lines or lines[0] != HEADER:
        raise FormatError(f"{path} does not have the columns of a {NAME}")
    rows = [_row(line) for line in lines if line and line != HEADER]
    understood = [row for row in rows if row is not None]
    return understood, len(rows) - len(understood)


def examined(root: Path, files: Sequence[str], notes: list[str]) -> dict[str, Content]:
    """Return the readable files by path; note irregular and damaged ones."""
    contents: dict[str, Content] = {}
    odd: defaultdict[str, list[str]] = defaultdict(list)
    damaged: list[str] = []
    for name in files:
        try:
            content = contents[name] = tensor.examine(root / name)
        except FormatError as error:
            damaged.append(Damage.left_out(error))
            continue
        for note in content.notes:
            odd[note].append(name)
    notes.extend(damaged[:_DAMAGED_SHOWN])
    if len(damaged) > _DAMAGED_SHOWN:
        notes.append(Damage(f"left out: {len(damaged) - _DAMAGED_SHOWN} more files that cannot be read"))
    notes.extend(summed(odd))
    return contents


def chosen(locations: Mapping[str, Location], notes: list[str]) -> dict[Location, str]:
    """Return the path of each tensor; of several copies, the relevant one."""
    paths: dict[tuple, tuple[Location, str]] = {}
    copies = 0
    for path, location in locations.items():
        other = paths.get(location.key)
        copies += other is not None
        if other is None or location.meant:
            paths[location.key] = location, path
    if copies:
        notes.append(
            f"{copies} tensors were dumped before and after their operator: "
            f"inputs are read from before, outputs from after"
        )
    early = [path for location, path in paths.values() if location.io == "out" and location.when == "before"]
    if early:
        notes.append(f"{some(early, 'output')} dumped only before the operator ran, without its result")
    return dict(paths.values())


def rows(root: Path, tables: Sequence[str], notes: list[str]) -> dict[Location, Row]:
    """Return the rows of all statistic.csv files, by location."""
    by_location: dict[Location, Row] = {}
    for name in tables:
        try:
            rows, bad = read(root / name)
        except FormatError as error:
            notes.append(Damage.left_out(error))
            continue
        if bad:
            notes.append(Damage(f"{name} has {bad} malformed rows"))
        execution, above = split(name.split("/")[:-1])
        for row in rows:
            when = "before" if row.io == "in" else "after"
            location = Location(execution, above + row.operators, row.io, row.slot, row.label, when)
            by_location.setdefault(location, row)
    return by_location


def say_missing(chosen: Mapping[Location, str], rows: Mapping[Location, Row], notes: list[str]) -> None:
    """Note rows without a file and, if there are rows, files without a row."""
    there, listed = {location.key for location in chosen}, {location.key for location in rows}
    gone = [location.name for location, row in rows.items() if row.dumped and location.key not in there]
    if gone:
        notes.append(f"{some(gone, 'tensor')} in {NAME}, but the file is missing")
    bare = [location.name for location, row in rows.items() if not (row.dumped or row.statistics)]
    if bare:
        notes.append(f"{some(bare, 'tensor')} in {NAME}, but without statistics")
    unlisted = [path for location, path in chosen.items() if rows and location.key not in listed]
    if unlisted:
        notes.append(f"{some(unlisted, 'file')} without a row in {NAME}")


def some(names: Sequence[str], noun: str) -> str:
    """Return the beginning of a note, ``2 files (a, b) are``, with the first names."""
    shown = _first(names)
    return f"{len(names)} {noun} ({shown}) is" if len(names) == 1 else f"{len(names)} {noun}s ({shown}) are"


def summed(notes: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a line per kind of note, with the number of files and the first names."""
    for note, names in notes.items():
        yield f"{names[0]} {note}" if len(names) == 1 else f"{len(names)} files: each {note} ({_first(names)})"


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


def _row(line: str) -> Row | None:
    cells = _COMPLEX.sub(r"(\1;\2)", line).split(",")
    if len(cells) != _COLUMNS:
        return None
    _, _, names, _, ids, io, index, dtype, format, shape, *statistics, path = cells
    parts = list(zip(ids.split("_"), names.split("/")))
    location = _INDEX.fullmatch(index)
    if io not in ("input", "output") or not location or ids.count("_") != names.count("/"):
        return None
    dims = _shape(shape)
    return Row(
        tuple(f"{id}_{name}" for id, name in parts),
        "in" if io == "input" else "out",
        int(location[1]),
        location[2],
        acl_type_named(dtype),
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
    """Return a number; None for N/A and for complex numbers, which have two parts."""
    try:
        return float(cell[:_MOST_DIGITS])
    except ValueError:
        return None
