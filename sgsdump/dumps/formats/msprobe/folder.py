"""Reader of msprobe dumps of PyTorch and MindSpore runs: folders with ``dump.json`` (or ``debug.json``).

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

Tensors have msprobe's names: ``Functional.conv2d.0.forward.input.0``, ``….input.weight``, ``….output.0``,
``….parameters.weight``. The slot is the position among all arguments, including non-tensors. The operator type is the
API's name or the module's class. Parameters are inputs, not constants, because training changes them from step to step
and a comparison must check them. Gradients of parameters are separate entries,
``Module.net.conv1.Conv2d.parameters_grad.0`` (no number in older versions); their tensors are outputs
(``….parameters_grad.0.weight``). Tensors under an unknown key are read as inputs, so that none is lost.

Values come from the .npy or .pt files in ``dump_tensor_data`` beside the JSON (.pt files are read without torch).
``dump_data_dir`` is ignored: it is a path of the machine that ran the program. msprobe often stores types that numpy
lacks in another type (bfloat16 as float32); the reader uses type and shape of the file. Tensors without values (task
``statistics``, or a missing file) have the statistics Max, Min, Mean and Norm.

The user may name the JSON, its folder, or a folder above. A folder with several dumps below is a tree with runs such as
``step3/rank0``. The dump's ``variant`` is the path of the JSON. Two optional files describe the calls: ``stack.json``
has the program line, ``construct.json`` the module. Non-tensor arguments become ``Operator.arguments``.

The task ``structure`` writes only ``stack.json`` and ``construct.json``; the reader lists the operators with module and
program line. ``debug.json`` holds what the program saved: ``null`` (a missing gradient), a tensor, or nested lists and
objects. Checksums are under ``md5`` or ``xor``. An xor checksum begins with ``0x`` under either key; for a tensor
without axes, it is the value itself.
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
from sgsdump.dumps.runs import Run
from sgsdump.errors import FormatError, ValuesError
from sgsdump.files.bounded_read import open_file, read_text
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
CHECKSUMS = ("md5", "xor")  # JSON keys of checksums, with or without statistics
DEEPEST = 20
_PARTS = {
    "input_args": "input",
    "input_kwargs": "input",
    "input": "input",
    "parameters": "parameters",
    "output": "output",
}
# Entries without inputs and outputs: gradients, and tensors that users saved.
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
    """Reader of the value files of one dump; collects irregularities for ``notes``."""

    def __init__(self, folder: Path):
        inner = folder / FOLDER
        self._folder = inner if inner.is_dir() and not (inner.is_symlink() and leads_out(inner, folder)) else folder
        self._said: dict[str, list[str]] = {}

    def tensor(self, info: TensorInfo, file: Any, statistics: Statistics) -> Tensor:
        """Return a tensor with the values of ``file`` (data_name), or with its statistics if the file is unreadable."""
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
        """Record an irregularity of a tensor."""
        self._said.setdefault(event, []).append(name)

    def notes(self) -> list[str]:
        """Return a line for each kind of irregularity."""
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
        from sgsdump.dumps.formats.shared.torch_tensors import read_tensors

        tensors = read_tensors(path, info.name, [])
        if len(tensors) > 1:
            raise FormatError(f"{path} holds {len(tensors)} tensors, but one is expected")
        stored = tensors[0]
        self._check_type(stored.dtype, info)
        self._check_shape(stored.shape, info)
        return Tensor(replace(stored.info, name=info.name, op_type=info.op_type), stored.raw)

    def _check_type(self, dtype: np.dtype, info: TensorInfo) -> None:
        if info.dtype not in (dtype.newbyteorder("="), UNKNOWN):
            self.say(f"are {name_of(info.dtype)} in the JSON, but their files hold {name_of(dtype)}", info.name)

    def _check_shape(self, shape: tuple[int, ...] | None, info: TensorInfo) -> None:
        if shape != info.shape:
            self.say("have other shapes in their files; the files' shapes are used", info.name)


class Leaf(NamedTuple):
    """An argument in the JSON, tensor or not; ``slot`` counts the arguments of its side."""

    name: str
    io: str
    slot: int
    facts: Any


def leaves(operator: str, entry: Any, path: Path) -> Iterator[Leaf]:
    """Yield the arguments of an operator in the order of the JSON."""
    kind = _without_call(operator).rpartition(".")[2]
    if kind not in _WHOLE and not isinstance(entry, Mapping):
        raise FormatError(f"{path}: {operator[:80]!r} must be a JSON object")
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
    """Return the API's name or the module's class; "" if the operator's name has neither."""
    parts = operator.split(".")
    if _without_call(operator) == operator and parts[-1] == _GRADIENT:
        parts.append("0")
    return parts[_TYPE_INDEX] if len(parts) >= -_TYPE_INDEX else ""


def tensor_of(leaf: Leaf, op_type: str, values: Values) -> Tensor | None:
    """Return the tensor of an argument; None for other arguments. Raises FormatError for an impossible shape."""
    facts = leaf.facts
    if not _describes_tensor(facts):
        return None
    shape = facts["shape"]
    if not all(type(size) is int and size >= 0 for size in shape):
        raise FormatError(f"tensor {leaf.name[:80]!r} has an impossible shape: {str(shape)[:80]}")
    word = str(facts["dtype"]).rpartition(".")[2].lower()
    dtype = KNOWN.get(word, UNKNOWN)
    if dtype == UNKNOWN:
        values.say(f"have the unknown type {word[:40]!r}", leaf.name)
    info = TensorInfo(leaf.name, checked_shape(shape), dtype, op_type=op_type if leaf.io == "out" else "")
    return values.tensor(info, facts.get("data_name"), _statistics(facts))


def argument_of(leaf: Leaf, operator: str) -> dict[str, str]:
    """Return a non-tensor argument by position or keyword: ``{"input.1": "1e-05"}``."""
    facts = leaf.facts
    if isinstance(facts, Mapping):
        facts = facts.get("value", facts)
    return as_arguments({leaf.name.removeprefix(f"{operator}."): facts})


def recognises(path: Path, head: bytes) -> bool:
    return bool(_documents(path)) if path.is_dir() else _begins(head)


def runs(path: Path, notes: list[str]) -> list[Run]:
    """Return the dumps in a folder as runs; step and rank come from the folder names."""
    folders = {document.parent.relative_to(path).as_posix() for document in _documents(path)}
    return [_run_of(path, "" if folder == "." else folder) for folder in folders]


def read(path: Path) -> Dump:
    """Read an msprobe dump; values are loaded on request. Raises FormatError."""
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
                f"{document} has no tensors, only the structure of a program (task structure). List it with: sgsdump "
                f"show --operators {path}"
            )
        raise FormatError(f"{document} lists no tensors")
    network = partial(_network, document, list(data), arguments)
    return Dump(records, FORMAT.name, document, path, values.notes(), network)


def is_structure(path: Path) -> bool:
    """Return whether all dumps in a folder are of the task ``structure``."""
    documents = _documents(path)
    return bool(documents) and all(not _data(document) and beside(document, CONSTRUCT) for document in documents)


def structures(path: Path) -> list[Graph]:
    """Return the operators of each dump in a folder, with module and program line as attributes. Raises FormatError."""
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
    """Return the operators with module, arguments and program line.

    ``construct.json`` names the module that calls an API. Backward operators get the position of the forward operator.
    """
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
    """Return ``net.conv1`` for ``Module.net.conv1.Conv2d.forward.0``; None for an API."""
    parts = operator.split(".")
    if parts[-1] == _GRADIENT:
        parts.append("0")
    return ".".join(parts[1:_TYPE_INDEX]) if parts[0] in _MODULES and len(parts) > -_TYPE_INDEX else None


def _without_values(info: TensorInfo, statistics: Statistics, why: str) -> Tensor:
    def load() -> np.ndarray:
        raise ValuesError(f"has no values: {why}", tensor=info.name)

    return Tensor(info, load, statistics)


def _without_call(operator: str) -> str:
    """Return the name without the call number: ``….parameters_grad`` for ``….parameters_grad.0``."""
    name, dot, last = operator.rpartition(".")
    return name if dot and last.isdecimal() and name.rpartition(".")[2] in _WHOLE else operator


def _describes_tensor(facts: Any) -> bool:
    return isinstance(facts, Mapping) and isinstance(facts.get("shape"), list) and "dtype" in facts


def _flat(value: Any, name: str, without_number: bool = False, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested lists and objects with msprobe's names; a gradient's list of one adds no number."""
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
    """Return whether the file begins as an msprobe JSON and is not a link to a file outside the folder."""
    try:
        if not path.is_file() or leads_out(path, folder):
            return False
        with open_file(path) as file:
            return _begins(file.read(HEAD_BYTES))
    except OSError:
        return False


def _documents(folder: Path) -> list[Path]:
    """Return the JSON files directly in a folder, else one or two levels below (``step0/rank0/``)."""
    folders = [folder]
    for _ in range(LEVELS):
        documents = [inner / name for inner in folders for name in NAMES if _is_one(inner / name, folder)]
        if documents:
            return documents
        folders = [below for inner in folders for below in _folders(inner)]
    return []


def _folders(folder: Path) -> list[Path]:
    """Return the direct subfolders; none if there are too many to be steps and ranks."""
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
    text = read_text(path, MOST_BYTES, "a dump.json")
    document = json_of(text, path)
    data = document.get("data") if isinstance(document, dict) else None
    if not isinstance(data, dict):
        raise FormatError(f'{path} has no key "data". Check that msprobe wrote the file')
    return data


FORMAT = Format("msprobe_dir", recognises, read, looks_for=f"{NAMES[0]} of msprobe", runs=runs, own_inputs=True)
