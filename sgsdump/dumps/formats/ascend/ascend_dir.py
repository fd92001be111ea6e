"""A folder of one run's operator dumps on an Ascend device; read only.

``{dump_path}[/worldsizeN_global_rankR]/{time}/{device}/{model_name}/{model_id}/{data_index}/``: the files of
``ascend_dump``, ``ascend_nano`` and ``ascend_stats`` in one folder. A folder above it will do, where no .npy file is
beside it; with several such folders below it is a tree, whose runs ``run_folders.py`` tells apart.

* Names of files that were too long for the disk are found in ``mapping.csv`` (rows ``new,original``).
* All files of an operator are read. Of several the newest has the plain name, the older ones are ``{operator}#1``,
  ``#2`` … in order of time: a folder used by two runs holds both. Overflow statuses are named by task and stream.
* The note on an overflow status names the operator it accuses: that of its task and stream, the earliest of several.
* A watcher's files are ``{listed operator}_To_{watched operator}``, beside the watched one's own.
* Slices of an operator (FFTS+) are tensors of their own: ``{operator}.{context}.{thread}:output:0``.
* Operators of different types and one name are distinguished by ``{op_type}.`` before the name.
* A damaged file loses only its own tensors and is noted; only a folder without a readable file is refused.
* Where values and statistics of an operator are there, the values are taken.
* A run that sgsdump dumped has an index (``run_index.py``), which says whether all of it is there.

Records come in order of time, then task.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.format import Format
from sgsdump.dumps.formats.ascend.file_names import MAPPING, FileName, parse, read_mapping
from sgsdump.dumps.formats.ascend.operator_dump import OperatorDump, read_operator, records_of
from sgsdump.dumps.formats.ascend.overflow import Culprit
from sgsdump.dumps.formats.ascend.run_folders import run_of
from sgsdump.dumps.formats.ascend.run_index import network_of, notes_of, unwritten_of
from sgsdump.dumps.formats.ascend.statistics_csv import ENDING
from sgsdump.dumps.formats.ascend.statistics_csv import records_of as records_of_statistics
from sgsdump.dumps.runs.run import Run
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
    folder = path
    sources = _sources(folder, notes)
    if not sources:
        folder = path / min(_folders(path, notes), default="", key=in_order)
        sources = _sources(folder, notes)
    notes += notes_of(folder)
    operators = list(_operators(_in_order(sources), notes))
    records = list(_with_unwritten(list(_records(operators, notes)), operators, unwritten_of(folder)))
    if not records:
        raise FormatError(f"no operator dump in {path} can be read: {notes[-1] if notes else 'there is none'}")
    return Dump(records, FORMAT.name, None, path, notes, partial(network_of, folder, records))


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


def _in_order(sources: Iterable[Source]) -> list[Source]:
    """The files in order of time and task, without statistics of tensors whose values are there."""
    sources = list(sources)
    of_values = {source.called for source in sources if not source.is_statistics}
    kept = (source for source in sources if not (source.is_statistics and source.called in of_values))
    return sorted(kept, key=lambda s: (s.called.time, s.called.task, s.path.name))


def _operators(sources: Iterable[Source], notes: list[str]) -> Iterator[Operator]:
    for source in sources:
        called = source.called
        if source.is_statistics:
            yield Operator(source, called.name_of(called.op_name), None)
            continue
        try:
            dump = read_operator(source.path, called)
        except FormatError as error:
            notes.append(f"left out: {error}")
            continue
        yield Operator(source, called.name_of(called.watched(dump.name)), dump)


def _names(operators: Sequence[Operator], notes: list[str]) -> list[str]:
    """A name for each operator in order of time, none twice."""
    types: defaultdict[str, set[str]] = defaultdict(set)
    for operator in operators:
        types[operator.name].add(operator.source.called.op_type)
    names = [f"{one.source.called.op_type}.{one.name}" if len(types[one.name]) > 1 else one.name for one in operators]
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, name in enumerate(names):
        places[name].append(place)
    again = [name for name, found in places.items() if len(found) > 1]
    for name in again:
        for number, place in enumerate(places[name][:-1], 1):
            names[place] = f"{name}#{number}"
    if again:
        shown = f"{', '.join(again[:SHOWN])}{' …' if len(again) > SHOWN else ''}"
        notes.append(f"dumped several times ({len(again)}), the older dumps being NAME#1, NAME#2 …: {shown}")
    return names


def _records(operators: Sequence[Operator], notes: list[str]) -> Iterator[Record]:
    names = _names(operators, notes)

    def who(culprits: Sequence[Culprit]) -> str:
        return "".join(f"; {_accused(one, operators, names)}" for one in culprits)

    for index, (operator, name) in enumerate(zip(operators, names)):
        source, dump = operator.source, operator.dump
        if dump is not None:
            yield from records_of(dump, index, name, notes, who)
            continue
        try:
            yield from records_of_statistics(source.path, source.called, index, name, notes)
        except FormatError as error:
            notes.append(f"left out: {error}")


def _with_unwritten(
    records: Sequence[Record], operators: Sequence[Operator], unwritten: Mapping[str, Sequence[Record]]
) -> Iterator[Record]:
    """The records, and in their operators' places those without values; last, those of operators without a file."""
    of_operator = defaultdict(list, {name: list(found) for name, found in unwritten.items()})
    last = -1
    for index, group in groupby(records, lambda record: record.op_index):
        yield from group
        last = index
        for record in of_operator.pop(operators[index].name, ()):
            yield replace(record, op_index=index)
    for number, found in enumerate(of_operator.values(), max(last, len(operators) - 1) + 1):
        yield from (replace(record, op_index=number) for record in found)


def _accused(culprit: Culprit, operators: Sequence[Operator], names: Sequence[str]) -> str:
    """The operator that a status accuses, by task, stream and slice; the earliest of several, as the vendor's tool
    takes it."""
    for operator, name in zip(operators, names):
        called = operator.source.called
        same_slice = not (culprit.slice and called.slice) or culprit.slice == called.slice
        is_task = called.task == culprit.task and called.stream in (None, culprit.stream)
        if is_task and same_slice and not called.is_status:
            return f"it is of {name} ({called.op_type})"
    return "its operator is not in this folder"


FORMAT = Format(
    "ascend_dir",
    recognises,
    read,
    looks_for="operator dumps {op_type}.{op_name}.{task}.{stream}.{time}",
    runs=runs,
    own_inputs=True,
)
