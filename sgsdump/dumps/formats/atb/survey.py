"""The contents of an ATB dump's folder: its readable files, the copy of each tensor that counts, the rows of its
``statistic.csv``; the rest gets a line each in ``notes``.

``statistic.csv`` (msprobe) has a row per tensor, beside the operators' folders of one execution::

    Device and PID,Execution Count,Op Name,Op Type,Op Id,Input/Output,Index,Dtype,Format,Shape,
    Max,Min,Mean,Norm,Tensor Path                                            (all on one line)

Cells are never quoted. Op Name joins the operators' names with ``/``, Op Id their ids with ``_``; Shape is ``4x4``,
nothing for a scalar; statistics are N/A where only tensors were dumped, Tensor Path where only statistics were. For a
complex tensor the first three statistics are ``(re,im)``, whose comma the vendor's own reader takes for another column:
it drops the row, as its writer drops rows whose statistics begin with ``-inf`` or ``-nan``. So the table may lack rows.
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
    """The rows of a file, and how many were not understood. Raises FormatError when it is not such a file."""
    lines = read_all(path, MOST_BYTES, "a table of statistics").decode("utf-8", "replace").splitlines()
    if not lines or lines[0] != HEADER:
        raise FormatError(f"{path} has not the columns of a {NAME}")
    rows = [_row(line) for line in lines if line and line != HEADER]
    understood = [row for row in rows if row is not None]
    return understood, len(rows) - len(understood)


def examined(root: Path, files: Sequence[str], notes: list[str]) -> dict[str, Content]:
    """The files that can be read, by path; odd and damaged ones are noted."""
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
    """The path of each tensor, of its copies the one that counts."""
    paths: dict[tuple, tuple[Location, str]] = {}
    copies = 0
    for path, location in locations.items():
        other = paths.get(location.key)
        copies += other is not None
        if other is None or location.meant:
            paths[location.key] = location, path
    if copies:
        notes.append(
            f"{copies} tensors were dumped before and after their operator ran: "
            f"inputs are taken as they were before, outputs as they are after"
        )
    early = [path for location, path in paths.values() if location.io == "out" and location.when == "before"]
    if early:
        notes.append(f"{some(early, 'output')} dumped only before the operator ran: what it computed is not in them")
    return dict(paths.values())


def rows(root: Path, tables: Sequence[str], notes: list[str]) -> dict[Location, Row]:
    """The rows of every statistic.csv, by the place they speak of."""
    by_location: dict[Location, Row] = {}
    for name in tables:
        try:
            rows, bad = read(root / name)
        except FormatError as error:
            notes.append(Damage.left_out(error))
            continue
        if bad:
            notes.append(Damage(f"{name} has {bad} rows that are not understood"))
        execution, above = split(name.split("/")[:-1])
        for row in rows:
            when = "before" if row.io == "in" else "after"
            location = Location(execution, above + row.operators, row.io, row.slot, row.label, when)
            by_location.setdefault(location, row)
    return by_location


def say_missing(chosen: Mapping[Location, str], rows: Mapping[Location, Row], notes: list[str]) -> None:
    """Rows without file, and files without row where there are rows at all."""
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
    """``2 files are …``: the subject of a note, and in brackets the first few."""
    shown = _first(names)
    return f"{len(names)} {noun} ({shown}) is" if len(names) == 1 else f"{len(names)} {noun}s ({shown}) are"


def summed(notes: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """A line for each kind of note, with the number of files it concerns and the first few of them."""
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
    """A figure; None for N/A, and for those of complex numbers, which are two."""
    try:
        return float(cell[:_MOST_DIGITS])
    except ValueError:
        return None
