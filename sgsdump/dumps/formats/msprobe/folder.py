"""What msprobe dumps of a PyTorch or MindSpore run: a folder with ``dump.json`` (or ``debug.json``); read only.

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
step, so a comparison looks at them. A tensor's slot is its place among the arguments, those that are no tensors
counted. The operator type is the API's name or the module's class. Gradients of parameters are entries of their own,
``Module.net.conv1.Conv2d.parameters_grad.0`` (older versions write no number), whose tensors are outputs:
``….parameters_grad.0.weight``. Tensors under a key that is not known are read as inputs, so that none is lost.

Values are read from the .npy files of ``dump_tensor_data``, which is looked for beside the JSON whatever path is
written in it (that path is of the machine that ran). Where there are none (the task ``statistics``, a .pt file, which
only torch reads, a missing file) tensors have the statistics Max, Min, Mean, Norm. The JSON file may be named instead
of its folder, or a folder above; with several below it is a tree, ``step3/rank0`` being a run of it. The dump's
``variant`` is the JSON's path. ``stack.json`` and ``construct.json`` are not needed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.format import HEAD_BYTES, Format
from sgsdump.dumps.formats.msprobe.arguments import leaves, tensor_of, type_of
from sgsdump.dumps.formats.msprobe.values import Values
from sgsdump.dumps.runs.run import Run
from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import open_file, read_all
from sgsdump.files.folder import inside, leads_out
from sgsdump.files.json_yaml import json_of

NAMES = ("dump.json", "debug.json")
MOST_BYTES = 256 << 20
LEVELS, MOST_FOLDERS = 3, 1000
_RUN_FOLDER = re.compile(r"(step|rank)_?(\d{1,9})", re.ASCII)


def recognises(path: Path, head: bytes) -> bool:
    return bool(_documents(path)) if path.is_dir() else _begins(head)


def runs(path: Path, notes: list[str]) -> list[Run]:
    """The folders of a dump that a folder holds, their steps and ranks as the folders' names say."""
    folders = {document.parent.relative_to(path).as_posix() for document in _documents(path)}
    return [_run_of(path, "" if folder == "." else folder) for folder in folders]


def _run_of(path: Path, place: str) -> Run:
    numbers: dict[str, int] = {}
    for name in [*path.resolve().parts[-LEVELS:], *place.split("/")]:
        match = _RUN_FOLDER.fullmatch(name)
        if match:
            numbers[match[1]] = int(match[2])
    return Run(place, numbers.get("rank"), numbers.get("step"))


def read(path: Path) -> Dump:
    """A dump whose values are read from their files when asked for. Raises FormatError."""
    document = _one_document(path) if path.is_dir() else path
    data = _data(document)
    values = Values(document.parent)
    records: list[Record] = []
    others = 0
    for index, (operator, entry) in enumerate(data.items()):
        op_type = type_of(operator)
        for leaf in leaves(operator, entry, document):
            try:
                tensor = tensor_of(leaf, op_type, values)
            except FormatError as error:
                raise FormatError(f"{document} is damaged: {error}") from None
            if tensor is None:
                others += leaf.facts is not None
                continue
            records.append(Record(leaf.io, leaf.slot, index, op_type, tensor))  # type: ignore[arg-type]
    if not records:
        raise FormatError(f"{document} lists no tensor")
    notes = values.notes()
    if others:
        notes.append(f"{others} arguments are no tensors (numbers, texts …); they are left out")
    return Dump(records, FORMAT.name, document, path, notes)


def _begins(head: bytes) -> bool:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return text.startswith(b"{") and b'"dump_data_dir"' in text and b'"data"' in text


def _is_one(path: Path, folder: Path) -> bool:
    """Whether a file named as such a JSON begins as one, and is not behind a link out of the folder."""
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
