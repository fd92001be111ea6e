"""Reader of trees that the hooks of msit or sgsdump write while a torch program runs, and of folders of torch files.

::

    msit_dump_{time}/torch_tensors/{device}_{pid}/model_tree.json
    msit_dump_{time}/torch_tensors/{device}_{pid}/{token}/root.layer1.conv/input_0.pth
    msit_dump_{time}/torch_tensors/{device}_{pid}/{token}/root.layer1.conv/output.pth     output_0_1.pth of nested ones
    msit_dump_{time}/torch_tensors/{device}_{pid}/{token}/root.layer1.conv2d.1/input_0.pth   the second call of an API
    msit_dump_{time}/torch_tensors/{device}_{pid}/weights/root.layer1.conv.weight.pth

Each token is a run; the weights are a run too (graph ``weights``). The rank is the number in the device's name. The
name of a tensor is its path below the run, ``root.layer1.conv/output``. Operators are in the order of ``index.jsonl``,
else of ``model_tree.json``, which also holds the types of modules.

Any other folder of .pt and .pth files is one dump. The name of a tensor is the path of its file, followed by its name
in the file (``torch_file``) if the file has several tensors.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

from sgsdump.dumps.dump import Damage, Dump, Operator, Record
from sgsdump.dumps.format import Format
from sgsdump.dumps.formats.torch import model_tree, run_index, torch_file
from sgsdump.dumps.formats.torch.model_tree import Modules
from sgsdump.dumps.formats.torch.run_index import Entry
from sgsdump.dumps.runs import Run
from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import open_file
from sgsdump.files.folder import files_below, has_file, in_order
from sgsdump.tensors.dtypes import KNOWN
from sgsdump.tensors.tensor import Tensor, TensorInfo

ENDINGS = (".pth", ".pt")
WEIGHTS = "weights"
# A folder that also has such files is a mixture, which ``arrays/folder.py`` reads.
_OTHERS = (".npy", ".npz", ".safetensors", ".raw")
_HEAD = 64
_SIDE = re.compile(r"(input|output)(?:_.+)?", re.DOTALL)
_DEVICE = re.compile(r"[a-z]+(\d{0,9})_\d{1,18}", re.ASCII)
_TOKEN = re.compile(r"\d{1,9}", re.ASCII)
_NOT_IN_ORDER = 10**9


class FilePlace(NamedTuple):
    """Parts of a file's path: folder of the run, folder of the operator, and file name without ending."""

    run: str
    operator: str
    stem: str


def recognises(path: Path, head: bytes) -> bool:
    if not path.is_dir():
        return False
    if has_file(path, run_index.NAME, _is_index):
        return True
    return has_file(path, ENDINGS, _is_laid_out) or (
        has_file(path, ENDINGS, _is_torch) and not has_file(path, _OTHERS) and not (path / "sgsdump.json").is_file()
    )


def _is_index(path: Path) -> bool:
    return path.name == run_index.NAME and (path.parents[1] / model_tree.NAME).is_file()


def _is_laid_out(path: Path) -> bool:
    return _SIDE.fullmatch(path.stem) is not None and path.parent.name.partition(".")[0] == "root"


def _is_torch(path: Path) -> bool:
    try:
        with open_file(path) as file:
            return torch_file.recognises(path, file.read(_HEAD))
    except OSError:
        return False


def runs(path: Path, notes: list[str]) -> list[Run]:
    """Return the tokens of a tree and its weights; none for a folder of other files."""
    folders = {_place(name).run for name in files_below(path, (*ENDINGS, run_index.NAME), notes)}
    return [run for folder in sorted(folders) if (run := _run(path, folder)) is not None]


def _place(name: str) -> FilePlace:
    folders, _, file = name.rpartition("/")
    above, _, operator = folders.rpartition("/")
    if file == run_index.NAME or not _SIDE.fullmatch(_stem(file)):
        return FilePlace(folders, "", _stem(file))
    return FilePlace(above, operator, _stem(file))


def _run(path: Path, folder: str) -> Run | None:
    """Return the run in a folder; None if the folder is neither a token nor the weights."""
    names = [*path.resolve().parts, *filter(None, folder.split("/"))]
    device = _DEVICE.fullmatch(names[-2]) if len(names) > 1 else None
    if device is None or not (names[-1] == WEIGHTS or _TOKEN.fullmatch(names[-1])):
        return None
    rank = int(device[1]) if device[1] else None
    if names[-1] == WEIGHTS:
        return Run(folder, rank, None, WEIGHTS)
    return Run(folder, rank, int(names[-1]))


def read(path: Path) -> Dump:
    """Read a run or a folder of torch files; values are loaded on request. Raises FormatError."""
    notes: list[str] = []
    names = files_below(path, ENDINGS, notes)
    folder = next((path / run.place for run in runs(path, [])), path)
    index = run_index.read(folder, notes)
    below = folder.relative_to(path).as_posix()
    modules = model_tree.read(folder.parent, notes)
    # A program that was killed after its first file, before the file's line, leaves an empty index.
    if index is not None and (index.entries or index.complete):
        records = [*_listed(folder, index.entries, {_below(name, below) for name in names}, notes)]
    else:
        records = [*_found(path, names, "" if below == "." else below, modules, notes)]
    if not records:
        raise FormatError(f"no file in {path} holds a tensor ({notes[-1] if notes else 'there is none'})")
    return Dump(
        records, FORMAT.name, None, path, notes, partial(_network, records, modules, index.arguments if index else {})
    )


def _network(
    records: list[Record], modules: Modules, arguments: Mapping[str, Mapping[str, str]]
) -> dict[int, Operator]:
    """Return the operators with the path of their module; a function gets the path of the calling module."""
    operators: dict[int, Operator] = {}
    for record in records if modules.types else ():
        called = record.name.rpartition("/")[0]
        above = name = called.partition("@")[0]
        while above and above not in modules.types:
            above = above.rpartition(".")[0]
        path = above.partition(".")[2]
        of_call = arguments.get(called, {})
        operators[record.op_index] = Operator(path, record.op_type, above == name, arguments=of_call)
    return operators


def _below(name: str, folder: str) -> str:
    return name if folder == "." else name.removeprefix(f"{folder}/")


def _listed(folder: Path, entries: tuple[Entry, ...], there: set[str], notes: list[str]) -> Iterator[Record]:
    """Yield the tensors of an index in its order."""
    missing, numbers = 0, dict[str, int]()
    for entry in entries:
        index = numbers.setdefault(entry.module, len(numbers))
        if entry.file in there:
            try:
                tensor = torch_file.read_tensors(folder / entry.file, entry.name, notes)[0]
            except FormatError as error:
                notes.append(Damage.left_out(error))
                continue
        elif entry.statistics is not None and entry.dtype in KNOWN:
            tensor = Tensor.of_statistics(TensorInfo(entry.name, entry.shape, KNOWN[entry.dtype]), entry.statistics)
        else:
            missing += 1
            continue
        info = replace(tensor.info, name=entry.name, op_type=entry.type if entry.side == "out" else "")
        yield Record(entry.side, entry.slot, index, entry.type, Tensor(info, tensor.raw, tensor.statistics))  # type: ignore[arg-type]
    stray = there - {entry.file for entry in entries}
    if missing:
        notes.append(f"left out: {missing} tensors of the index that have neither a file nor statistics")
    if stray:
        notes.append(f"left out: {len(stray)} files that are not in the index: {', '.join(sorted(stray)[:3])}")


def _found(path: Path, names: list[str], run: str, modules: Modules, notes: list[str]) -> Iterator[Record]:
    """Yield the tensors of all files, operator by operator."""
    operators: defaultdict[str, list[tuple[FilePlace, str]]] = defaultdict(list)
    for name in names:
        parts = _place(_below(name, run or "."))
        operators["/".join(filter(None, (parts.run, parts.operator)))].append((parts, name))
    placed = lru_cache(maxsize=None)(lambda operator: _order(operator, modules))
    number = 0
    for operator in sorted(operators, key=placed):
        slots = {"in": 0, "out": 0}
        kind = _type(operator, modules)
        for parts, name in sorted(operators[operator], key=lambda item: in_order(item[0].stem)):
            try:
                tensors = torch_file.read_tensors(path / name, _stem(_below(name, run or ".")), notes)
            except FormatError as error:
                notes.append(Damage.left_out(error))
                continue
            side = "in" if parts.operator and parts.stem.startswith("input") else "out"
            for tensor in tensors:
                info = tensor.info
                if len(tensors) > 1:
                    info = replace(info, name=f"{_stem(_below(name, run or '.'))}.{info.name}")
                info = replace(info, op_type=kind if side == "out" else "")
                yield Record(side, slots[side], number, kind, Tensor(info, tensor.raw))  # type: ignore[arg-type]
                # A tensor outside an operator's folder is an operator of its own, with one output.
                slots[side] += bool(parts.operator)
                number += not parts.operator
        number += any(parts.operator for parts, _ in operators[operator])


def _order(operator: str, modules: Modules) -> tuple[object, ...]:
    """Return a sort key: modules in model order, each after the functions called in it; others last, by name."""
    name, is_api = operator.rpartition("/")[2], 1
    while name and name not in modules.places:
        name, is_api = name.rpartition(".")[0], 0
    return modules.places.get(name, _NOT_IN_ORDER), is_api if name else 0, in_order(operator)


def _type(operator: str, modules: Modules) -> str:
    """Return the module's class, else the API's name: the last part that is not a number."""
    name = operator.rpartition("/")[2]
    if name in modules.types:
        return modules.types[name]
    if not modules.types or "." not in name:
        return ""
    return next((part for part in reversed(name.split(".")) if not part.isdecimal()), "")


def _stem(file: str) -> str:
    for ending in ENDINGS:
        file = file.removesuffix(ending)
    return file


FORMAT = Format("torch_tree", recognises, read, looks_for=".pth files of torch_tensors", runs=runs, own_inputs=True)
