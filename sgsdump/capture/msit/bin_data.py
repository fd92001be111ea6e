"""msit's helpers for reading and saving dump data: ATB .bin files, operator dumps, arrays, torch data."""

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
# torch's names of types that numpy lacks.
_TORCH_NAMES = {name: name for name in ("bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu")}


@dataclass(frozen=True)
class BinTensor:
    """Contents of an ATB .bin file.

    Attributes
    ----------
    tensor : Tensor
        The tensor as sgsdump's type; ``get_data()`` returns torch's.
    file_path : str
        Path of the file.
    dtype, format : int
        ATB's numbers from the file's header; 0 if the header has none.
    dims : list of int
        The shape; [] for a scalar.
    obj_len : int or None
        Bytes of the payload, from the header; None if the header does not state it.
    """

    tensor: Tensor
    file_path: str
    dtype: int
    format: int
    dims: list[int]
    obj_len: int | None

    @property
    def obj_buffer(self) -> bytes:
        """Payload as little-endian bytes, as many as the shape needs.

        An alias returns the bytes of the file that it names; a file of statistics returns b"". Raises FormatError,
        ValuesError.
        """
        statistics_only = self.tensor.statistics not in (None, Statistics())
        return b"" if statistics_only else packed(self.tensor.raw())

    def get_data(self) -> Any:
        """Return the values as a torch tensor; bfloat16 stays bfloat16.

        Returns
        -------
        torch.Tensor
            The values in the file's own type and shape, on the CPU.

        Raises
        ------
        MissingExtra
            If torch is not installed.
        FormatError
            If torch has no such type, or the file is damaged.
        ValuesError
            If the file holds no values.
        """
        array = self.tensor.stored()
        torch, name = torch_for("convert the values of a .bin file"), name_of(array.dtype)
        if name in _TORCH_NAMES and hasattr(torch, _TORCH_NAMES[name]):
            bits = np.array(carried(array)).view(f"i{array.dtype.itemsize}")
            return torch.from_numpy(bits).view(getattr(torch, _TORCH_NAMES[name]))
        if name in KNOWN and array.dtype.kind != "V" and array.dtype.newbyteorder("=") == np.dtype(name):
            return torch.from_numpy(np.array(array))
        raise FormatError(
            f"tensor {self.tensor.info.name!r} has type {name}, which torch does not support. Read "
            "the tensor with sgsdump.open_dump"
        )


@dataclass(frozen=True)
class Payload:
    """An input or output of an operator dump.

    Attributes
    ----------
    tensor : Tensor
        The tensor as sgsdump's type.
    """

    tensor: Tensor

    @property
    def data(self) -> bytes:
        """Values as little-endian bytes, as many as the shape needs."""
        return packed(self.tensor.raw())


@dataclass(frozen=True)
class DumpData:
    """Contents of an operator dump file.

    Attributes
    ----------
    input_data, output_data : tuple of Payload
        Inputs and outputs of the operator.
    """

    input_data: tuple[Payload, ...]
    output_data: tuple[Payload, ...]


def get_bin_data_from_dir(dump_data_dir: str, max_depth: int = 20) -> list[str]:
    """Return the paths of all .bin files below a folder.

    Parameters
    ----------
    dump_data_dir : str
        The folder.
    max_depth : int, default 20
        Number of folders down to which files may lie.

    Returns
    -------
    list of str
        Absolute paths, sorted, with numbers in numeric order.

    Raises
    ------
    FormatError
        If a file lies ``max_depth`` folders deep or deeper, or the folder cannot be read.
    """
    root = Path(dump_data_dir).resolve()
    skipped: list[str] = []
    names = sorted(files_below(root, _BIN, [], too_deep=skipped), key=in_order)
    deeper = [*(name for name in names if name.count("/") >= max_depth), *skipped]
    if deeper:
        raise FormatError(f"{root}: {deeper[0]} lies deeper than max_depth ({max_depth}) allows")
    return [str(root / name) for name in names]


def read_bin_data(bin_data_path: str) -> BinTensor:
    """Read an ATB .bin file.

    Parameters
    ----------
    bin_data_path : str
        Path of the file.

    Returns
    -------
    BinTensor
        Header fields and values.

    Raises
    ------
    FormatError
        If the file is not an ATB .bin file.
    """
    if not str(bin_data_path).endswith(_BIN):
        raise FormatError(f"{bin_data_path}: the name does not end in {_BIN}; read other dumps with sgsdump.open_dump")
    dump = open_dump(bin_data_path)
    if dump.format != "atb_bin":
        raise FormatError(
            f"{bin_data_path}: the dump has the format {dump.format}, not the ATB format; read the dump "
            "with sgsdump.open_dump"
        )
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
    """Return the torch tensor of an ATB .bin file.

    An alias returns the values of the file that it names in the same run.

    Parameters
    ----------
    file_path : str
        Path of the file.

    Returns
    -------
    torch.Tensor
        The values in the file's own type and shape.

    Raises
    ------
    FormatError
        If the file is not an ATB .bin file, is damaged, or has a type that torch lacks.
    ValuesError
        If the file holds no values.
    MissingExtra
        If torch is not installed.

    Examples
    --------
    ::

        from sgsdump.capture.msit import read_atb_data

        tensor = read_atb_data("tensors/npu0_1/0/1_LinearOperation/after/outtensor0.bin")
    """
    return read_bin_data(file_path).get_data()


def read_dump_data(dump_data_path: str) -> DumpData:
    """Read an operator dump file of Ascend.

    Parameters
    ----------
    dump_data_path : str
        Path of the file.

    Returns
    -------
    DumpData
        Inputs and outputs of the operator.

    Raises
    ------
    FormatError
        If the file cannot be read as a dump.
    """
    records = [record for record in open_dump(dump_data_path).records if not record.constant]
    sides = (tuple(Payload(r.tensor) for r in records if r.io == io) for io in ("in", "out"))
    return DumpData(*sides)


def convert_bin_data_to_pt(bin_tensor: BinTensor) -> Any:
    """Return the torch tensor of a result of ``read_bin_data``.

    Parameters
    ----------
    bin_tensor : BinTensor
        The result.

    Returns
    -------
    torch.Tensor
        See ``BinTensor.get_data``, also for the errors.
    """
    return bin_tensor.get_data()


def convert_bin_data_to_npy(bin_dump_data: DumpData, dtype: Any = "uint8") -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the payloads of a result of ``read_dump_data`` as flat arrays.

    Parameters
    ----------
    bin_dump_data : DumpData
        The result.
    dtype : dtype-like, default "uint8"
        Type in which the bytes are read.

    Returns
    -------
    inputs, outputs : lists of np.ndarray
        One array of one axis per input and output.

    Raises
    ------
    ConfigError
        If the bytes are not a whole number of elements of ``dtype``.
    """

    def array(payload: Payload) -> np.ndarray:
        try:
            return np.frombuffer(payload.data, dtype)
        except (TypeError, ValueError) as error:
            name = payload.tensor.info.name
            raise ConfigError(f"tensor {name!r}: the bytes cannot be read as {dtype!r}: {error}") from None

    return [*map(array, bin_dump_data.input_data)], [*map(array, bin_dump_data.output_data)]


def atb_json_to_onnx(
    atb_json_path: str, target_level: int = -1, cache_csv_file: dict[str, Mapping[str, Tensors]] | None = None
) -> tuple[str, ...]:
    """Convert the JSON of an ATB layer or model to ONNX, for viewing; the file has the same name with .onnx.

    Parameters
    ----------
    atb_json_path : str
        The JSON that a dump wrote for a layer or model.
    target_level : int, default -1
        Number of levels to unfold: 0 for one node, 1 for its direct parts, and so on; -1 for all levels.
    cache_csv_file : dict, optional
        If given, types and shapes come from the operation CSV of the same process, if msit wrote one
        (``../../operation_io_tensors/{pid}/operation*.csv``). The dict keeps the CSV for the next call.

    Returns
    -------
    tuple of str
        Changes and omissions, one line each.

    Raises
    ------
    FormatError
        If the JSON or the CSV cannot be read.
    ConfigError
        If ``target_level`` is invalid.
    OutputError
        If the ONNX file cannot be written.

    Notes
    -----
    Nodes, names, inputs and outputs equal those of msit's file. Unlike msit's, the file is valid ONNX: weights are
    inputs, the opset is declared, parameters 0 and false keep their values, and numbers, texts and lists their types.
    """
    source, notes = Path(atb_json_path), list[str]()
    if source.suffix != _JSON:
        raise FormatError(f"{source}: the name does not end in {_JSON}; give the JSON file of a dumped layer or model")
    csv = _operations_of(source) if cache_csv_file is not None else None
    tensors = None
    if csv is not None and cache_csv_file is not None:
        if str(csv) not in cache_csv_file:
            cache_csv_file[str(csv)] = read_operations(csv, notes)
        tensors = cache_csv_file[str(csv)]
    return (*notes, *convert_topology(source, source.with_suffix(_ONNX), target_level, tensors))


def _operations_of(source: Path) -> Path | None:
    """Return the first operation CSV of the topology's process, or None."""
    folder = source.resolve().parent
    csvs = (folder.parents[1] / "operation_io_tensors" / folder.name).glob("operation*.csv")
    return min((path for path in csvs if path.is_file()), key=lambda path: in_order(path.name), default=None)


def save_torch_data(pt_data: Any, pt_file_path: str) -> None:
    """Write torch data to a .pt or .pth file; on failure no partial file remains.

    Parameters
    ----------
    pt_data : object
        Anything that ``torch.save`` accepts.
    pt_file_path : str
        Path that ends in .pt or .pth; folders are created.

    Raises
    ------
    OutputError
        If the name has another ending, or the file cannot be written.
    MissingExtra
        If torch is not installed.
    """
    torch = torch_for(f"write {pt_file_path}")
    _save(pt_file_path, _TORCH, lambda file: torch.save(pt_data, file))


def save_npy_data(npy_file_path: str, npy_data: Any) -> None:
    """Write an array to a .npy file, never pickled; on failure no partial file remains.

    Parameters
    ----------
    npy_file_path : str
        Path that ends in .npy; folders are created.
    npy_data : array-like
        Numbers.

    Raises
    ------
    OutputError
        If the data are Python objects, the name has another ending, or the file cannot be written.
    """
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
    """Import and return torch. Raises MissingExtra, which names the purpose."""
    try:
        import torch
    except ImportError:
        raise MissingExtra(
            f"torch is needed to {purpose}. Install torch with pip install sgsdump[torch], or use "
            "sgsdump.open_dump, which works without torch"
        ) from None
    return torch
