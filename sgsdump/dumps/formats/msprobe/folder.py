"""An msprobe dump of a PyTorch or MindSpore run: a folder with ``dump.json`` (or ``debug.json``); read only.

::

    {"task": "tensor", "level": "mix", "framework": "pytorch", "dump_data_dir": "…/dump_tensor_data", "data": {
        "Functional.conv2d.0.forward": {
            "input_args": [{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [1, 3, 8, 8], "Max": 1.0,
                            "Min": 0.0, "Mean": 0.5, "Norm": 2.0,
                            "data_name": "Functional.conv2d.0.forward.input.0.npy"},
                           {"type": "int", "value": 1}, null],
            "input_kwargs": {"weight": {…}},
            "output": [{…}]},
        "Module.net.conv1.Conv2d.forward.0": {"input_args": …, "input_kwargs": …, "parameters": {"weight": {…}},
                                              "output": …}, …}}

Tensors are named as msprobe names them: ``Functional.conv2d.0.forward.input.0``, ``….input.weight``, ``….output.0``,
``….parameters.weight``. Parameters are inputs like the others and no constants: training changes them from step to
step, so a comparison looks at them. A tensor's slot is its place among the arguments, those that are not tensors
counted. The operator type is the API's name or the module's class. Gradients of parameters are entries of their own,
``Module.net.conv1.Conv2d.parameters_grad.0`` (older versions write no number), whose tensors are outputs:
``….parameters_grad.0.weight``. Tensors under a key that is not known are read as inputs, so that none is lost.

Values are read from the .npy files of ``dump_tensor_data``, which is looked for beside the JSON whatever path is
written in it (that path is of the machine that ran), or from the .pt files there, without torch. An element type that
numpy lacks is often kept as another (bfloat16 as float32): the file's type and shape are taken. Where there are no
values (the task ``statistics``, a missing file) tensors have the statistics Max, Min, Mean, Norm. The JSON file may be
named instead of its folder, or a folder above; with several below it is a tree, ``step3/rank0`` being a run of it. The
dump's ``variant`` is the JSON's path. ``stack.json`` and ``construct.json`` are not needed; the former tells
which line of the program called an operator. Arguments that are no tensors are the operator's (``Operator.arguments``).

The task ``structure`` leaves no tensors, only those two: its operators are listed, with the module that each runs in
and the line that called it. ``debug.json`` has what the program saved: ``null`` (a gradient that never came), a tensor,
or lists and objects of them. Checksums stand under ``md5`` or ``xor``; xor's begin with ``0x`` under whichever key, and
of a tensor without axes it is the value itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from sgsdump.dumps.dump import Damage, Dump, Operator, Record, as_arguments
from sgsdump.dumps.format import HEAD_BYTES, Format, checked_shape
from sgsdump.dumps.formats.msprobe.stacks import CONSTRUCT, STACK, beside, source_of, stacks_of
from sgsdump.dumps.formats.shared import npy_file
from sgsdump.dumps.formats.shared.torch_tensors import read_tensors
from sgsdump.dumps.runs import Run
from sgsdump.errors import FormatError, ValuesError
from sgsdump.files.bounded_read import open_file, read_all
from sgsdump.files.folder import inside, leads_out
from sgsdump.files.json_yaml import json_of
from sgsdump.sidecars.ge_proto import Graph, GraphOperator
from sgsdump.tensors.dtypes import KNOWN, name_of
from sgsdump.tensors.statistics import Statistics
from sgsdump.tensors.tensor import Tensor, TensorInfo

FOLDER = "dump_tensor_data"
UNKNOWN = np.dtype("V1")
SHOWN = 3
_NPY, _TORCH = ".npy", (".pt", ".pth")
_UNREADABLE = "have no values: their files are missing or damaged"
CHECKSUMS = ("md5", "xor")  # in place of statistics or beside them, by their names in the JSON
DEEPEST = 20
_PARTS = {
    "input_args": "input",
    "input_kwargs": "input",
    "input": "input",
    "parameters": "parameters",
    "output": "output",
}
# Entries that hold tensors without saying whether they go in or out: gradients, and what users asked to be saved.
_WHOLE = ("parameters_grad", "debug")
_TYPE_INDEX = -3
_GRADIENT = _WHOLE[0]
_BACKWARD = "backward"
_MODULES = ("Module", "Cell")
NAMES = ("dump.json", "debug.json")
MOST_BYTES = 256 << 20
LEVELS, MOST_FOLDERS = 3, 1000
_RUN_FOLDER = re.compile(r"(step|rank)_?(\d{1,9})", re.ASCII)


class Values:
    """The files of one dump; what is not plain in them is collected for ``notes``."""

    def __init__(self, folder: Path):
        inner = folder / FOLDER
        self._folder = inner if inner.is_dir() and not (inner.is_symlink() and leads_out(inner, folder)) else folder
        self._said: dict[str, list[str]] = {}

    def tensor(self, info: TensorInfo, file: Any, statistics: Statistics) -> Tensor:
        """A tensor with the values of ``file``, the JSON's data_name; with its statistics where they cannot be read."""
        if not isinstance(file, str) or file in ("", "-1"):
            return Tensor.of_statistics(info, statistics)
        if not file.isprintable():
            self.say(_UNREADABLE, info.name)
            return _without_values(info, statistics, f"{file[:80]!r} is not a file name")
        try:
            if PurePosixPath(file).suffix not in _TORCH:
                return self._of_npy(inside(self._folder, file), info)
            beside = file.rpartition(".")[0] + _NPY
            if (self._folder / beside).is_file():
                return self._of_npy(inside(self._folder, beside), info)
            return self._of_torch(inside(self._folder, file), info)
        except FormatError as error:
            self.say(_UNREADABLE, info.name)
            return _without_values(info, statistics, str(error))

    def say(self, event: str, name: str) -> None:
        """Note what befell a tensor."""
        self._said.setdefault(event, []).append(name)

    def notes(self) -> list[str]:
        """A line for each thing that befell tensors."""
        lines: list[str] = []
        for event, names in self._said.items():
            more = " …" if len(names) > SHOWN else ""
            line = f"tensors {event} ({len(names)}): {', '.join(map(repr, names[:SHOWN]))}{more}"
            lines.append(Damage(line) if event == _UNREADABLE else line)
        return lines

    def _of_npy(self, path: Path, info: TensorInfo) -> Tensor:
        header, size = npy_file.header_of(path)
        dtype = info.dtype
        if header.dtype.kind != "V":
            self._check_type(header.dtype, info)
            dtype = header.dtype
        elif dtype == UNKNOWN:
            npy_file.check_plain(header, path)
        npy_file.check_type(header, dtype, path)
        if size > header.end:
            self.say("have trailing bytes", info.name)
        self._check_shape(header.shape, info)
        return npy_file.tensor_of(path, header, TensorInfo(info.name, header.shape, dtype, op_type=info.op_type))

    def _of_torch(self, path: Path, info: TensorInfo) -> Tensor:
        tensors = read_tensors(path, info.name, [])
        if len(tensors) > 1:
            raise FormatError(f"{path} holds {len(tensors)} tensors, not one")
        stored = tensors[0]
        self._check_type(stored.dtype, info)
        self._check_shape(stored.shape, info)
        return Tensor(replace(stored.info, name=info.name, op_type=info.op_type), stored.raw)

    def _check_type(self, dtype: np.dtype, info: TensorInfo) -> None:
        if info.dtype not in (dtype.newbyteorder("="), UNKNOWN):
            self.say(f"were {name_of(info.dtype)}, their files hold {name_of(dtype)}", info.name)

    def _check_shape(self, shape: tuple[int, ...] | None, info: TensorInfo) -> None:
        if shape != info.shape:
            self.say("have other shapes in their files, which are taken", info.name)


class Leaf(NamedTuple):
    """An argument of the JSON, a tensor or not; ``slot`` counts those of its side."""

    name: str
    io: str
    slot: int
    facts: Any


def leaves(operator: str, entry: Any, path: Path) -> Iterator[Leaf]:
    """The arguments of an operator, in the JSON's order."""
    kind = _without_call(operator).rpartition(".")[2]
    if kind not in _WHOLE and not isinstance(entry, Mapping):
        raise FormatError(f"{path}: {operator[:80]!r} is not an object")
    if kind in _WHOLE:
        for slot, (name, facts) in enumerate(_flat(entry, operator, kind == _GRADIENT)):
            yield Leaf(name, "out", slot, facts)
        return
    slots = {"in": 0, "out": 0}
    for part, word in _PARTS.items():
        io = "out" if word == "output" else "in"
        for name, facts in _flat(entry.get(part, ()), f"{operator}.{word}"):
            yield Leaf(name, io, slots[io], facts)
            slots[io] += 1
    for part in [key for key in entry if key not in _PARTS]:
        for name, facts in _flat(entry[part], f"{operator}.{part}"):
            if _describes_tensor(facts):
                yield Leaf(name, "in", slots["in"], facts)
                slots["in"] += 1


def type_of(operator: str) -> str:
    """The API's name or the module's class, "" for a name that has neither."""
    parts = operator.split(".")
    if _without_call(operator) == operator and parts[-1] == _GRADIENT:
        parts.append("0")
    return parts[_TYPE_INDEX] if len(parts) >= -_TYPE_INDEX else ""


def tensor_of(leaf: Leaf, op_type: str, values: Values) -> Tensor | None:
    """The tensor that an argument is, None for any other argument. Raises FormatError for a shape that cannot be."""
    facts = leaf.facts
    if not _describes_tensor(facts):
        return None
    shape = facts["shape"]
    if not all(type(size) is int and size >= 0 for size in shape):
        raise FormatError(f"tensor {leaf.name[:80]!r} has no possible shape: {str(shape)[:80]}")
    word = str(facts["dtype"]).rpartition(".")[2].lower()
    dtype = KNOWN.get(word, UNKNOWN)
    if dtype == UNKNOWN:
        values.say(f"are of a type that is not known, {word[:40]!r}", leaf.name)
    info = TensorInfo(leaf.name, checked_shape(shape), dtype, op_type=op_type if leaf.io == "out" else "")
    return values.tensor(info, facts.get("data_name"), _statistics(facts))


def argument_of(leaf: Leaf, operator: str) -> dict[str, str]:
    """An argument that is no tensor, by its position or keyword: ``{"input.1": "1e-05"}``."""
    facts = leaf.facts
    if isinstance(facts, Mapping):
        facts = facts.get("value", facts)
    return as_arguments({leaf.name.removeprefix(f"{operator}."): facts})


def recognises(path: Path, head: bytes) -> bool:
    return bool(_documents(path)) if path.is_dir() else _begins(head)


def runs(path: Path, notes: list[str]) -> list[Run]:
    """The folders of a dump that a folder holds, their steps and ranks as the folders' names say."""
    folders = {document.parent.relative_to(path).as_posix() for document in _documents(path)}
    return [_run_of(path, "" if folder == "." else folder) for folder in folders]


def read(path: Path) -> Dump:
    """A dump whose values are read from their files when asked for. Raises FormatError."""
    document = _one_document(path) if path.is_dir() else path
    data = _data(document)
    values = Values(document.parent)
    records: list[Record] = []
    arguments: dict[int, dict[str, str]] = {}
    for index, (operator, entry) in enumerate(data.items()):
        op_type = type_of(operator)
        for leaf in leaves(operator, entry, document):
            try:
                tensor = tensor_of(leaf, op_type, values)
            except FormatError as error:
                raise FormatError(f"{document} is damaged: {error}") from None
            if tensor is None:
                if leaf.io == "in":
                    arguments.setdefault(index, {}).update(argument_of(leaf, operator))
                continue
            records.append(Record(leaf.io, leaf.slot, index, op_type, tensor))  # type: ignore[arg-type]
    if not records:
        if not data and beside(document, CONSTRUCT):
            raise FormatError(
                f"{document} has no tensors, only the structure of a program (task structure); sgsdump show "
                f"--operators {path} lists it"
            )
        raise FormatError(f"{document} lists no tensor")
    network = partial(_network, document, list(data), arguments)
    return Dump(records, FORMAT.name, document, path, values.notes(), network)


def is_structure(path: Path) -> bool:
    """Whether a folder holds dumps of the task ``structure``."""
    documents = _documents(path)
    return bool(documents) and all(not _data(document) and beside(document, CONSTRUCT) for document in documents)


def structures(path: Path) -> list[Graph]:
    """The operators of each dump in a folder: their module (or the one that they run in) and the line that called them
    as attributes. Raises FormatError."""
    return [
        Graph(run.place, tuple(_structure(path / run.place / NAMES[0])))
        for run in sorted(runs(path, []), key=lambda run: run.order)
    ]


def _structure(document: Path) -> Iterator[GraphOperator]:
    parents = beside(document, CONSTRUCT)
    for operator, (name, facts) in zip(_network(document, list(parents), {}).values(), parents.items()):
        where = {"module": facts if isinstance(facts, str) else "", "source": operator.source}
        yield GraphOperator(name, type_of(name), (), tuple((key, text) for key, text in where.items() if text))


def _network(
    document: Path, operators: Sequence[str], arguments: Mapping[int, Mapping[str, str]]
) -> dict[int, Operator]:
    """The operators by the modules they run in, which ``construct.json`` tells of APIs, with their arguments and the
    lines of the program that call them. What runs backward stands where it ran forward."""
    stacks, parents = stacks_of(beside(document, STACK)), beside(document, CONSTRUCT)
    network = {}
    for index, name in enumerate(operators):
        forward = name.replace(f".{_BACKWARD}", ".forward")
        own = module_of(name)
        parent = parents.get(forward, parents.get(name))
        around = module_of(str(parent[0] if isinstance(parent, list) and parent else parent))
        kind = f"{type_of(name)}_{_BACKWARD}" if forward != name else type_of(name)
        source = source_of(stacks.get(forward) or stacks.get(name) or ())
        module = around if own is None else own
        network[index] = Operator(
            module or "", kind, own is not None, arguments=arguments.get(index, {}), source=source
        )
    return network


def module_of(operator: str) -> str | None:
    """``net.conv1`` of ``Module.net.conv1.Conv2d.forward.0``; None for an API."""
    parts = operator.split(".")
    if parts[-1] == _GRADIENT:
        parts.append("0")
    return ".".join(parts[1:_TYPE_INDEX]) if parts[0] in _MODULES and len(parts) > -_TYPE_INDEX else None


def _without_values(info: TensorInfo, statistics: Statistics, why: str) -> Tensor:
    def load() -> np.ndarray:
        raise ValuesError(f"has no values: {why}", tensor=info.name)

    return Tensor(info, load, statistics)


def _without_call(operator: str) -> str:
    """``Module.conv1.Conv2d.parameters_grad`` of itself and of ``Module.conv1.Conv2d.parameters_grad.0``."""
    name, dot, last = operator.rpartition(".")
    return name if dot and last.isdecimal() and name.rpartition(".")[2] in _WHOLE else operator


def _describes_tensor(facts: Any) -> bool:
    return isinstance(facts, Mapping) and isinstance(facts.get("shape"), list) and "dtype" in facts


def _flat(value: Any, name: str, without_number: bool = False, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """The items of nested lists and objects, by the names msprobe gives; a gradient's list of one adds no number."""
    if isinstance(value, Mapping) and value.get("class_type") == "torch.distributed.P2POp":
        value = value.get("tensor")
    is_leaf = isinstance(value, Mapping) and isinstance(value.get("type"), str)
    if is_leaf or depth > DEEPEST or not isinstance(value, (Mapping, list, tuple)):
        yield name, value
        return
    items = value.items() if isinstance(value, Mapping) else enumerate(value)
    for key, inner in items:
        drop = without_number and isinstance(value, list)
        yield from _flat(inner, name if drop else f"{name}.{key}", without_number, depth + 1)


def _statistics(facts: Mapping[str, Any]) -> Statistics:
    def figure(name: str) -> float | None:
        try:
            return float(facts[name])
        except (KeyError, TypeError, ValueError, OverflowError):
            return None

    kind = next((kind for kind in CHECKSUMS if isinstance(facts.get(kind), (str, int, float))), None)
    if kind is None:
        return Statistics(figure("Min"), figure("Max"), figure("Mean"), figure("Norm"))
    value = facts[kind]
    if isinstance(value, float) and facts["shape"] == []:
        return Statistics(value, value, value, checksum=f"{kind}:{value}")
    kind = "xor" if str(value).startswith("0x") else kind
    return Statistics(figure("Min"), figure("Max"), figure("Mean"), figure("Norm"), checksum=f"{kind}:{value}")


def _run_of(path: Path, place: str) -> Run:
    numbers: dict[str, int] = {}
    for name in [*path.resolve().parts[-LEVELS:], *place.split("/")]:
        match = _RUN_FOLDER.fullmatch(name)
        if match:
            numbers[match[1]] = int(match[2])
    return Run(place, numbers.get("rank"), numbers.get("step"))


def _begins(head: bytes) -> bool:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return text.startswith(b"{") and b'"dump_data_dir"' in text and b'"data"' in text


def _is_one(path: Path, folder: Path) -> bool:
    """Whether a file named as such a JSON begins as one, and does not lead out of the folder by a link."""
    try:
        if not path.is_file() or leads_out(path, folder):
            return False
        with open_file(path) as file:
            return _begins(file.read(HEAD_BYTES))
    except OSError:
        return False


def _documents(folder: Path) -> list[Path]:
    """The JSON files directly in a folder, else those one or two folders below (``step0/rank0/``)."""
    folders = [folder]
    for _ in range(LEVELS):
        documents = [inner / name for inner in folders for name in NAMES if _is_one(inner / name, folder)]
        if documents:
            return documents
        folders = [below for inner in folders for below in _folders(inner)]
    return []


def _folders(folder: Path) -> list[Path]:
    """The folders directly in one; none where there are too many for the steps and ranks of a run."""
    try:
        with os.scandir(folder) as entries:
            folders = list(
                islice((entry.path for entry in entries if entry.is_dir(follow_symlinks=False)), MOST_FOLDERS)
            )
    except OSError:
        return []
    return [Path(path) for path in sorted(folders)] if len(folders) < MOST_FOLDERS else []


def _one_document(path: Path) -> Path:
    document = min(_documents(path), key=lambda document: NAMES.index(document.name), default=path / NAMES[0])
    return inside(document.parent, document.name)


def _data(path: Path) -> Mapping[str, Any]:
    try:
        text = read_all(path, MOST_BYTES, "a dump.json").decode()
    except UnicodeDecodeError:
        raise FormatError(f"{path} is damaged: it is not UTF-8 text") from None
    document = json_of(text, path)
    data = document.get("data") if isinstance(document, dict) else None
    if not isinstance(data, dict):
        raise FormatError(f'{path} has no "data"; is it msprobe\'s?')
    return data


FORMAT = Format("msprobe_dir", recognises, read, looks_for=f"{NAMES[0]} of msprobe", runs=runs, own_inputs=True)
