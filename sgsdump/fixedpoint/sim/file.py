"""Reader of the SDK's .sim files: FlatBuffers of TensorFlow Lite's public schema with additional slots.

docs/formats/sim.md describes the layout and the source of every statement. A file is read through its vtables; other
slots of a table than those named here are ignored. Files are untrusted input: every offset is checked (``flatbuffer``).
The values of constants stay in the file until they are requested.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from sgsdump.errors import FormatError, ModelError
from sgsdump.files.flatbuffer import Buffer, Table, root
from sgsdump.files.mapped import MappedFile, map_file
from sgsdump.models.tflite import MAGIC, operator_name, tensor_indices

DEBUG, FLOAT, CMODEL, FIXED, IMAGE = "debug", "float", "cmodel float", "fixed", "image"
_KINDS = {
    "SGS MODEL": DEBUG,
    "Sigmastar Float": FLOAT,
    "Sigmastar Cmodel Float": CMODEL,
    "Sigmastar Cmodel With IPU CTRL": FIXED,
    "Sigmastar Cmodel Convert Image": IMAGE,
}
INTEGER_KINDS = (FIXED, IMAGE)
_OURS = "Sigmastar"
_VERSION = 3
_MOST_AXES = 8
_ROW_BYTES = 16
_MOST_NODES = 1 << 20
DTYPES: dict[int, np.dtype] = {
    0: np.dtype(np.float32),
    2: np.dtype(np.int32),
    3: np.dtype(np.uint8),
    4: np.dtype(np.int64),
    6: np.dtype(np.bool_),
    7: np.dtype(np.int16),
    9: np.dtype(np.int8),
}
FORMATS = {
    1: "RGB",
    2: "BGR",
    3: "RGBA",
    5: "YUV420",
    6: "IPU_U8_NHWX",
    7: "IPU_U8_NHWC",
    10: "IPU_S8_KB",
    11: "IPU_S16_NHWX",
    12: "IPU_S16_NHWC",
    13: "IPU_S16_KB",
    14: "IPU_S32_NHWC",
}


@dataclass(frozen=True, eq=False)
class SimQuant:
    """The quantisation of a tensor.

    low, high     calibration range: one value, or one per channel.
    scale         float32 steps: one, or one per channel; empty for a tensor without integers.
    zero_point    of the first channel.
    accumulator   for the output of a convolution, the largest and the smallest sum of products over its channels;
                  otherwise None.
    """

    low: np.ndarray
    high: np.ndarray
    scale: np.ndarray
    zero_point: int
    accumulator: tuple[int, int] | None


@dataclass(frozen=True, eq=False)
class SimTensor:
    """A tensor of the file.

    name      unique: a number is appended if two tensors share a name.
    shape     N, H, W, C for four dimensions.
    dtype     type stored in the file's model.
    planned   type after calibration, None if the file has none.
    format    layout in memory, as parse_net prints it ("RGB", "IPU_U8_NHWX" ...); "" in float models.
    memory    begin and end in working memory in bytes; (0, 0) for a tensor without.
    place     order in which the tensor is needed (EvrId).
    flags     1 input, 2 output, 16 inner (ExtFlag).
    extent    position and size of a constant's values in the file in bytes; (0, 0) for a variable.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    planned: np.dtype | None
    quant: SimQuant | None
    format: str
    memory: tuple[int, int]
    place: int
    flags: int
    buffer: int
    extent: tuple[int, int]

    @property
    def is_constant(self) -> bool:
        return self.extent[1] > 0

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, eq=False)
class SimOperator:
    """An operator: ``inputs`` and ``outputs`` are positions of tensors, -1 for an absent input."""

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Table | None

    def option(self, slot: int, code: str = "i", default: int | float = 0) -> int | float:
        """Return a number of the options; ``code`` as in ``struct``.

        Returns the default if the slot is absent or points nowhere, as in a few operators.
        """
        if self.options is None:
            return default
        try:
            return self.options.number(slot, code, default)  # type: ignore[arg-type]
        except FormatError:
            return default

    def whole(self, slot: int, default: int = 0) -> int:
        """Return an integer of the options."""
        return int(self.option(slot, "i", default))


@dataclass(frozen=True, eq=False)
class SimFile:
    """A .sim file, or the fixed model inside an image.

    kind      DEBUG, FLOAT, CMODEL, FIXED or IMAGE.
    version   of the SDK that wrote the file.
    formats   by input, its formats in memory and in training; fixed models only.
    matrices  by image, the twelve numbers (as16ConvertMartix) with which the hardware makes its channels.
    """

    path: Path
    kind: str
    tensors: tuple[SimTensor, ...]
    operators: tuple[SimOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    data: Buffer
    version: str = ""
    formats: tuple[tuple[str, str], ...] = ()
    matrices: tuple[tuple[int, ...], ...] = ()

    @cached_property
    def by_name(self) -> dict[str, SimTensor]:
        return {tensor.name: tensor for tensor in self.tensors}

    def stored(self, tensor: SimTensor) -> bytes:
        """Return a constant's bytes."""
        start, count = tensor.extent
        return bytes(self.data[start : start + count])

    def values(self, tensor: SimTensor) -> np.ndarray:
        """Return a constant in its shape; not for the weights of a fixed model.

        Fixed models pad the innermost axis to 16 bytes; further bytes pad the buffer. Raises FormatError if the file
        holds too few values.
        """
        data, unit = self.stored(tensor), _ROW_BYTES // tensor.dtype.itemsize
        width = tensor.shape[-1] if tensor.shape else 1
        if self.kind in INTEGER_KINDS:
            width = -(-width // unit) * unit
        rows = math.prod(tensor.shape[:-1])
        if len(data) < (rows - 1) * width * tensor.dtype.itemsize + tensor.size // max(rows, 1):
            raise FormatError(
                f"holds only {len(data)} bytes for the constant {tensor.name!r} of shape {list(tensor.shape)}"
            )
        values = np.zeros(rows * width, tensor.dtype)
        there = np.frombuffer(data, tensor.dtype, min(values.size, len(data) // tensor.dtype.itemsize))
        values[: there.size] = there
        return values.reshape(rows, width)[:, : tensor.shape[-1] if tensor.shape else 1].reshape(tensor.shape)


def description(data: Buffer) -> str:
    """Return the description in a FlatBuffer of TensorFlow Lite; "" for other data."""
    if data[4:8] != MAGIC:
        return ""
    try:
        return root(data).text(3)
    except FormatError:
        return ""


def is_sim(data: Buffer) -> bool:
    """Return whether data is a .sim file, of a known or unknown layout."""
    text = description(data)
    return text in _KINDS or text.startswith(_OURS)


def read(path: Path | str) -> SimFile:
    """Read a .sim file. Raises ModelError for another or a damaged file, or an unknown layout."""
    path = Path(path)
    data = mapped(path)
    try:
        return of_bytes(path, data)
    except FormatError as error:
        raise ModelError(
            f"{path}: the .sim model {error}. Is the file cut off or damaged? Copy the file again, or convert the "
            "model again"
        ) from None


def mapped(path: Path) -> MappedFile:
    """Return the bytes of a file. Raises ModelError if it cannot be read."""
    try:
        return map_file(path)
    except FormatError as error:
        raise ModelError(str(error)) from None


def of_bytes(path: Path, data: Buffer) -> SimFile:
    """Read the .sim model in these bytes.

    Raises FormatError (without the file's name), and ModelError for an unknown layout.
    """
    if data[4:8] != MAGIC:
        raise ModelError(f"{path} is not a .sim file: the identifier TFL3 is missing")
    model = root(data)
    text = model.text(3)
    kind, version = _KINDS.get(text), model.number(0, "I")
    if kind is None or version != _VERSION:
        raise ModelError(
            f"{path}: unknown .sim layout {text[:60]!r} of version {version}. sgsdump reads the layouts of SDK 1.1.5"
        )
    graphs = list(model.tables(2))
    if len(graphs) != 1:
        raise FormatError(f"holds {len(graphs)} graphs instead of one")
    kinds = [_kind(code) for code in model.tables(1)]
    extents = [buffer.extent(0, 1) for buffer in model.tables(4)]
    graph = graphs[0]
    tensors = tuple(_tensors(graph, extents))
    operators = tuple(_operators(graph, kinds, len(tensors)))
    inputs, outputs = (tensor_indices(graph, field, len(tensors)) for field in (1, 2))
    if not operators or not outputs or not inputs:
        raise FormatError("lacks operators, inputs or outputs")
    formats, matrices = tuple(_formats(graph)), tuple(_matrices(graph))
    return SimFile(path, kind, tensors, operators, inputs, outputs, data, _version(model), formats, matrices)


def _version(model: Table) -> str:
    try:
        return model.text(6).partition("\0")[0]
    except FormatError:
        return ""


def _formats(graph: Table) -> Iterator[tuple[str, str]]:
    for given, training in zip(graph.numbers(6, "i1"), graph.numbers(7, "i1")):
        yield FORMATS.get(int(given), ""), FORMATS.get(int(training), "")


def _matrices(graph: Table) -> Iterator[tuple[int, ...]]:
    for table in graph.tables(10):
        numbers = tuple(map(int, table.numbers(0, "i2")))
        if len(numbers) != 12:
            raise FormatError(f"has an image matrix of {len(numbers)} numbers instead of 12")
        yield numbers


def _kind(code: Table) -> str:
    return operator_name(code.number(0, "b"), code.text(1))


def _tensors(graph: Table, extents: list[tuple[int, int]]) -> Iterator[SimTensor]:
    taken: set[str] = set()
    for index, table in enumerate(graph.tables(0)):
        name = table.text(3) or f"tensor_{index}"
        while name in taken:
            name = f"{name}#{index}"
        taken.add(name)
        yield _tensor(table, name, extents)


def _tensor(table: Table, name: str, extents: list[tuple[int, int]]) -> SimTensor:
    shape = tuple(int(size) for size in table.numbers(0, "i4"))
    if len(shape) > _MOST_AXES or any(size < 0 for size in shape):
        raise FormatError(f"has the tensor {name!r} with the impossible shape {list(shape)[:_MOST_AXES]}")
    buffer = table.number(2, "I")
    if buffer >= len(extents):
        raise FormatError(f"has the tensor {name!r} with buffer index {buffer}, but has only {len(extents)} buffers")
    dtype = DTYPES.get(table.number(1, "b"))
    if dtype is None:
        raise FormatError(f"has a tensor {name!r} with the unknown type {table.number(1, 'b')}")
    memory = table.table(7)
    return SimTensor(
        name,
        shape,
        dtype,
        DTYPES.get(table.number(10, "b", -1)),
        _quant(table.table(4)),
        FORMATS.get(table.number(6, "b"), ""),
        (memory.number(0, "I"), memory.number(1, "I")) if memory is not None else (0, 0),
        table.number(8, "I"),
        table.number(9, "I"),
        buffer,
        extents[buffer],
    )


def _quant(table: Table | None) -> SimQuant | None:
    if table is None:
        return None
    low, high, scale = (table.numbers(field, "f4") for field in (0, 1, 2))
    if not len(low) and not len(scale):
        return None
    zero_points, largest, smallest = table.numbers(3, "i8"), table.numbers(4, "i4"), table.numbers(5, "i4")
    accumulator = (int(largest[0]), int(smallest[0])) if len(largest) and len(smallest) else None
    return SimQuant(low, high, scale, int(zero_points[0]) if len(zero_points) else 0, accumulator)


def _operators(graph: Table, kinds: list[str], tensors: int) -> Iterator[SimOperator]:
    for index, table in enumerate(graph.tables(3)):
        code = table.number(0, "I")
        if code >= len(kinds):
            raise FormatError(
                f"has an operator with code {code}, but the file defines only {len(kinds)} operator codes"
            )
        if index >= _MOST_NODES:
            raise FormatError("has too many operators")
        yield SimOperator(
            kinds[code], tensor_indices(table, 1, tensors, True), tensor_indices(table, 2, tensors), _options(table)
        )


def _options(table: Table) -> Table | None:
    try:
        return table.table(4)
    except FormatError:
        return None
