"""The values of an msprobe dump: .npy files beside its JSON, in ``dump_tensor_data`` where there is such a folder.

The path in the JSON is that of the machine of the run, so it is not followed. Values in .pt files are read without
torch, unless the same array stands beside them as .npy. An element type that numpy has not is often kept as another
(bfloat16 as float32): the file's is taken, and so is its shape.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from sgsdump.dumps.formats.arrays import npy_file
from sgsdump.dumps.formats.torch.torch_file import read_tensors
from sgsdump.errors import FormatError, ValuesError
from sgsdump.files.folder import inside, leads_out
from sgsdump.tensors.dtypes import name_of
from sgsdump.tensors.statistics import Statistics
from sgsdump.tensors.tensor import Tensor, TensorInfo

FOLDER = "dump_tensor_data"
UNKNOWN = np.dtype("V1")
SHOWN = 3
_NPY, _TORCH = ".npy", (".pt", ".pth")


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
            self.say("have no values: their files are missing or damaged", info.name)
            return _without_values(info, statistics, f"{file[:80]!r} is no file's name")
        try:
            if PurePosixPath(file).suffix not in _TORCH:
                return self._of_npy(inside(self._folder, file), info)
            beside = file.rpartition(".")[0] + _NPY
            if (self._folder / beside).is_file():
                return self._of_npy(inside(self._folder, beside), info)
            return self._of_torch(inside(self._folder, file), info)
        except FormatError as error:
            self.say("have no values: their files are missing or damaged", info.name)
            return _without_values(info, statistics, str(error))

    def say(self, what: str, name: str) -> None:
        """Note what befell a tensor."""
        self._said.setdefault(what, []).append(name)

    def notes(self) -> list[str]:
        """A line for each thing that befell tensors."""
        lines = []
        for what, names in self._said.items():
            more = " …" if len(names) > SHOWN else ""
            lines.append(f"tensors {what} ({len(names)}): {', '.join(map(repr, names[:SHOWN]))}{more}")
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
            self.say("have bytes behind their values", info.name)
        self._check_shape(header.shape, info)
        return npy_file.tensor_of(path, header, TensorInfo(info.name, header.shape, dtype, op_type=info.op_type))

    def _of_torch(self, path: Path, info: TensorInfo) -> Tensor:
        tensors = read_tensors(path, info.name, [], keep_open=False)
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


def _without_values(info: TensorInfo, statistics: Statistics, why: str) -> Tensor:
    def load() -> np.ndarray:
        raise ValuesError(f"tensor {info.name!r} has no values: {why}")

    return Tensor(info, load, statistics)
