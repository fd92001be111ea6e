"""Element types of numpy and of accelerators (bfloat16, 8-bit floats, int4 …), and conversion of user values to arrays.

User values are scalars, lists, torch tensors or any array-like. Types beyond numpy come from ``ml_dtypes``. numpy knows
little of these types: their ``dtype.kind`` is mostly ``V``, a .npy header does not name them, and types smaller than a
byte take a whole byte in memory. Use the functions of this module instead of ``dtype.kind``.
"""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

from sgsdump.errors import ConfigError, FormatError, hint

_NUMPY = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()
_FLOATS = (
    "bfloat16 float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz "
    "float8_e8m0fnu float6_e2m3fn float6_e3m2fn float4_e2m1fn"
).split()
_INTEGERS = "int1 int2 int4 uint1 uint2 uint4".split()
_COMPLEX = ["complex32"]
_BITS = {"float6_e2m3fn": 6, "float6_e3m2fn": 6, "float4_e2m1fn": 4}
_BITS |= {name: int(name[-1]) for name in _INTEGERS}


def _beyond(names: list[str]) -> dict[str, np.dtype]:
    """Return the named types that the installed ml_dtypes has."""
    return {name: np.dtype(getattr(ml_dtypes, name)) for name in names if hasattr(ml_dtypes, name)}


_FLOAT_TYPES, _INTEGER_TYPES, _COMPLEX_TYPES = map(_beyond, (_FLOATS, _INTEGERS, _COMPLEX))
_FLOAT_SET, _INTEGER_SET, _COMPLEX_SET = (frozenset(t.values()) for t in (_FLOAT_TYPES, _INTEGER_TYPES, _COMPLEX_TYPES))
BEYOND_NUMPY = MappingProxyType({**_FLOAT_TYPES, **_INTEGER_TYPES, **_COMPLEX_TYPES})
KNOWN = MappingProxyType({**{name: np.dtype(name) for name in _NUMPY}, **BEYOND_NUMPY})
_NAMES = {dtype: name for name, dtype in KNOWN.items()}


def is_float(dtype: Any) -> bool:
    """Return whether the elements are real floating-point numbers, of numpy or beyond."""
    dtype = np.dtype(dtype)
    return dtype.kind == "f" or dtype in _FLOAT_SET


def is_integer(dtype: Any) -> bool:
    """Return whether the elements are integers, of numpy or beyond; bool does not count."""
    dtype = np.dtype(dtype)
    return dtype.kind in "iu" or dtype in _INTEGER_SET


def is_complex(dtype: Any) -> bool:
    """Return whether the elements are complex numbers, of numpy or beyond."""
    dtype = np.dtype(dtype)
    return dtype.kind == "c" or dtype in _COMPLEX_SET


def is_number(dtype: Any) -> bool:
    """Return whether the elements are booleans, integers, floats or complex numbers; not text, objects or raw bytes."""
    dtype = np.dtype(dtype)
    return dtype.kind == "b" or is_integer(dtype) or is_float(dtype) or is_complex(dtype)


def name_of(dtype: Any) -> str:
    """Return the name of a type in either byte order, such as ``bfloat16`` or ``int4``; numpy name if not in KNOWN."""
    dtype = np.dtype(dtype)
    return _NAMES.get(dtype) or _NAMES.get(dtype.newbyteorder("=")) or dtype.name


def dtype_named(name: str) -> np.dtype:
    """Return the type with a name given by ``name_of``; raise ConfigError with the nearest names for any other text."""
    if not isinstance(name, str) or name not in KNOWN:
        raise ConfigError(f"unknown element type {str(name)[:60]!r}{hint(str(name)[:60], list(KNOWN))}")
    return KNOWN[name]


def bits(dtype: Any) -> int:
    """Return the bits of one element as packed in files: 4 for int4, which takes 8 in memory."""
    dtype = np.dtype(dtype)
    return _BITS.get(_NAMES.get(dtype, ""), dtype.itemsize * 8)


@lru_cache(maxsize=64)
def carrier(dtype: np.dtype) -> np.dtype:
    """Return the numpy type that stores an element in containers which support only numpy types.

    Integers beyond numpy become int8 or uint8 of their value. Other types beyond numpy become unsigned integers of
    their bits. numpy types stay as they are.
    """
    name = _NAMES.get(dtype)
    if name in _INTEGER_TYPES:
        return np.dtype(np.uint8 if name.startswith("u") else np.int8)
    if name in BEYOND_NUMPY:
        return np.dtype(f"<u{dtype.itemsize}")
    return dtype.newbyteorder("<")


def carried(array: np.ndarray) -> np.ndarray:
    """Return ``array`` in its carrier type and the same shape; a view if no value changes its representation."""
    to = carrier(array.dtype)
    if array.dtype in _INTEGER_SET or array.dtype not in _NAMES:
        return array.astype(to, copy=False)
    return array.view(to)


def restored(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Invert ``carried``; return a view if possible. ``array`` has the type ``carrier(dtype)``."""
    return array.astype(dtype, copy=False) if dtype in _INTEGER_SET else array.view(dtype)


def packed(array: np.ndarray) -> bytes:
    """Return the elements as files store them: little-endian, in C order.

    4-bit types take half a byte, the first element in the low half; an odd last element leaves the high half zero. 1-,
    2- and 6-bit types take one byte each.
    """
    flat = np.ascontiguousarray(array).reshape(-1)
    if bits(flat.dtype) != 4:
        return flat.astype(flat.dtype.newbyteorder("<"), copy=False).tobytes()
    halves = np.zeros(flat.size + flat.size % 2, np.uint8)
    halves[: flat.size] = flat.view(np.uint8) & 0x0F
    return (halves[0::2] | halves[1::2] << 4).tobytes()


def packed_size(dtype: np.dtype, count: int) -> int:
    """Return the number of bytes that ``packed`` gives for ``count`` elements."""
    return (count + 1) // 2 if bits(dtype) == 4 else count * dtype.itemsize


def unpacked(data: bytes | memoryview, dtype: np.dtype, count: int) -> np.ndarray:
    """Return ``count`` elements packed by ``packed``: a flat read-only view, or a new array for 4-bit types.

    Raises FormatError if ``data`` is too short.
    """
    if memoryview(data).nbytes < packed_size(dtype, count):
        raise FormatError(
            f"{count} elements of {name_of(dtype)} need {packed_size(dtype, count)} bytes, but the "
            f"data have only {memoryview(data).nbytes} bytes"
        )
    if bits(dtype) != 4:
        return np.frombuffer(data, dtype.newbyteorder("<"), count)
    halves = np.frombuffer(data, np.uint8, packed_size(dtype, count))
    nibbles = np.empty((halves.size, 2), np.uint8)
    np.bitwise_and(halves, 0x0F, out=nibbles[:, 0])
    np.right_shift(halves, 4, out=nibbles[:, 1])
    return nibbles.reshape(-1)[:count].view(dtype)


def as_array(values: Any) -> np.ndarray:
    """Return values as an array, without a copy if they are one.

    Parameters
    ----------
    values
        An array, a number, nested lists of numbers, a torch tensor on any device, or any object with ``__array__``.

    Raises
    ------
    TypeError, ValueError
        By numpy, if the values have no shape, such as lists of unequal length.
    """
    if isinstance(values, np.ndarray) and not isinstance(values, np.matrix):  # a matrix always keeps two axes
        return values
    if callable(detach := getattr(values, "detach", None)):
        return _of_torch(detach())
    return np.asarray(values)


def _of_torch(tensor: Any) -> np.ndarray:
    """Return the values of a torch tensor; types that numpy lacks, such as bfloat16, pass exactly through float32."""
    tensor = tensor.cpu().resolve_conj().resolve_neg()
    dtype = BEYOND_NUMPY.get(str(tensor.dtype).removeprefix("torch."))
    array: np.ndarray = tensor.numpy() if dtype is None else tensor.float().numpy().astype(dtype)
    return array
