"""Reader of folders with the operator dumps of one run on an Ascend device.

A folder ``{dump_path}[/worldsizeN_global_rankR]/{time}/{device}/{model_name}/{model_id}/{data_index}/`` holds files of
``operator_dump.py`` and ``ascend_stats.py``. The user may also open a folder above it that has no .npy files. A folder
with several such folders below is a tree of runs (``file_names.run_of``).

* ``mapping.csv`` (rows ``new,original``) holds file names that were too long for the file system.
* All files of an operator are read: a folder that two runs used holds both. The newest file has the plain name, older
  files are ``{operator}#1``, ``#2`` … in order of time. Names of overflow statuses contain task and stream.
* The note about an overflow status names the first operator with its task and stream.
* A watcher's files are named ``{listed operator}_To_{watched operator}``, in addition to the watched operator's files.
* Slices of an operator (FFTS+) are separate tensors: ``{operator}.{context}.{thread}:output:0``.
* If operators of different types have the same name, ``{op_type}.`` precedes the name.
* A damaged file is noted and loses only its own tensors. A folder without a readable file is refused.
* If a folder has both values and statistics of an operator, the values are read.
* A run that sgsdump dumped has an ``index.jsonl``: ``{"event": "begin", …}``, one line per tensor, lines
  ``{"event": "note", "text": …}``, and ``{"complete": true}`` at the end. It tells whether the run is complete, and
  which tensors had not been written yet.

Records are sorted by time, then by task.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sgsdump.dumps.dump import Damage, Dump, Operator, Record, as_arguments
from sgsdump.dumps.format import Format, json_object
from sgsdump.dumps.formats.ascend.ascend_stats import ENDING
from sgsdump.dumps.formats.ascend.ascend_stats import records_of as records_of_statistics
from sgsdump.dumps.formats.ascend.file_names import MAPPING, FileName, parse, read_mapping, run_of
from sgsdump.dumps.formats.ascend.operator_dump import OperatorDump, read_operator, records_of
from sgsdump.dumps.formats.ascend.overflow import Culprit
from sgsdump.dumps.runs import Run
from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import open_file, reading
from sgsdump.files.folder import files_below, in_order
from sgsdump.tensors.dtypes import KNOWN
from sgsdump.tensors.tensor import Tensor, TensorInfo

INDEX = "index.jsonl"
CUT_OFF = "this step is not complete: the run was interrupted or is still in progress"
MOST_LINE = 1 << 20
DATA = "Data"
NOT_WRITTEN = "its memory had not been written yet"
_MOST_SIZE, _MOST_AXES = 1 << 48, 64
_TENSOR = re.compile(r":(?:in|out)put:\d+$")
SHOWN = 3


class Source(NamedTuple):
    """A file of the folder and the facts in its (original) name."""

    path: Path
    file_name: FileName
    is_statistics: bool


class _OperatorFile(NamedTuple):
    """An operator's file, the operator's name, and the header (None for a file of statistics)."""

    source: Source
    name: str
    dump: OperatorDump | None


def notes_of(folder: Path) -> list[str]:
    """Return the notes in the index of a folder; none without an index."""
    notes: list[str] = []
    complete = True
    for line in _lines(folder):
        if line.get("event") == "begin":
            complete = False
        elif line.get("event") == "note":
            notes.append(str(line.get("text", "")))
        complete = complete or line.get("complete") is True
    return notes if complete else [*notes, CUT_OFF]


def unwritten_of(folder: Path) -> dict[str, list[Record]]:
    """Return the inputs and outputs whose memory had not been written yet, by operator name; their op_index is 0."""
    by_operator: defaultdict[str, list[Record]] = defaultdict(list)
    for line in _lines(folder):
        record = _unwritten(line) if line.get("unwritten") is True else None
        if record is not None:
            by_operator[str(line.get("name"))].append(record)
    return by_operator


def network_of(folder: Path, records: Iterable[Record]) -> dict[int, Operator]:
    """Return the operators of a run from its index; {} without an index. Weights and inputs are not operators."""
    lines = {str(line["name"]): line for line in _lines(folder) if "name" in line}
    operators: dict[int, Operator] = {}
    for record in records:
        line = lines.get(_TENSOR.sub("", record.name), {})
        kind, module = line.get("op_type"), line.get("module")
        if isinstance(kind, str) and isinstance(module, str) and kind != DATA:
            arguments, source = as_arguments(line.get("param")), str(line.get("source") or "")
            operators[record.op_index] = Operator(module, kind, arguments=arguments, source=source)
    return operators


def recognises(path: Path, head: bytes) -> bool:
    if not path.is_dir():
        return False
    try:
        return bool(_sources(path, [])) or (not any(path.glob("*.npy")) and bool(_folders(path, [])))
    except (FormatError, OSError):
        return False


def read(path: Path) -> Dump:
    """Read the tensors of all operators in a folder. Raises FormatError if no file can be read."""
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
    """Return the folders of operator dumps below a folder, or the folder itself if it holds the files."""
    folders = {""} if _sources(path, []) else _folders(path, notes)
    return [run_of(path, folder) for folder in folders]


def _unwritten(line: Mapping[str, Any]) -> Record | None:
    """Return the record of an unwritten tensor; None if sgsdump did not write the line."""
    side, slot, shape = line.get("side"), line.get("slot"), line.get("shape")
    if side not in ("in", "out") or not isinstance(slot, int) or not isinstance(shape, list):
        return None
    if not all(isinstance(size, int) and 0 <= size < _MOST_SIZE for size in shape) or len(shape) > _MOST_AXES:
        return None
    dtype = KNOWN.get(str(line.get("dtype")), np.dtype(np.uint8))
    op_type = str(line.get("op_type", ""))
    info = TensorInfo(
        f"{line.get('name')}:{side}put:{slot}", tuple(shape), dtype, op_type=op_type if side == "out" else ""
    )
    return Record(side, slot, 0, op_type, Tensor.without_values(info, NOT_WRITTEN), unwritten=True)


def _lines(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a folder's index; none without an index."""
    with suppress(OSError), open_file(folder / INDEX) as file:
        while data := file.readline(MOST_LINE):
            yield json_object(data) or {}


def _folders(path: Path, notes: list[str]) -> set[str]:
    """Return the folders below ``path`` that hold files named like operator dumps."""
    folders = (name.rpartition("/") for name in files_below(path, "", notes))
    return {folder for folder, _, name in folders if folder and parse(name.removesuffix(ENDING))}


def _sources(folder: Path, notes: list[str]) -> list[Source]:
    """Return the files directly in a folder that are named like operator dumps or their statistics."""
    with reading(folder, what="the folder "):
        original = read_mapping(folder)
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    missing = sorted(set(original) - set(names))
    if missing:
        notes.append(f"{len(missing)} files listed in {MAPPING} are missing: {', '.join(missing[:SHOWN])}")
    sources: list[Source] = []
    for name in names:
        former = original.get(name, original.get(name.removesuffix(ENDING), name))
        file_name = parse(former.removesuffix(ENDING))
        if file_name is not None:
            sources.append(Source(folder / name, file_name, name.endswith(ENDING)))
    return sources


def _in_order(sources: Iterable[Source]) -> list[Source]:
    """Sort the files by time and task, and drop statistics of tensors with values."""
    sources = list(sources)
    of_values = {source.file_name for source in sources if not source.is_statistics}
    kept = (source for source in sources if not (source.is_statistics and source.file_name in of_values))
    return sorted(kept, key=lambda s: (s.file_name.time, s.file_name.task, s.path.name))


def _operators(sources: Iterable[Source], notes: list[str]) -> Iterator[_OperatorFile]:
    for source in sources:
        file_name = source.file_name
        if source.is_statistics:
            yield _OperatorFile(source, file_name.name_of(file_name.op_name), None)
            continue
        try:
            dump = read_operator(source.path, file_name)
        except FormatError as error:
            notes.append(Damage.left_out(error))
            continue
        yield _OperatorFile(source, file_name.name_of(file_name.watched(dump.name)), dump)


def _names(operators: Sequence[_OperatorFile], notes: list[str]) -> list[str]:
    """Return a unique name for each operator, in order of time."""
    types: defaultdict[str, set[str]] = defaultdict(set)
    for operator in operators:
        types[operator.name].add(operator.source.file_name.op_type)
    names = [
        f"{operator.source.file_name.op_type}.{operator.name}" if len(types[operator.name]) > 1 else operator.name
        for operator in operators
    ]
    indexes: defaultdict[str, list[int]] = defaultdict(list)
    for index, name in enumerate(names):
        indexes[name].append(index)
    repeated = [name for name in indexes if len(indexes[name]) > 1]
    for name in repeated:
        for number, index in enumerate(indexes[name][:-1], 1):
            names[index] = f"{name}#{number}"
    if repeated:
        shown = f"{', '.join(repeated[:SHOWN])}{' …' if len(repeated) > SHOWN else ''}"
        notes.append(f"dumped several times ({len(repeated)}), older dumps get the names NAME#1, NAME#2 …: {shown}")
    return names


def _records(operators: Sequence[_OperatorFile], notes: list[str]) -> Iterator[Record]:
    names = _names(operators, notes)

    def who(culprits: Sequence[Culprit]) -> str:
        return "".join(f"; {_accused(culprit, operators, names)}" for culprit in culprits)

    for index, (operator, name) in enumerate(zip(operators, names)):
        source, dump = operator.source, operator.dump
        if dump is not None:
            yield from records_of(dump, index, name, notes, who)
            continue
        try:
            yield from records_of_statistics(source.path, source.file_name, index, name, notes)
        except FormatError as error:
            notes.append(Damage.left_out(error))


def _with_unwritten(
    records: Sequence[Record], operators: Sequence[_OperatorFile], unwritten: Mapping[str, Sequence[Record]]
) -> Iterator[Record]:
    """Yield the records and, after their operator's records, the unwritten ones; last, operators without a file."""
    remaining = dict(unwritten)
    last = -1
    for index, group in groupby(records, lambda record: record.op_index):
        yield from group
        last = index
        for record in remaining.pop(operators[index].name, ()):
            yield replace(record, op_index=index)
    for number, of_operator in enumerate(remaining.values(), max(last, len(operators) - 1) + 1):
        yield from (replace(record, op_index=number) for record in of_operator)


def _accused(culprit: Culprit, operators: Sequence[_OperatorFile], names: Sequence[str]) -> str:
    """Return a text that names the operator of a status, by task, stream and slice.

    Of several operators, the first is named, like in the vendor's tool.
    """
    for operator, name in zip(operators, names):
        file_name = operator.source.file_name
        same_slice = not (culprit.slice and file_name.slice) or culprit.slice == file_name.slice
        is_task = file_name.task == culprit.task and file_name.stream in (None, culprit.stream)
        if is_task and same_slice and not file_name.is_status:
            return f"caused by {name} ({file_name.op_type})"
    return "its operator is not in this folder"


FORMAT = Format(
    "ascend_dir",
    recognises,
    read,
    looks_for="operator dumps {op_type}.{op_name}.{task}.{stream}.{time}",
    runs=runs,
    own_inputs=True,
)
