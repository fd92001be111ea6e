"""Readers of MindSpore's synchronous dumps: folders of .npy files, and ``statistic.csv``.

::

    dump/rank_0/Net/0/0/{operator}.{name}.{task}.{stream}.{time}.{input|output}.{slot}.{layout}[.{type}].npy
    dump/rank_0/Net/0/0/statistic.csv
    dump/rank_0/execution_order/ms_execution_order_graph_0.csv         names of the operators of graph 0

The folders are the rank, the network's name, the graph and the iteration; each iteration is a run. Any of these folders
can be opened. ``time`` is in microseconds and gives the order of the tensors. File names have ``_`` instead of ``/``;
names are restored from the execution order. Parameters (weights and inputs of the network) come first.

Tensors are ``Default/c1-Conv2d/Conv2D-op0``, ``…/output.1`` for further outputs, and ``…/input.0``. The scope
``c1-Conv2d`` is the module ``c1``. If a folder has values and statistics, the values are read.

A row of ``statistic.csv`` describes a tensor::

    Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,Min Value,Avg Value,…
    Sub,Default_Sub-op0,0,0,1733905446819790,input,0,4,float32,"()",3,3,3,

The statistics that the user selected follow, each in a column; cells without a number are unknown statistics.

Sources: .npy dumps of MindSpore 2.10.0; for ``statistic.csv``, which MindSpore writes on GPU and Ascend only, the
documentation (https://www.mindspore.cn, "Dump") and https://gitee.com/mindspore/mindspore.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sgsdump.dumps.dump import Damage, Dump, Operator, Record
from sgsdump.dumps.format import Format, checked_shape
from sgsdump.dumps.formats.shared import npy_file
from sgsdump.dumps.formats.shared.ascend_types import layout_fits
from sgsdump.dumps.runs import Run
from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import is_file, read_all
from sgsdump.files.folder import leads_out
from sgsdump.tensors.dtypes import KNOWN
from sgsdump.tensors.statistics import Statistics
from sgsdump.tensors.tensor import Tensor, TensorInfo

STATISTICS, PARAMETER = "statistic.csv", "Parameter"
HEAD = b"Op Type,Op Name,Task ID,Stream ID,Timestamp,"
MOST_BYTES, MOST_FILES, MOST_FOLDERS, TRIED = 256 << 20, 200_000, 10_000, 50
MOST_BESIDE = 1000  # entries in the root of a tree; a large folder of another kind is not listed completely
UNKNOWN = np.dtype("V1")
_NAME = re.compile(
    r"(?P<op_type>[^./]+)\.(?P<name>.+)\.(?P<task>\d{1,20})\.(?P<stream>\d{1,20})\.(?P<time>\d{9,20})"
    r"\.(?P<io>input|output)\.(?P<slot>\d{1,6})\.(?P<layout>[A-Za-z]\w*)(?:\.(?P<type>[A-Za-z]\w*))?\.npy",
    re.ASCII,
)
_RANK = re.compile(r"rank_(\d{1,9})", re.ASCII)
_NUMBER = re.compile(r"\d{1,9}", re.ASCII)
_COLUMNS = {
    **{"max value": "max", "min value": "min", "avg value": "mean", "l2norm value": "l2norm", "count": "count"},
    **{"nan count": "nan", "negative inf count": "negative_inf", "positive inf count": "positive_inf"},
}
_WHOLE = ("count", "nan", "negative_inf", "positive_inf")
_HASHES = {"md5": "md5", "sha1": "sha1"}


class Place(NamedTuple):
    """Operator and slot of a tensor, from a file name or a row."""

    op_type: str
    name: str
    time: int
    io: str
    slot: int


class Step(NamedTuple):
    """Folder of an iteration and its facts."""

    folder: Path
    place: str
    rank: int | None
    graph: str
    number: int


def recognises(path: Path, head: bytes) -> bool:
    return path.is_dir() and next(_steps(path), None) is not None


def runs(path: Path, notes: list[str]) -> list[Run]:
    """Return the iterations in a tree; none for the folder of an iteration."""
    steps = list(_steps(path))
    return [] if steps[0].folder == path else [Run(s.place, s.rank, s.number, s.graph) for s in steps]


def read(path: Path) -> Dump:
    """Read an iteration; values are loaded on request. Raises FormatError if it has no tensor."""
    steps = list(islice(_steps(path), 2))
    if len(steps) != 1:
        raise FormatError(f"{path} holds {'several iterations. Name one iteration' if steps else 'no iteration'}")
    folder = steps[0].folder
    notes: list[str] = []
    files = sorted(_files(folder), key=lambda item: (item[0].op_type != PARAMETER, item[0].time, item[1]))
    if not files:
        return _of_table(folder / STATISTICS, FORMAT.name, path)
    read_files = ((place, _tensor_of(folder, name, place, notes)) for place, name in files)
    tensors = [(place, tensor) for place, tensor in read_files if tensor is not None]
    if not tensors:
        raise FormatError(f"{path} has no tensor{f' ({notes[0]})' if notes else ''}")
    return _dump(tensors, _full_names(folder, notes), FORMAT.name, path, notes)


def _recognises_table(path: Path, head: bytes) -> bool:
    return head.removeprefix(b"\xef\xbb\xbf").startswith(HEAD)


def _read_table(path: Path) -> Dump:
    """Read a file ``statistic.csv``. Raises FormatError if it has no row."""
    return _of_table(path, TABLE.name, path)


def _steps(path: Path) -> Iterator[Step]:
    """Yield the iterations at or below a folder of the tree."""
    if _is_step(path):
        yield Step(path, "", None, "", 0)
        return
    names = [parent.name for parent in (path.absolute(), *path.absolute().parents[:2])]
    ranked = next((depth for depth, name in enumerate(names) if _RANK.fullmatch(name)), None)
    roots = [path] if ranked is not None else _below(path, "rank_", MOST_BESIDE)
    for root in roots:
        folders = [root]
        for _ in range(3 - (ranked or 0)):
            folders = [below for folder in folders for below in _below(folder)]
        for folder in folders:
            if _NUMBER.fullmatch(folder.name) and _is_step(folder):
                *_, rank, net, graph, step = folder.absolute().parts
                match = _RANK.fullmatch(rank)
                number = int(match[1]) if match else None
                yield Step(folder, folder.relative_to(path).as_posix(), number, f"{net}/{graph}", int(step))


def _below(folder: Path, start: str = "", most: int = MOST_FILES) -> list[Path]:
    """Return the folders directly in a folder whose names begin with ``start``; links are skipped."""
    try:
        with os.scandir(folder) as entries:
            named = (entry for entry in islice(entries, most) if entry.name.startswith(start))
            names = [entry.name for entry in islice(named, MOST_FOLDERS) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return [folder / name for name in sorted(names) if not name.startswith(".")]


def _is_step(folder: Path) -> bool:
    """Return whether one of the first files has such a name, or the statistics are there."""
    try:
        with os.scandir(folder) as entries:
            if any(_NAME.fullmatch(entry.name) for entry in islice(entries, TRIED)):
                return True
        path = folder / STATISTICS
        return is_file(path) and not leads_out(path, folder) and _begins(path)
    except OSError:
        return False


def _begins(path: Path) -> bool:
    with path.open("rb") as file:
        return _recognises_table(path, file.read(len(HEAD) + 3))


def _files(folder: Path) -> Iterator[tuple[Place, str]]:
    with os.scandir(folder) as entries:
        for entry in islice(entries, MOST_FILES):
            match = _NAME.fullmatch(entry.name)
            if match and entry.is_file() and not (entry.is_symlink() and leads_out(Path(entry.path), folder)):
                place = Place(match["op_type"], match["name"], int(match["time"]), match["io"], int(match["slot"]))
                yield place, entry.name


def _tensor_of(folder: Path, name: str, place: Place, notes: list[str]) -> Tensor | None:
    """Return the tensor of a file; None with a note if the file is damaged."""
    try:
        return _tensor(folder / name, name, place, notes)
    except FormatError as error:
        notes.append(Damage.left_out(error))
        return None


def _tensor(path: Path, name: str, place: Place, notes: list[str]) -> Tensor:
    header, size = npy_file.header_of(path)
    match = _NAME.fullmatch(name)
    assert match is not None
    dtype = header.dtype
    if dtype.kind == "V":
        dtype = KNOWN.get((match["type"] or "").lower(), UNKNOWN)
        npy_file.check_type(header, dtype, path)
    if size > header.end:
        notes.append(f"{name} has {size - header.end} bytes more than its header declares")
    layout = match["layout"] if layout_fits(match["layout"], len(header.shape)) else None
    return npy_file.tensor_of(path, header, TensorInfo(place.name, header.shape, dtype, layout))


def _dump(
    tensors: Iterable[tuple[Place, Tensor]], full_names: dict[str, str], format: str, path: Path, notes: list[str]
) -> Dump:
    """Return the dump; consecutive tensors with an operator's name belong to one call of this operator."""
    records: list[Record] = []
    operators: dict[int, Operator] = {}
    last, seen = "", set[tuple[str, int]]()
    for place, tensor in tensors:
        index = len(operators) - 1
        if place.name != last or (place.io, place.slot) in seen:
            index, last, seen = index + 1, place.name, set()
            operators[index] = Operator(_module_of(full_names.get(place.name, "")), place.op_type)
        seen.add((place.io, place.slot))
        name = full_names.get(place.name, place.name)
        name += "" if place.io == "output" and not place.slot else f"/{place.io}.{place.slot}"
        info = tensor.info
        info = TensorInfo(name, info.shape, info.dtype, info.layout, op_type=place.op_type)
        named = Tensor(info, tensor.raw_view, tensor.statistics)
        records.append(Record("in" if place.io == "input" else "out", place.slot, index, place.op_type, named))
    repeated = len(operators) - len({record.name for record in records if record.io == "out" and not record.slot})
    if repeated > 0:
        notes.append(
            f"{repeated} operators ran more than once in this iteration, or the folder holds the dumps of several "
            "runs; their tensors are compared in order"
        )
    return Dump(records, format, None, path, notes, partial(dict, operators))


def _module_of(name: str) -> str:
    """Return the module path from a full name: ``c1`` for ``Default/c1-Conv2d/Conv2D-op0``."""
    _, *scopes, _ = name.split("/") if name.count("/") > 1 else ("", "")
    return ".".join(scope.partition("-")[0] for scope in scopes)


def _full_names(folder: Path, notes: list[str]) -> dict[str, str]:
    """Return the full names of the operators by their form in file names; {} without the execution order."""
    above = folder.absolute().parents
    if len(above) < 3 or not _RANK.fullmatch(above[2].name):
        return {}
    root = above[2]
    path = root / "execution_order" / f"ms_execution_order_graph_{above[0].name}.csv"
    if not is_file(path):
        return {}
    if leads_out(path, root):
        notes.append(f"{path.name} is a link out of the dump; the names in it are not used")
        return {}
    try:
        lines = read_all(path, MOST_BYTES, "an execution order").decode("utf-8", "replace").split("\n")
    except FormatError:
        return {}
    found: dict[str, str] = {}
    for line in lines:
        name = line.partition(",")[0].strip()
        if "/" in name:
            short = re.sub(r"[/.]", "_", name)
            found[short] = name if short not in found or found[short] == name else short
    return found


def _of_table(path: Path, format: str, opened: Path) -> Dump:
    text = read_all(path, MOST_BYTES, "a table of statistics").decode("utf-8-sig", "replace")
    notes: list[str] = []
    tensors = list(_rows(text, path, notes))
    if not tensors:
        raise FormatError(f"{path} has no row of statistics{f' ({notes[0]})' if notes else ''}")
    return _dump(tensors, _full_names(path.parent, notes), format, opened, notes)


def _rows(text: str, path: Path, notes: list[str]) -> Iterator[tuple[Place, Tensor]]:
    if not text.endswith("\n"):
        notes.append(Damage(f"{path.name}: the last row has no line end; the run may have been interrupted"))
        text = text[: text.rfind("\n") + 1]
    head, _, body = text.partition("\n")
    columns = [cell.strip().lower() for cell in head.split(",")]
    odd = 0
    try:
        for cells in csv.reader(io.StringIO(body, newline="")):
            if not any(cells):
                continue
            row = {name: cell.strip() for name, cell in zip(columns, cells)}
            tensor = _described(row)
            odd += tensor is None
            if tensor is not None:
                yield tensor
    except csv.Error as error:
        notes.append(Damage(f"{path.name} is damaged: {error}"))
    if odd:
        notes.append(Damage(f"{path.name}: left out {odd} rows that do not match their header"))


def _described(row: dict[str, str]) -> tuple[Place, Tensor] | None:
    """Return a row's tensor; None if the row is damaged."""
    io_word, slot, time = row.get("io", "").lower(), row.get("slot", ""), row.get("timestamp", "")
    name, op_type = row.get("op name", ""), row.get("op type", "")
    if io_word not in ("input", "output") or not _NUMBER.fullmatch(slot) or not name:
        return None
    sizes = row.get("shape", "").strip("() ")
    shape: tuple[int, ...] | None
    try:
        shape = checked_shape(int(size) for size in sizes.split(",") if size.strip()) if "shape" in row else None
        if shape is not None and min(shape, default=0) < 0:
            return None
    except (ValueError, FormatError):
        return None
    figures = {field: _number(row.get(column, ""), field) for column, field in _COLUMNS.items()}
    hashed = next((f"{kind}:{row[kind]}" for kind in _HASHES if row.get(kind)), None)
    dtype = KNOWN.get(row.get("data type", "").lower(), UNKNOWN)
    statistics = Statistics(**figures, checksum=hashed)  # type: ignore[arg-type]
    place = Place(op_type, name, int(time) if time.isdecimal() and len(time) < 21 else 0, io_word, int(slot))
    return place, Tensor.of_statistics(TensorInfo(name, shape, dtype), statistics)


def _number(text: str, field: str) -> float | int | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if field not in _WHOLE else int(text) if text.isdecimal() and len(text) < 20 else None


FORMAT = Format("mindspore_dir", recognises, read, looks_for="rank_N of MindSpore's dumps", runs=runs, own_inputs=True)
TABLE = Format("mindspore_stats", _recognises_table, _read_table, own_inputs=True)
