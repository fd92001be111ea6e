"""Reading and saving dump data with msit's helpers: ATB .bin files, operator dumps, arrays, torch data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.dumps.formats.atb.tensor import dims_of, header_of, number_in
from sgsdump.dumps.formats.shared import npy_file
from sgsdump.dumps.io import open_dump
from sgsdump.errors import ConfigError, FormatError, MissingExtra, OutputError
from sgsdump.files.atomic_write import make_folder, replacing
from sgsdump.files.folder import files_below, in_order
from sgsdump.models.atb.operation_csv import Tensors
from sgsdump.models.atb.operation_csv import read as read_operations
from sgsdump.models.atb.topology import convert_topology
from sgsdump.tensors.dtypes import KNOWN, carried, name_of, packed
from sgsdump.tensors.statistics import Statistics
from sgsdump.tensors.tensor import Tensor

_BIN, _NPY, _TORCH = ".bin", ".npy", (".pt", ".pth")
_JSON, _ONNX = ".json", ".onnx"
# torch's own names of the types that numpy has not.
_TORCH_NAMES = {name: name for name in ("bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu")}


@dataclass(frozen=True)
class BinTensor:
    """An ATB .bin file read: ``tensor`` is sgsdump's, ``get_data()`` torch's, the rest is msit's.

    dtype, format  ATB's numbers, as in the file's header; 0 where it gives none.
    dims           the shape, [] of a scalar.
    obj_len        the bytes of the payload, by the header; None where it does not say.
    """

    tensor: Tensor
    file_path: str
    dtype: int
    format: int
    dims: list[int]
    obj_len: int | None

    @property
    def obj_buffer(self) -> bytes:
        """The payload, little-endian, as many bytes as the shape needs; an alias has those of the file it names, a file
        of statistics none. Raises FormatError, ValuesError."""
        statistics_only = self.tensor.statistics not in (None, Statistics())
        return b"" if statistics_only else packed(self.tensor.raw())

    def get_data(self) -> Any:
        """The values as a torch tensor, bfloat16 as such. Raises MissingExtra, FormatError, ValuesError."""
        array = self.tensor.stored()
        torch, name = torch_for("convert the values of a .bin file"), name_of(array.dtype)
        if name in _TORCH_NAMES and hasattr(torch, _TORCH_NAMES[name]):
            bits = np.array(carried(array)).view(f"i{array.dtype.itemsize}")
            return torch.from_numpy(bits).view(getattr(torch, _TORCH_NAMES[name]))
        if name in KNOWN and array.dtype.kind != "V" and array.dtype.newbyteorder("=") == np.dtype(name):
            return torch.from_numpy(np.array(array))
        raise FormatError(
            f"tensor {self.tensor.info.name!r} is {name}, which torch does not have; use sgsdump.open_dump"
        )


@dataclass(frozen=True)
class Payload:
    """An input or output of an operator dump; ``data`` its bytes, little-endian, as many as its shape needs."""

    tensor: Tensor

    @property
    def data(self) -> bytes:
        return packed(self.tensor.raw())


@dataclass(frozen=True)
class DumpData:
    """An operator dump file read: its inputs and outputs."""

    input_data: tuple[Payload, ...]
    output_data: tuple[Payload, ...]


def get_bin_data_from_dir(dump_data_dir: str, max_depth: int = 20) -> list[str]:
    """The paths of all .bin files below a folder. Raises FormatError when one lies ``max_depth`` folders deep or more,
    or the folder cannot be read."""
    root = Path(dump_data_dir).resolve()
    skipped: list[str] = []
    names = sorted(files_below(root, _BIN, [], too_deep=skipped), key=in_order)
    deeper = [*(name for name in names if name.count("/") >= max_depth), *skipped]
    if deeper:
        raise FormatError(f"{root}: {deeper[0]} lies deeper than max_depth ({max_depth}) allows")
    return [str(root / name) for name in names]


def read_bin_data(bin_data_path: str) -> BinTensor:
    """An ATB .bin file. Raises FormatError for any other."""
    if not str(bin_data_path).endswith(_BIN):
        raise FormatError(f"{bin_data_path} does not end in {_BIN}; read other dumps with sgsdump.open_dump")
    dump = open_dump(bin_data_path)
    if dump.format != "atb_bin":
        raise FormatError(f"{bin_data_path} is of the format {dump.format}, not ATB's; read it with sgsdump.open_dump")
    header = header_of(Path(bin_data_path))
    return BinTensor(
        dump.records[0].tensor,
        file_path=str(bin_data_path),
        dtype=number_in(header, "dtype") or 0,
        format=number_in(header, "format") or 0,
        dims=list(dims_of(header)),
        obj_len=header.length,
    )


def read_atb_data(file_path: str) -> Any:
    """The torch tensor of an ATB .bin file, that of an alias with the values of the file it names in the same run.

    Raises FormatError, ValuesError, MissingExtra.
    """
    return read_bin_data(file_path).get_data()


def read_dump_data(dump_data_path: str) -> DumpData:
    """An operator dump file of Ascend. Raises FormatError."""
    records = [record for record in open_dump(dump_data_path).records if not record.constant]
    sides = (tuple(Payload(r.tensor) for r in records if r.io == io) for io in ("in", "out"))
    return DumpData(*sides)


def convert_bin_data_to_pt(bin_tensor: BinTensor) -> Any:
    """The torch tensor of what ``read_bin_data`` gave. Raises MissingExtra, FormatError, ValuesError."""
    return bin_tensor.get_data()


def convert_bin_data_to_npy(bin_dump_data: DumpData, dtype: Any = "uint8") -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The inputs and the outputs of what ``read_dump_data`` gave: flat arrays of the payloads' bytes read as ``dtype``.

    Raises ConfigError when the bytes are not a whole number of such elements.
    """

    def array(payload: Payload) -> np.ndarray:
        try:
            return np.frombuffer(payload.data, dtype)
        except (TypeError, ValueError) as error:
            name = payload.tensor.info.name
            raise ConfigError(f"the bytes of tensor {name!r} cannot be read as {dtype!r}: {error}") from None

    return [*map(array, bin_dump_data.input_data)], [*map(array, bin_dump_data.output_data)]


def atb_json_to_onnx(
    atb_json_path: str, target_level: int = -1, cache_csv_file: dict[str, Mapping[str, Tensors]] | None = None
) -> tuple[str, ...]:
    """Write the ONNX of an ATB layer's or model's JSON beside it, under its name with .onnx, to look at.

    target_level    how often to unfold: 0 the whole graph as one node, 1 what is directly inside …, -1 to the end.
    cache_csv_file  {} takes types and shapes from the operation CSV of the same process, where msit left one
                    (``../../operation_io_tensors/{pid}/operation*.csv``), and keeps it there for the next call.

    Nodes, their names, inputs and outputs are those of msit's file; and this one is valid ONNX (weights are inputs,
    the opset is named), parameters of 0 and false keep their value, and numbers, texts and lists their kind.
    Returns what had to be changed or left out, a line each. Raises FormatError, ConfigError, OutputError.
    """
    source, notes = Path(atb_json_path), list[str]()
    if source.suffix != _JSON:
        raise FormatError(f"{source} does not end in {_JSON}; give the JSON that was dumped of a layer or model")
    csv = _operations_of(source) if cache_csv_file is not None else None
    tensors = None
    if csv is not None and cache_csv_file is not None:
        if str(csv) not in cache_csv_file:
            cache_csv_file[str(csv)] = read_operations(csv, notes)
        tensors = cache_csv_file[str(csv)]
    return (*notes, *convert_topology(source, source.with_suffix(_ONNX), target_level, tensors))


def _operations_of(source: Path) -> Path | None:
    """The operation CSV of the process that a topology is of, of several the first; None where there is none."""
    folder = source.resolve().parent
    csvs = (folder.parents[1] / "operation_io_tensors" / folder.name).glob("operation*.csv")
    return min((path for path in csvs if path.is_file()), key=lambda path: in_order(path.name), default=None)


def save_torch_data(pt_data: Any, pt_file_path: str) -> None:
    """Write torch data to a .pt or .pth file, whole or not at all. Raises OutputError, MissingExtra."""
    torch = torch_for(f"write {pt_file_path}")
    _save(pt_file_path, _TORCH, lambda file: torch.save(pt_data, file))


def save_npy_data(npy_file_path: str, npy_data: Any) -> None:
    """Write an array to a .npy file, whole or not at all; never pickled. Raises OutputError."""
    array = np.asarray(npy_data)
    if array.dtype.hasobject:
        raise OutputError(f"cannot write {npy_file_path}: the data are Python objects, not numbers")
    _save(npy_file_path, (_NPY,), lambda file: npy_file.write(file, array))


def _save(path: str, endings: tuple[str, ...], write: Callable[[Any], object]) -> None:
    if not str(path).endswith(endings):
        raise OutputError(f"cannot write {path}: its name must end in {' or '.join(endings)}")
    make_folder(Path(path).parent)
    with replacing(Path(path)) as file:
        write(file)


def torch_for(purpose: str) -> Any:
    """The module torch. Raises MissingExtra that names the purpose."""
    try:
        import torch
    except ImportError:
        raise MissingExtra(
            f"torch is needed to {purpose}; pip install sgsdump[torch], or use sgsdump.open_dump, which needs none"
        ) from None
    return torch
