"""Readers of the tensors of ONNX test cases, and of single files with a ``TensorProto``.

::

    test_case/model.onnx                      may have another name
    test_case/test_data_set_0/input_0.pb      a TensorProto for each input of the model
    test_case/test_data_set_0/output_0.pb     the expected outputs
    dump/conv1.tensorproto                    onnxruntime, built with onnxruntime_DEBUG_NODE_INPUTS_OUTPUTS

Each ``test_data_set_N`` is a run with step N. Tensors have the names of the model's inputs and outputs, if the model is
in the folder above. Otherwise they have the name in the file or, without one, the file's name without its ending.
Sequences, optional values and text are left out with a note.

Sources: https://github.com/onnx/onnx/blob/main/docs/OnnxBackendTest.md, files of the onnx package; for onnxruntime,
its documentation of debug builds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

from sgsdump.dumps.dump import Damage, Dump, Record
from sgsdump.dumps.format import Format
from sgsdump.dumps.formats.onnx_tests import tensor_proto
from sgsdump.dumps.runs import Run
from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import is_file
from sgsdump.files.folder import in_order, leads_out
from sgsdump.tensors.tensor import Tensor

ENDINGS = (".pb", ".tensorproto")
MOST_FILES, TRIED = 100_000, 200
_SET = re.compile(r"test_data_set_(\d{1,9})", re.ASCII)
_ROLE = re.compile(r"(input|output)_(\d{1,6})\.pb", re.ASCII)


def recognises(path: Path, head: bytes) -> bool:
    if not path.is_dir():
        return False
    kinds = {_kind(name) for name in islice(_names(path), TRIED)}
    return "tensor" in kinds or ("set" in kinds and bool(_sets(path)))


def runs(path: Path, notes: list[str]) -> list[Run]:
    """Return the data sets of a test case."""
    return [] if _has_tensors(path) else [Run(folder.name, step=step) for step, folder in _sets(path).items()]


def read(path: Path) -> Dump:
    """Read a data set; values are loaded on request. Raises FormatError if it has no tensor."""
    folder = path
    if not _has_tensors(path):
        sets = list(_sets(path).values())
        if len(sets) != 1:
            held = f"{len(sets)} data sets" if sets else "no data set"
            raise FormatError(f"{path} holds {held}. Give the folder of one data set")
        folder = sets[0]
    notes: list[str] = []
    model = _model_of(folder, notes)
    names = tensor_proto.names_in_model(model) if model else ([], [])
    records: list[Record] = []
    outputs = 0
    for file in _files(folder):
        match = _ROLE.fullmatch(file.name)
        try:
            tensor = _named(file, *tensor_proto.read(file), names, match)
        except FormatError as error:
            notes.append(Damage.left_out(error))
            continue
        if match and match[1] == "input":
            records.append(Record("in", int(match[2]), 0, "", tensor))
        else:
            records.append(Record("out", 0, outputs, "", tensor))
            outputs += 1
    if not records:
        raise FormatError(f"{path} has no tensor{f' ({notes[0]})' if notes else ''}")
    return Dump(records, FORMAT.name, None, path, notes)


def _named(
    file: Path, name: str, tensor: Tensor, names: tuple[list[str], list[str]], match: re.Match[str] | None
) -> Tensor:
    of_model = names[match[1] == "output"] if match else []
    number = int(match[2]) if match else -1
    if name not in of_model and 0 <= number < len(of_model):
        name = of_model[number]
    return _renamed(tensor, name or file.stem)


def _renamed(tensor: Tensor, name: str) -> Tensor:
    return Tensor(replace(tensor.info, name=name), tensor.raw_view)


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files of a data set, inputs first; links out of the folder are skipped."""
    files = (file for file in islice(folder.iterdir(), MOST_FILES) if file.suffix in ENDINGS)
    for file in sorted(files, key=lambda file: in_order(file.name)):
        if is_file(file) and not (file.is_symlink() and leads_out(file, folder)):
            yield file


def _names(folder: Path) -> Iterator[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        yield from (entry.name for entry in islice(entries, MOST_FILES))


def _kind(name: str) -> str:
    """Return "tensor" for the name of a tensor's file, "set" for that of a data set, else ""."""
    if name.endswith(ENDINGS):
        return "tensor" if name.endswith(ENDINGS[1]) or _ROLE.fullmatch(name) else ""
    return "set" if _SET.fullmatch(name) else ""


def _has_tensors(folder: Path) -> bool:
    return any(_kind(name) == "tensor" for name in islice(_names(folder), TRIED))


def _sets(folder: Path) -> dict[int, Path]:
    found = {}
    for name in _names(folder):
        match, below = _SET.fullmatch(name), folder / name
        if match and below.is_dir() and not leads_out(below, folder) and _has_tensors(below):
            found[int(match[1])] = below
    return dict(sorted(found.items()))


def _model_of(folder: Path, notes: list[str]) -> Path | None:
    """Return the model of a test case: ``model.onnx``, or the only model in the folder above."""
    above = folder.absolute().parent
    models = [above / "model.onnx"]
    if not is_file(models[0]):
        models = [model for model in islice(above.glob("*.onnx"), 2) if is_file(model)]
    if len(models) != 1:
        return None
    if models[0].is_symlink() and leads_out(models[0], above):
        notes.append(f"{models[0].name} is a link out of its folder; the names in it are not used")
        return None
    return models[0]


def _recognises_file(path: Path, head: bytes) -> bool:
    return tensor_proto.is_proto(head)


def _read_file(path: Path) -> Dump:
    """Read a file with one tensor. Raises FormatError."""
    name, tensor = tensor_proto.read(path)
    return Dump([Record("out", 0, 0, "", _renamed(tensor, name or path.stem))], FILE.name, None, path)


FORMAT = Format("onnx_test_data", recognises, read, looks_for="test_data_set_N, input_0.pb", runs=runs)
FILE = Format("onnx_tensor", _recognises_file, _read_file, one_tensor=True)
