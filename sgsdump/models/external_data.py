"""External data of ONNX models: weights in separate files beside the model.

If a model has many weights, large weights stay in their files throughout (``left_outside``). An absolute location marks
such tensors; no model read from a file has an absolute location. Each weight is read on request. ``WeightFile`` stores
weights derived from such weights in a file as well, one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING

import numpy as np

from sgsdump.errors import ModelError, OutputError

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, TensorProto


# Minimum bytes: of all weights to leave weights outside, and of a weight to leave it outside.
MANY_BYTES = 512 << 20
LARGE_BYTES = 1 << 16
# onnxruntime maps data that begin at a page.
_PAGE = 4096
_PIECE = 16 << 20


def external_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Return the weights and tensor attributes stored in external files, including those in bodies."""
    from onnx import TensorProto

    return (tensor for tensor in graph_tensors(graph) if tensor.data_location == TensorProto.EXTERNAL)


def entries_of(tensor: TensorProto) -> dict[str, str]:
    """Return the external data entries of a tensor as texts: location, offset, length."""
    return {entry.key: entry.value for entry in tensor.external_data}


def external_bytes(model: ModelProto) -> int:
    """Return the bytes of the external data, as far as the model gives the lengths."""
    return sum(int(entries_of(tensor).get("length", 0)) for tensor in external_tensors(model.graph))


def external_files(model: ModelProto) -> list[str]:
    """Return the distinct files of all external data, relative to the model's folder."""
    return list(dict.fromkeys(entries_of(tensor).get("location", "") for tensor in external_tensors(model.graph)))


def in_one_piece(model: ModelProto, folder: str | None) -> ModelProto:
    """Return the model with its external data loaded from ``folder``: a copy, or the model itself if it has none."""
    if not any(external_tensors(model.graph)):
        return model
    import onnx

    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    onnx.external_data_helper.load_external_data_for_model(whole, folder or "")
    return whole


def graph_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Yield every weight and tensor attribute of a graph and of the bodies in it."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("g"):
                yield from graph_tensors(attribute.g)
            for body in attribute.graphs:
                yield from graph_tensors(body)


def left_outside(model: ModelProto, folder: Path) -> None:
    """Keep the large weights of a model in their files in ``folder``, and load the small ones. Raises ModelError."""
    import onnx

    try:
        for tensor in external_tensors(model.graph):
            entries = entries_of(tensor)
            if int(entries.get("length") or 0) < LARGE_BYTES:
                onnx.external_data_helper.load_external_data_for_tensor(tensor, str(folder))
                tensor.data_location = onnx.TensorProto.DEFAULT
                del tensor.external_data[:]
            else:
                _lies_at(tensor, (folder / entries["location"]).resolve(), int(entries.get("offset") or 0))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise ModelError(f"the external weights of the model cannot be read: {str(error).splitlines()[0]}") from None


def is_outside(tensor: TensorProto) -> bool:
    """Return whether a weight was left in a file."""
    from onnx import TensorProto

    return tensor.data_location == TensorProto.EXTERNAL and Path(entries_of(tensor).get("location", "")).is_absolute()


def read_outside(tensor: TensorProto, room: np.ndarray | None = None) -> np.ndarray:
    """Read a weight that was left in a file into new memory, or into ``room`` (bytes). Raises ModelError."""
    import onnx

    entries = entries_of(tensor)
    path, count = Path(entries["location"]), math.prod(tensor.dims)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    values = np.empty(count * dtype.itemsize, np.uint8) if room is None else room
    try:
        with open(path, "rb", buffering=0) as file:
            file.seek(int(entries.get("offset") or 0))
            _fill(file, values)
    except OSError as error:
        raise ModelError(f"cannot read the weight {tensor.name!r} in {path}: {error.strerror or error}") from None
    return values.view(dtype).reshape(tuple(tensor.dims))


def _fill(file: IO[bytes], values: np.ndarray) -> None:
    """Fill ``values`` from a file; a system reads at most 2 GiB at once."""
    done = 0
    while done < values.nbytes:
        count = file.readinto(values[done : done + (1 << 30)].data)  # type: ignore[attr-defined]
        if not count:
            raise OSError("the file became shorter")
        done += count


class WeightFile:
    """Weights in a temporary file, which is deleted with this object."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="sgsdump-weights-")
        self._path = Path(self._folder.name) / "weights"

    def add(self, array: np.ndarray, name: str) -> TensorProto:
        """Append a weight and return the tensor that refers to it. Raises OutputError."""
        from onnx import TensorProto, helper

        tensor = TensorProto(name=name, dims=array.shape, data_type=helper.np_dtype_to_tensor_dtype(array.dtype))
        try:
            with open(self._path, "ab") as file:
                offset = _at_page(file)
                file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        except OSError as error:
            raise OutputError(
                f"cannot write {self._path}: {error.strerror or error} (set TMPDIR to use another folder)"
            ) from None
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="length", value=str(array.nbytes))
        _lies_at(tensor, self._path, offset)
        return tensor


def moved_into(model: ModelProto, file: IO[bytes], name: str) -> ModelProto:
    """Return a copy of the model whose outside weights are in ``file``, which will be beside the model as ``name``.

    Raises ModelError.
    """
    moved = type(model)()
    moved.CopyFrom(model)
    for tensor in moved.graph.initializer:
        if not is_outside(tensor):
            continue
        source = entries_of(tensor)
        offset, remaining = _at_page(file), int(source["length"])
        try:
            with open(source["location"], "rb", buffering=0) as outside:
                outside.seek(int(source["offset"]))
                while remaining:
                    piece = outside.read(min(_PIECE, remaining))
                    if not piece:
                        raise OSError("the file became shorter")
                    file.write(piece)
                    remaining -= len(piece)
        except OSError as error:
            raise ModelError(
                f"cannot copy the weight {tensor.name!r} from {source['location']}: {error.strerror or error}"
            ) from None
        _lies_at(tensor, Path(name), offset)
    return moved


def _lies_at(tensor: TensorProto, location: Path, offset: int) -> None:
    entries = {**entries_of(tensor), "location": str(location), "offset": str(offset)}
    entries.pop("checksum", None)
    del tensor.external_data[:]
    for key in ("location", "offset", "length"):
        if key in entries:
            tensor.external_data.add(key=key, value=entries[key])


def _at_page(file: IO[bytes]) -> int:
    """Pad the file to the next page and return its offset."""
    offset = file.tell()
    file.write(bytes(-offset % _PAGE))
    return offset + -offset % _PAGE
