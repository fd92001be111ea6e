"""A folder of one run's operator dumps on an Ascend device; read only.

``{dump_path}[/worldsizeN_global_rankR]/{time}/{device}/{model_name}/{model_id}/{data_index}/``: the files of
``ascend_dump``, ``ascend_nano`` and ``ascend_stats`` in one folder. A folder above it will do, where no .npy file is
beside it; with several such folders below it is a tree, whose runs ``run_folders.py`` tells apart.

* Names of files that were too long for the disk are found in ``mapping.csv`` (rows ``new,original``).
* Of several files of one operator the newest is taken, the others are noted: a folder used by two runs holds both. The
  overflow statuses of one run are all taken, named by task and stream.
* Slices of an operator (FFTS+) are tensors of their own: ``{operator}.{context}.{thread}:output:0``.
* Operators of different types and one name are told apart by ``{op_type}.`` before the name.
* A damaged file loses only its own tensors and is noted; only a folder without a readable file is refused.
* Where values and statistics of an operator are there, the values are taken.

Records come in order of time, then task.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.format import Format
from sgsdump.dumps.formats.ascend.file_names import MAPPING, FileName, parse, read_mapping
from sgsdump.dumps.formats.ascend.operator_dump import OperatorDump, read_operator, records_of
from sgsdump.dumps.formats.ascend.run_folders import run_of
from sgsdump.dumps.formats.ascend.statistics_csv import ENDING
from sgsdump.dumps.formats.ascend.statistics_csv import records_of as records_of_statistics
from sgsdump.dumps.run import Run
from sgsdump.errors import FormatError
from sgsdump.files.folder import files_below, in_order

SHOWN = 3


class Source(NamedTuple):
    """A file of the folder and what its name (its former one, if it was renamed) says."""

    path: Path
    called: FileName
    is_statistics: bool


class Operator(NamedTuple):
    """An operator's file, its name, and its header unless it is a file of statistics."""

    source: Source
    name: str
    dump: OperatorDump | None


def recognises(path: Path, head: bytes) -> bool:
    if not path.is_dir():
        return False
    try:
        return bool(_sources(path, [])) or (not any(path.glob("*.npy")) and bool(_folders(path, [])))
    except (FormatError, OSError):
        return False


def read(path: Path) -> Dump:
    """The tensors of all operators. Raises FormatError when no file can be read."""
    notes: list[str] = []
    inner = path if _sources(path, []) else path / min(_folders(path, notes), default="", key=in_order)
    operators = list(_operators(_newest(_sources(inner, notes), notes), notes))
    records = list(_records(operators, notes))
    if not records:
        raise FormatError(f"no operator dump in {path} can be read: {notes[-1] if notes else 'there is none'}")
    return Dump(records, FORMAT.name, None, path, notes)


def runs(path: Path, notes: list[str]) -> list[Run]:
    """The folders of operator dumps that a folder holds; only itself where the files are in it."""
    folders = {""} if _sources(path, []) else _folders(path, notes)
    return [run_of(path, folder) for folder in folders]


def _folders(path: Path, notes: list[str]) -> set[str]:
    """The folders below that hold files named as operator dumps."""
    folders = (name.rpartition("/") for name in files_below(path, "", notes))
    return {folder for folder, _, name in folders if folder and parse(name.removesuffix(ENDING))}


def _sources(folder: Path, notes: list[str]) -> list[Source]:
    """The files directly in a folder that are named as operator dumps or their statistics."""
    try:
        original = read_mapping(folder)
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    except OSError as error:
        raise FormatError(f"cannot read the folder {folder}: {error.strerror}") from None
    missing = sorted(set(original) - set(names))
    if missing:
        notes.append(f"{len(missing)} files of {MAPPING} are missing: {', '.join(missing[:SHOWN])}")
    sources: list[Source] = []
    for name in names:
        known = original.get(name, original.get(name.removesuffix(ENDING), name)).removesuffix(ENDING)
        called = parse(known)
        if called is not None:
            sources.append(Source(folder / name, called, name.endswith(ENDING)))
    return sources


def _newest(sources: Iterable[Source], notes: list[str]) -> list[Source]:
    """One file for each operator, in order of time and task."""
    taken: dict[tuple[object, ...], Source] = {}
    older: list[str] = []
    for source in sorted(sources, key=lambda s: (not s.is_statistics, s.called.time, s.called.task, s.path.name)):
        called = source.called
        of_status = (called.task, called.stream, called.time) if called.is_status else ()
        before = taken.get(key := (called.op_type, called.op_name, called.slice, *of_status))
        if before is not None and before.is_statistics == source.is_statistics:
            older.append(before.path.name)
        taken[key] = source
    if older:
        older_files = (
            "1 older file of the same operator is"
            if len(older) == 1
            else f"{len(older)} older files of the same operators are"
        )
        notes.append(f"{older_files} left out: {', '.join(older[:SHOWN])}")
    return sorted(taken.values(), key=lambda s: (s.called.time, s.called.task, s.path.name))


def _operators(sources: Iterable[Source], notes: list[str]) -> Iterator[Operator]:
    for source in sources:
        if source.is_statistics:
            yield Operator(source, source.called.name_of(source.called.op_name), None)
            continue
        try:
            dump = read_operator(source.path, source.called)
        except FormatError as error:
            notes.append(f"left out: {error}")
            continue
        yield Operator(source, source.called.name_of(dump.name), dump)


def _records(operators: list[Operator], notes: list[str]) -> Iterator[Record]:
    types: defaultdict[str, set[str]] = defaultdict(set)
    for operator in operators:
        types[operator.name].add(operator.source.called.op_type)
    for index, (source, name, dump) in enumerate(operators):
        if len(types[name]) > 1:
            name = f"{source.called.op_type}.{name}"
        if dump is not None:
            yield from records_of(dump, index, name, notes)
            continue
        try:
            yield from records_of_statistics(source.path, source.called, index, name, notes)
        except FormatError as error:
            notes.append(f"left out: {error}")


FORMAT = Format(
    "ascend_dir",
    recognises,
    read,
    looks_for="operator dumps {op_type}.{op_name}.{task}.{stream}.{time}",
    runs=runs,
    own_inputs=True,
)
