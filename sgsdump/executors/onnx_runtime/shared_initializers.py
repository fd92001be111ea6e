"""Big weights are handed to a session beside its model, so that none is serialised, parsed and unpacked.

In the model stands a stub that says "external". A weight in memory is shared as it is. One that was left in the model's
own file (``models/onnx_file.py``), or left outside (``models/external_data.py``), is read for this session, into
memory aligned as onnxruntime's own. Weights in other files onnxruntime maps itself.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto

from sgsdump.errors import ModelError
from sgsdump.executors.onnx_runtime.ort_value import PLAIN, aligned_memory
from sgsdump.files.bounded_read import open_file
from sgsdump.files.mapped import identity
from sgsdump.models.external_data import entries_of, is_outside, read_outside

# Smaller weights may be shape parameters, whose values onnxruntime wants to see in the model.
MIN_ELEMENTS = 1024

Values = dict[str, ort.OrtValue]


class ModelFile(NamedTuple):
    """A model's own file, and its ``identity`` when its weights were left there."""

    path: Path
    identity: tuple[int, ...]


def share_initializers(
    options: ort.SessionOptions, weights: Mapping[str, Any], file: ModelFile | None = None
) -> tuple[dict[str, Any], Values]:
    """The stub in the model for each weight, and the values shared beside it, which must outlive the session.

    options  of the session that is to be made; the values are added to them.
    file     the model's own, where big weights may have been left.

    Raises ModelError when a weight holds fewer or more bytes than its shape needs, or its file cannot be read or has
    changed.
    """
    in_file = {name: weight for name, weight in weights.items() if file and _lies_in(weight, file.path)}
    read = _read(in_file, file) if file and in_file else {}
    for name, value in read.items():
        options.add_initializer(name, value)
    stubs, in_memory = dict(weights), {}
    for name, weight in weights.items():
        if name not in in_file and (shared := _shared(weight)):
            stubs[name], in_memory[name] = shared
    options.add_external_initializers(list(in_memory), list(in_memory.values()))
    return stubs, read | in_memory


def _shared(weight: Any) -> tuple[TensorProto, ort.OrtValue] | None:
    """The stub of a big dense weight, and its value; None for any other."""
    if not isinstance(weight, TensorProto) or weight.data_type not in PLAIN:
        return None
    if weight.data_location == TensorProto.EXTERNAL:
        return (_stub(weight), _read_outside(weight)) if is_outside(weight) else None
    if not weight.HasField("raw_data"):
        return None
    count = math.prod(weight.dims)
    if count < MIN_ELEMENTS:
        return None
    dtype = onnx.helper.tensor_dtype_to_np_dtype(weight.data_type)
    raw = weight.raw_data
    if len(raw) != count * dtype.itemsize:
        raise ModelError(
            f"the weight {weight.name!r} of shape {list(weight.dims)} needs {count * dtype.itemsize} bytes, "
            f"the model holds {len(raw)}; it is damaged"
        )
    value = ort.OrtValue.ortvalue_from_numpy(np.frombuffer(raw, dtype).reshape(weight.dims))
    return _stub(weight), value


def _stub(weight: TensorProto) -> TensorProto:
    stub = TensorProto(name=weight.name, dims=weight.dims, data_type=weight.data_type)
    stub.data_location = TensorProto.EXTERNAL
    stub.external_data.add(key="location", value="shared")
    return stub


def _read_outside(weight: TensorProto) -> ort.OrtValue:
    dtype = onnx.helper.tensor_dtype_to_np_dtype(weight.data_type)
    room = aligned_memory(math.prod(weight.dims) * dtype.itemsize)
    return ort.OrtValue.ortvalue_from_numpy(read_outside(weight, room))


def _lies_in(weight: Any, file: Path) -> bool:
    return (
        isinstance(weight, TensorProto)
        and weight.data_location == TensorProto.EXTERNAL
        and entries_of(weight).get("location") == file.name
    )


def _read(weights: Mapping[str, TensorProto], file: ModelFile) -> Values:
    """Weights from the model's own file. Raises ModelError."""
    values = {}
    try:
        with open_file(file.path) as stream:
            if identity(os.fstat(stream.fileno())) != file.identity:
                raise OSError("it was changed while it was used; start again")
            for name, weight in weights.items():
                array = _aligned(tuple(weight.dims), onnx.helper.tensor_dtype_to_np_dtype(weight.data_type))
                stream.seek(int(entries_of(weight).get("offset") or 0))
                if stream.readinto(array.data) != array.nbytes:  # type: ignore[attr-defined]
                    raise OSError("it became shorter")
                values[name] = ort.OrtValue.ortvalue_from_numpy(array)
    except OSError as error:
        raise ModelError(f"cannot read {file.path}: {error.strerror or error}") from None
    return values


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array as onnxruntime places its own: the last bits of a sum may depend on where its vectors begin."""
    return aligned_memory(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)
