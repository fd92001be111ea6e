"""Reader and writer of the rounds of a program, as ``sgsdump exec`` writes them: two files per round and process.

``round_file.py`` specifies the files::

    msit_dump_{time}/
      rounds/{rank}_{pid}/{step}.round         index
      rounds/{rank}_{pid}/{step}.values        values, if kept
      control.json, processes/, index.json     options of the dump and outcome of the processes

Each round is a run of the tree; its step is the number in the file name. A user may open an index alone. If several
models alternate, the graph of a run is the class of its model.

There is one record per tensor, in the order in which the operators ran. The names match an ATB tree of the same program
(``1_DecoderLayer/0_Linear/input.0``). ``op_index`` counts the operators; ``op_type`` is the operator's name without its
id. If tensors were dumped both before and after an operator, inputs are taken before and outputs after. An interrupted
round has the operators that ran, and a note.

``save_dump`` writes a folder with one round, with one line per record.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from sgsdump.dumps.dump import Dump, Environment, Operator, Record
from sgsdump.dumps.format import Format, Lost, checked_shape, json_object
from sgsdump.dumps.formats.rounds.round_file import (
    INDEX_ENDING,
    MAGIC,
    VALUES_ENDING,
    Index,
    Payload,
    Writer,
    values_file,
)
from sgsdump.dumps.formats.shared import hooked, manifest
from sgsdump.dumps.formats.shared.hooked import Line, Lines
from sgsdump.dumps.outside_operators import OutermostModule, OutsideOperator
from sgsdump.dumps.runs import Run
from sgsdump.errors import ConfigError, FormatError, OutputError
from sgsdump.files.atomic_write import replacing_folder
from sgsdump.files.folder import in_order, leads_out
from sgsdump.files.mapped import Source
from sgsdump.tensors.dtypes import KNOWN, carrier
from sgsdump.tensors.statistics import Statistics
from sgsdump.tensors.tensor import Tensor, TensorInfo

FOLDER = "rounds"
DESCRIBED = "only its type and shape were dumped"
NOT_WRITTEN = "its memory had not been written yet"
BROKEN_OFF = "the round is not complete: it was interrupted and has only the operators that ran"
_WRITTEN = "0_0/0"
_FIGURES = ("min", "max", "mean", "l2norm", "l1norm", "std")
_PROCESS = re.compile(r"([0-9]{1,9})_[0-9]{1,18}")
_STEP = re.compile(r"[0-9]{1,18}")
_ID = re.compile(r"([0-9]{1,9})_(.*)", re.DOTALL)
_NO_ID, _MOST_BYTES = 10**9, 1 << 62


def runs(path: Path, notes: list[str]) -> list[Run]:
    """Return the rounds of a tree, process by process and sorted by step."""
    notes.extend(hooked.missing(path))
    found: list[Run] = []
    for process in _processes(path):
        match = _PROCESS.fullmatch(process.name)
        files = sorted(process.glob(f"*{INDEX_ENDING}"), key=lambda file: in_order(file.name))
        found.extend(
            Run(file.relative_to(path).as_posix(), int(match[1]), int(file.stem))
            for file in files
            if match and _STEP.fullmatch(file.stem) and file.is_file() and file.stat().st_size
        )
    steps = {run.place: _first_line(path / run.place) for run in found}
    found = [
        replace(run, fed=str(steps[run.place].get("fed") or ""), thread=_whole(steps[run.place], "thread"))
        for run in found
    ]
    models = {place: str(line.get("model") or "") for place, line in steps.items()}
    if len(set(models.values())) < 2:
        return found
    return [replace(run, graph=models[run.place], own=_whole(steps[run.place], "of_model")) for run in found]


def _first_line(path: Path) -> Line:
    """Return a round's first line (model class, round number of the model, thread, checksum of inputs), or {}."""
    try:
        text = next(Index(path).texts(), b"")
    except FormatError:
        return {}
    line = json_object(text.partition(b"\n")[0]) or {}
    return line if line.get("event") == "step" else {}


def _whole(line: Line, name: str) -> int | None:
    number = line.get(name)
    return number if isinstance(number, int) else None


def recognises(path: Path, head: bytes) -> bool:
    return any(_indexes(path)) if path.is_dir() else head.startswith(MAGIC)


def read(path: Path) -> Dump:
    """Read a round; values are loaded on request. Raises FormatError if the round has no tensors."""
    if path.is_dir():
        files = list(_indexes(path))
        if len(files) != 1:
            raise FormatError(
                f"{path} holds {len(files)} rounds (calls of the outermost module). Give the .round file of one round"
            )
        if leads_out(files[0], path):
            raise FormatError(f"{files[0]} is a link to a file outside the folder; such links are not followed")
        path = files[0]
    index = Index(path)
    found = _Round(path)
    for text in index.texts():
        found.add(text)
    notes = list(hooked.missing(path.parents[2])) if len(path.absolute().parents) > 2 else []
    notes += [f"{path.name}: {note}" for note in (index.cut, "" if found.whole else BROKEN_OFF) if note]
    records = found.own or found.records()
    if not records and found.is_structure:
        raise FormatError(
            f"{path} has no tensors, only the topology of a program (dumped with --type without tensor). List it with: "
            f"sgsdump show --operators TREE"
        )
    if not records:
        raise FormatError(f"{path} has no tensors{f' ({notes[-1]})' if notes else ''}")
    notes += found.notes()
    dump = Dump(records, FORMAT.name, None, path, notes, found.network)
    return dump.in_environment(
        lambda: found.environment, lambda: found.before, lambda: found.outermost, partial(hooked.source_lines, path)
    )


@dataclass
class _Round:
    """Content of an index, collected line by line."""

    path: Path
    whole: bool = False
    is_structure: bool = False
    own: list[Record] = field(default_factory=list)
    environment: Environment = field(default_factory=dict)
    before: tuple[OutsideOperator, ...] = ()
    outermost: OutermostModule = field(default_factory=OutermostModule)
    _lines: Lines = field(default_factory=lambda: Lines(None))
    _tensors: dict[tuple[tuple[str, ...], str, int], Line] = field(default_factory=dict)
    _operators: list[Line] = field(default_factory=list)
    _folders: dict[tuple[str, ...], int] = field(default_factory=dict)
    _sources: dict[str, Source | str] = field(default_factory=dict)
    _records: dict[tuple[tuple[str, ...], str, int], Record] = field(default_factory=dict)
    _missing: dict[str, int] = field(default_factory=dict)

    def add(self, text: bytes) -> None:
        """Add the lines of a frame."""
        for data in text.splitlines():
            for line in self._lines.read(data):
                self._add_line(line)

    def _add_line(self, line: Line) -> None:
        if "record" in line:
            self.own.append(self._own_record(line))
        elif "side" in line:
            self._add_tensor(line)
        elif line.get("event") == "operator":
            self._operators.append(line)
        elif line.get("event") == hooked.ENVIRONMENT:
            self.environment = hooked.environment_of(line)
        elif line.get("event") == hooked.STEP:
            self.outermost = hooked.with_step(self.outermost, line)
        elif line.get("event") == hooked.BETWEEN:
            self.before = hooked.outside_operators(line)
        elif line.get("event") == "round":
            self.whole = True

    def _add_tensor(self, line: Line) -> None:
        folders, side, slot = line.get("folders"), line["side"], line.get("slot")
        if side not in ("in", "out") or not isinstance(slot, int) or not _are_texts(folders):
            return
        if "file" in line:  # null: the tensor was neither stored nor described
            self.is_structure = self.is_structure or "why" not in line
            return
        key = (tuple(folders), side, slot)  # type: ignore[arg-type]
        if key not in self._tensors or line.get("moment") == ("before" if side == "in" else "after"):
            self._tensors[key] = line

    def records(self) -> list[Record]:
        """Return the tensors in the order in which the operators ran."""
        orders = {folders: _order(folders) for folders, _, _ in self._tensors}
        keys = sorted(self._tensors, key=lambda key: ((*orders[key[0]], (0 if key[1] == "in" else 2,)), key[2]))
        records = []
        for key in keys:
            folders, side, slot = key
            number = self._folders.setdefault(folders, len(self._folders))
            line = self._tensors[key]
            op_type = orders[folders][-1][2]
            tensor = self._tensor(f"{'/'.join(folders)}/{side}put.{slot}", op_type, line)
            if tensor is not None:
                is_unwritten = line.get("unwritten") is True
                record = Record(side, slot, number, op_type, tensor, unwritten=is_unwritten)  # type: ignore[arg-type]
                records.append(record)
                self._records[key] = record
        return records

    def _tensor(self, name: str, op_type: str, line: Line) -> Tensor | None:
        dtype, shape = KNOWN.get(str(line.get("dtype"))), _shape(line.get("shape"))
        if dtype is None or shape is None:
            self._count(f"left out: type {str(line.get('dtype'))[:40]} is unknown or the shape is impossible")
            return None
        info = TensorInfo(name, shape, dtype, op_type=op_type)
        return self._with_values(info, line)

    def _with_values(self, info: TensorInfo, line: Line) -> Tensor:
        if line.get("unwritten") is True:
            return Tensor.without_values(info, NOT_WRITTEN)
        if "payload" in line:
            payload = self._payload(line["payload"])
            why = payload if isinstance(payload, str) else payload.missing() or _other_size(payload, info)
            if why or isinstance(payload, str):
                self._count(f"have no values: {why}")
                return Tensor.without_values(info, str(why))
            return Tensor(info, payload.loader(info.dtype, info.shape))
        figures = line.get("stats")
        if isinstance(figures, Mapping):
            low, high, mean, l2norm, l1norm, std = (_number(figures.get(name)) for name in _FIGURES)
            return Tensor.of_statistics(info, Statistics(low, high, mean, l2norm, l1norm=l1norm, std=std))
        return Tensor.without_values(info, DESCRIBED)

    def _payload(self, stored: Any) -> Payload | str:
        """Return the payload of ``[file, offset, size]``, or the reason for its absence. Files are looked up once."""
        match stored:
            case [str(file), int(offset), int(size)] if 0 <= offset < _MOST_BYTES and 0 <= size < _MOST_BYTES:
                pass
            case _:
                return "the index is damaged: the position of the values is missing"
        if file not in self._sources:
            self._sources[file] = values_file(self.path.parents[1], file)
        source = self._sources[file]
        return source if isinstance(source, str) else Payload(source, offset, size)

    def _own_record(self, line: Line) -> Record:
        """Return a record that ``write`` wrote. Raises FormatError."""
        try:
            record, _ = manifest.parsed_entry(line["record"])
        except (ValueError, ConfigError) as error:
            raise FormatError(f"{self.path} is damaged: {' '.join(str(error).split())[:200]}") from None
        is_unwritten = line.get("unwritten") is True
        return replace(record, tensor=self._with_values(record.tensor.info, line), unwritten=is_unwritten)

    def _count(self, what: str) -> None:
        self._missing[what] = self._missing.get(what, 0) + 1

    def notes(self) -> Iterator[str]:
        for what, count in self._missing.items():
            yield f"{count} tensor{'' if count == 1 else 's'} {what}"

    def network(self) -> dict[int, Operator]:
        """Return the operators by op_index."""

        def record_of(line: Line) -> Record | None:
            folders, slot = line.get("folders"), line.get("slot")
            known = _are_texts(folders) and isinstance(slot, int)
            return self._records.get((tuple(folders), line.get("side"), slot)) if known else None  # type: ignore[arg-type]

        return hooked.network_of([*self._operators, *self._tensors.values()], record_of)


def write(records: Iterable[Record], path: Path, variant: Any = None) -> None:
    """Write a folder with one round and one line per record. An existing folder is moved aside.

    Raises OutputError if writing fails, ConfigError for element types and scales that ``loses`` lists.
    """
    with replacing_folder(Path(path)) as folder:
        place = folder / FOLDER / _WRITTEN
        place.parent.mkdir(parents=True)
        count = 0
        with open(f"{place}{INDEX_ENDING}", "wb") as index, open(f"{place}{VALUES_ENDING}", "wb") as values:
            writer = Writer(index, values)
            for record in records:
                writer.line(record=manifest.entry_of(record, ""), **_stored(writer, record))
                count += 1
                del record
            writer.line(event="round", step=0, tensors=count)
        if not count:
            raise OutputError(f"cannot write {path}: there is no tensor to write")


def loses(records: Sequence[Record], variant: Any = None) -> Iterator[Lost]:
    return manifest.facts_lost(records)


def _stored(writer: Writer, record: Record) -> dict[str, Any]:
    tensor = record.tensor
    more: dict[str, Any] = {"unwritten": True} if record.unwritten else {}
    if tensor.statistics is None and not record.unwritten:
        return {"payload": [_WRITTEN, *writer.payload(tensor)]}
    figures = tensor.statistics or Statistics()
    known = {name: value for name in _FIGURES if (value := getattr(figures, name)) is not None}
    return {**more, **({"stats": {name: float(value) for name, value in known.items()}} if known else {})}


def _processes(path: Path) -> list[Path]:
    """Return the process folders of a tree; ``path`` may also be their parent or one of them."""
    for folder in (path / FOLDER, path):
        if folder.is_dir() and (folder == path or not leads_out(folder, path)):
            found = [each for each in folder.iterdir() if _PROCESS.fullmatch(each.name) and each.is_dir()]
            if found:
                return sorted(found, key=lambda each: in_order(each.name))
    return [path] if _PROCESS.fullmatch(path.name) else []


def _indexes(path: Path) -> Iterator[Path]:
    for process in _processes(path):
        yield from process.glob(f"*{INDEX_ENDING}")


def _order(folders: tuple[str, ...]) -> tuple[tuple[int, int, str], ...]:
    """Return a key that sorts operators by execution: a layer's inputs, its children, its outputs."""
    matches = [(_ID.fullmatch(folder), folder) for folder in folders]
    return tuple((1, int(match[1]), match[2]) if match else (1, _NO_ID, folder) for match, folder in matches)


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(value, str) for value in values)


def _shape(sizes: Any) -> tuple[int, ...] | None:
    if not isinstance(sizes, list) or not all(type(size) is int and size >= 0 for size in sizes):
        return None
    try:
        return checked_shape(sizes)
    except FormatError:
        return None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _other_size(payload: Payload, info: TensorInfo) -> str:
    item = carrier(info.dtype).itemsize
    if payload.size % item or (info.shape is not None and payload.size < math.prod(info.shape) * item):
        return f"the index is damaged: {payload.size} bytes do not fit the tensor's shape"
    return ""


FORMAT = Format("rounds", recognises, read, write, loses, f"{FOLDER} of a program", runs, own_inputs=True)
