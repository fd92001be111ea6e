"""What there is in an ATB dump's folder: the files that can be read, of each tensor's copies the one that counts, the
rows of its statistic.csv; and what to say of the rest, a line each in ``notes``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sgsdump.dumps.formats.atb import statistic, tensor
from sgsdump.dumps.formats.atb.place import Place, split
from sgsdump.dumps.formats.atb.statistic import Row
from sgsdump.dumps.formats.atb.tensor import Content
from sgsdump.errors import FormatError

_SHOWN = 3
_DAMAGED_SHOWN = 20


def examined(root: Path, files: Sequence[str], notes: list[str]) -> dict[str, Content]:
    """The files that can be read, by path; odd and damaged ones are noted."""
    contents: dict[str, Content] = {}
    odd: defaultdict[str, list[str]] = defaultdict(list)
    damaged: list[str] = []
    for name in files:
        try:
            content = contents[name] = tensor.examine(root / name)
        except FormatError as error:
            damaged.append(f"left out: {error}")
            continue
        for note in content.notes:
            odd[note].append(name)
    notes.extend(damaged[:_DAMAGED_SHOWN])
    if len(damaged) > _DAMAGED_SHOWN:
        notes.append(f"left out: {len(damaged) - _DAMAGED_SHOWN} more files that cannot be read")
    notes.extend(summed(odd))
    return contents


def chosen(places: Mapping[str, Place], notes: list[str]) -> dict[Place, str]:
    """The path of each tensor, of its copies the one that counts."""
    paths: dict[tuple, tuple[Place, str]] = {}
    copies = 0
    for path, place in places.items():
        other = paths.get(place.key)
        copies += other is not None
        if other is None or place.meant:
            paths[place.key] = place, path
    if copies:
        notes.append(
            f"{copies} tensors were dumped before and after their operator ran: "
            f"inputs are taken as they were before, outputs as they are after"
        )
    early = [path for place, path in paths.values() if place.io == "out" and place.when == "before"]
    if early:
        notes.append(f"{some(early, 'output')} dumped only before the operator ran: what it computed is not in them")
    return dict(paths.values())


def rows(root: Path, tables: Sequence[str], notes: list[str]) -> dict[Place, Row]:
    """The rows of every statistic.csv, by the place they speak of."""
    by_place: dict[Place, Row] = {}
    for name in tables:
        try:
            rows, bad = statistic.read(root / name)
        except FormatError as error:
            notes.append(f"left out: {error}")
            continue
        if bad:
            notes.append(f"{name} has {bad} rows that are not understood")
        execution, above = split(name.split("/")[:-1])
        for row in rows:
            when = "before" if row.io == "in" else "after"
            place = Place(execution, above + row.operators, row.io, row.slot, row.label, when)
            by_place.setdefault(place, row)
    return by_place


def say_missing(chosen: Mapping[Place, str], rows: Mapping[Place, Row], notes: list[str]) -> None:
    """Rows without file, and files without row where there are rows at all."""
    there, listed = {place.key for place in chosen}, {place.key for place in rows}
    gone = [place.name for place, row in rows.items() if row.dumped and place.key not in there]
    if gone:
        notes.append(f"{some(gone, 'tensor')} in {statistic.NAME}, but the file is missing")
    bare = [place.name for place, row in rows.items() if not (row.dumped or row.statistics)]
    if bare:
        notes.append(f"{some(bare, 'tensor')} in {statistic.NAME}, but without statistics")
    unlisted = [path for place, path in chosen.items() if rows and place.key not in listed]
    if unlisted:
        notes.append(f"{some(unlisted, 'file')} without a row in {statistic.NAME}")


def some(names: Sequence[str], what: str) -> str:
    """``2 files are …``: the subject of a note, and in brackets the first few."""
    shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    return f"{len(names)} {what} ({shown}) is" if len(names) == 1 else f"{len(names)} {what}s ({shown}) are"


def summed(notes: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """A line for each kind of note, with the number of files it concerns and the first few of them."""
    for what, names in notes.items():
        shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
        yield f"{names[0]} {what}" if len(names) == 1 else f"{len(names)} files: each {what} ({shown})"
