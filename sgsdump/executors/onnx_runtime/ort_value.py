"""Between onnxruntime's values and numpy: types as TypeProto, arrays in, arrays out."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, TypeProto

from sgsdump.errors import ModelError
from sgsdump.tensors.dtypes import packed, packed_size, unpacked

# Element types that numpy has too.
PLAIN_WORDS = "FLOAT FLOAT16 DOUBLE BOOL INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64"
PLAIN = frozenset(TensorProto.DataType.Value(word) for word in PLAIN_WORDS.split())
# Those that numpy gets from ml_dtypes; onnxruntime packs 4-bit ones two to a byte, the first in the low half.
BEYOND_WORDS = "BFLOAT16 FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ FLOAT8E8M0 FLOAT4E2M1 INT4 UINT4"
BEYOND = frozenset(map(TensorProto.DataType.Value, set(BEYOND_WORDS.split()) & set(TensorProto.DataType.keys())))
# Of a tensor in memory, in bytes: what processors read fastest, and what onnxruntime gives its own.
ALIGNMENT = 64
ELEMENT_NAMES = {"float": "FLOAT", "double": "DOUBLE"}
# onnxruntime's words for tensors of PLAIN elements.
PLAIN_TYPES = frozenset(f"tensor({word.lower()})" for word in PLAIN_WORDS.split())


def type_proto(text: str, shape: Sequence[int] | None) -> TypeProto:
    """onnxruntime's word for a type (``tensor(float)``, ``optional(seq(tensor(int64)))``) as a TypeProto.

    A plain tensor gets ``shape``, the value's own: some operators (Resize with sizes) refuse a free dimension.
    """
    kind, _, rest = text.partition("(")
    inner = rest.removesuffix(")")
    if kind == "tensor":
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


def shape_of(value: ort.OrtValue) -> list[int] | None:
    """The shape of a tensor; None for anything else and for an empty optional."""
    return list(value.shape()) if value.has_value() and value.is_tensor() else None


def from_array(array: np.ndarray, elem_type: int) -> ort.OrtValue:
    """A value of the array's elements, whose type is ``elem_type``; numpy's own types share the array's memory."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    if elem_type not in BEYOND:
        return ort.OrtValue.ortvalue_from_numpy(array)
    value = ort.OrtValue.ortvalue_from_shape_and_type(list(array.shape), elem_type)
    data = packed(array)
    if data:
        ctypes.memmove(value.data_ptr(), data, len(data))
    return value


def aligned_memory(size: int) -> np.ndarray:
    """So many bytes, of any values, that begin at a multiple of ALIGNMENT."""
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def why_not(value: ort.OrtValue) -> str:
    """Why a value cannot be an array; an empty string when it can."""
    if not value.has_value():
        return "an optional value that is absent"
    if not value.is_tensor():
        kind = value.data_type().partition("(")[0]
        return f"a {'sequence' if kind == 'seq' else kind}, not a tensor"
    kind = value.element_type()
    if kind == TensorProto.STRING:
        return "holds text, not numbers"
    if kind in PLAIN or kind in BEYOND:
        return ""
    return f"holds {TensorProto.DataType.Name(kind).lower()} values, which cannot be read"


def to_array(value: ort.OrtValue) -> np.ndarray:
    """The values of a tensor for which ``why_not`` is empty, in its own element type."""
    kind = value.element_type()
    if kind in PLAIN:
        return value.numpy()
    shape = tuple(value.shape())
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    size = packed_size(dtype, math.prod(shape))
    # A copy: the memory is the value's own, which may go first.
    raw = ctypes.string_at(value.data_ptr(), size) if size else b""
    return unpacked(raw, dtype, math.prod(shape)).reshape(shape)
