"""Between onnxruntime's values and numpy: types as TypeProto, arrays in, arrays out."""

from __future__ import annotations

import ctypes
import math
import re
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, TypeProto

from sgsdump.errors import ModelError

# Element types that numpy has too.
PLAIN_WORDS = "FLOAT FLOAT16 DOUBLE BOOL INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64"
PLAIN = frozenset(TensorProto.DataType.Value(word) for word in PLAIN_WORDS.split())
# Smaller weights may be shape parameters, whose values onnxruntime wants to see in the model.
LENT_ELEMENTS = 1024
ELEMENT_NAMES = {"float": "FLOAT", "double": "DOUBLE"}


def type_proto(text: str, rank: int | None) -> TypeProto:
    """onnxruntime's word for a type (``tensor(float)``, ``optional(seq(tensor(int64)))``) as a TypeProto.

    A plain tensor gets ``rank`` free dimensions, so that one session serves every shape of that rank.
    """
    kind, _, rest = text.partition("(")
    inner = rest.removesuffix(")")
    if kind == "tensor":
        shape = None if rank is None else [None] * rank
        return onnx.helper.make_tensor_type_proto(_element_type(inner), shape)
    if kind == "sparse_tensor":
        return onnx.helper.make_sparse_tensor_type_proto(_element_type(inner), None)
    if kind == "seq":
        return onnx.helper.make_sequence_type_proto(type_proto(inner, None))
    if kind == "optional":
        return onnx.helper.make_optional_type_proto(type_proto(inner, None))
    if kind == "map":
        key, _, value = inner.partition(",")
        return onnx.helper.make_map_type_proto(_element_type(key), type_proto(value, None))
    raise ModelError(f"the model makes a value of the type {text}, which cannot be handed on")


def _element_type(word: str) -> int:
    return TensorProto.DataType.Value(ELEMENT_NAMES.get(word, word).upper())


def lend(weight: Any) -> tuple[Any, ort.OrtValue | None]:
    """A weight as what stands for it in the serialised model, and the value to hand to onnxruntime beside it.

    A big dense weight becomes a stub that says "external", and a value that onnxruntime uses where it lies: no copy of
    it is serialised, parsed and unpacked. Everything else stays as it is, with None. Raises ModelError when a weight
    holds fewer or more bytes than its shape needs.
    """
    if not isinstance(weight, TensorProto) or weight.data_type not in PLAIN or not weight.HasField("raw_data"):
        return weight, None
    count = math.prod(weight.dims)
    if count < LENT_ELEMENTS:
        return weight, None
    dtype = onnx.helper.tensor_dtype_to_np_dtype(weight.data_type)
    raw = weight.raw_data
    if len(raw) != count * dtype.itemsize:
        raise ModelError(
            f"the weight {weight.name!r} of shape {list(weight.dims)} needs {count * dtype.itemsize} bytes, "
            f"the model holds {len(raw)}; it is damaged"
        )
    value = ort.OrtValue.ortvalue_from_numpy(np.frombuffer(raw, dtype).reshape(weight.dims))
    stub = TensorProto(name=weight.name, dims=weight.dims, data_type=weight.data_type)
    stub.data_location = TensorProto.EXTERNAL
    stub.external_data.add(key="location", value="lent")
    return stub, value


def rank_of(value: ort.OrtValue) -> int | None:
    """The rank of a tensor; None for anything else and for an empty optional."""
    return len(value.shape()) if value.has_value() and value.is_tensor() else None


def from_array(array: np.ndarray, elem_type: int) -> ort.OrtValue:
    """A value that shares the array's memory; float32 becomes bfloat16 by rounding to nearest even where asked for."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    if elem_type != TensorProto.BFLOAT16:
        return ort.OrtValue.ortvalue_from_numpy(array)
    bits = array.view(np.uint32)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    rounded = np.where(np.isnan(array), np.uint16(0x7FC0), rounded)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(rounded, elem_type)


def why_not(value: ort.OrtValue) -> str:
    """Why a value cannot be an array; an empty string when it can."""
    if not value.has_value():
        return "an optional value that is absent"
    if not value.is_tensor():
        return f"a {re.split('[(]', value.data_type())[0]}, not a tensor"
    kind = value.element_type()
    if kind == TensorProto.STRING:
        return "holds text, not numbers"
    if kind in PLAIN or kind in (TensorProto.BFLOAT16, TensorProto.INT4, TensorProto.UINT4):
        return ""
    return f"holds {TensorProto.DataType.Name(kind).lower()} values, which cannot be read"


def to_array(value: ort.OrtValue) -> np.ndarray:
    """The values of a tensor for which ``why_not`` is empty.

    bfloat16 becomes float32 (the upper half of its bits); 4-bit integers, packed two to a byte, low half first,
    become int8 or uint8.
    """
    kind = value.element_type()
    if kind in PLAIN:
        return value.numpy()
    shape = tuple(value.shape())
    if kind == TensorProto.BFLOAT16:
        return (
            (_raw(value, 2 * math.prod(shape)).view(np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)
        )
    raw = _raw(value, (math.prod(shape) + 1) // 2)
    halves = np.stack([raw & 15, raw >> 4], axis=-1).reshape(-1)[: math.prod(shape)].reshape(shape)
    if kind == TensorProto.UINT4:
        return halves
    return ((halves ^ 8).astype(np.int8) - 8).astype(np.int8)


def _raw(value: Any, count: int) -> np.ndarray:
    """A copy of the tensor's ``count`` bytes."""
    return np.frombuffer(ctypes.string_at(value.data_ptr(), count), np.uint8) if count else np.empty(0, np.uint8)
