"""Pickles of plain data, read without running anything the file brings.

Known: None, bool, int, float, str, bytes, list, tuple, dict, set, OrderedDict, and numpy arrays, scalars and dtypes of
numbers. Every other name in the file is refused before it is looked up; numpy's own constructors are never called with
what the file says, so no size in it can ask for more memory than the file has bytes.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from sgsdump.errors import FormatError


def loads(data: bytes, where: str) -> Any:
    """The pickled object; arrays as ``PlainArray``. Raises FormatError, beginning with ``where``, for a damaged pickle
    and for one that names anything but plain data."""
    try:
        _scan(data)
        return _Unpickler(io.BytesIO(data)).load()
    except FormatError as error:
        raise FormatError(f"{where}: {error}") from error
    except Exception as error:
        # what a damaged pickle can raise is open-ended; nothing of the file's own has been run
        raise FormatError(f"{where}: damaged pickle ({type(error).__name__}: {str(error)[:100]})") from error


class PlainArray:
    """Stands in for numpy.ndarray while unpickling; ``array`` is read-only."""

    array: np.ndarray = np.zeros(0)

    def __setstate__(self, state: Any) -> None:
        _version, shape, dtype, fortran, data = state
        self.array = _array(data, dtype, shape, "F" if fortran else "C")


class _PlainDtype:
    """Stands in for numpy.dtype: a kind and size as ``f8``, and the byte order that its state brings."""

    def __init__(self, code: Any, *_flags: Any):
        self.dtype = np.dtype(code) if isinstance(code, str) and len(code) <= 4 else None
        if self.dtype is None or self.dtype.kind not in "biuf":
            raise FormatError(f"the pickle holds an array of {str(code)[:40]!r}, only arrays of numbers are read")

    def __setstate__(self, state: Any) -> None:
        assert self.dtype is not None
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


def _array(data: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    if not isinstance(dtype, _PlainDtype) or not isinstance(data, (bytes, bytearray)):
        raise FormatError("the pickle holds an array that is not of plain numbers")
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if any(type(size) is not int or size < 0 for size in sizes) or order not in ("C", "F"):
        raise FormatError("the pickle holds an array without a proper shape")
    assert dtype.dtype is not None
    if math.prod(sizes) * dtype.dtype.itemsize != len(data):
        raise FormatError(f"the pickle holds an array of shape {list(sizes)} but {len(data)} bytes for it")
    return np.frombuffer(data, dtype.dtype).reshape(sizes, order=order)  # type: ignore[call-overload]


def _reconstruct(_cls: Any, _shape: Any, _code: Any) -> PlainArray:
    return PlainArray()


def _frombuffer(data: Any, dtype: Any, shape: Any, order: Any) -> PlainArray:
    plain = PlainArray()
    plain.array = _array(data, dtype, shape, order)
    return plain


def _scalar(dtype: Any, data: Any) -> Any:
    return _array(data, dtype, (), "C").item()


def _encode(text: Any, encoding: Any) -> bytes:
    if encoding != "latin1" or not isinstance(text, str):
        raise FormatError("the pickle holds bytes in an unknown encoding")
    return text.encode("latin1")


class _Function:
    """A function that a pickle may call and nothing else: a state that it brings for it would be set on our own."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]):
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise FormatError("refused: the pickle wants to change a function")


_KNOWN: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("numpy", "ndarray"): PlainArray,
    ("numpy", "dtype"): _PlainDtype,
    ("_codecs", "encode"): _Function(_encode),
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Function(_reconstruct) for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _Function(_scalar) for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _Function(_frombuffer) for core in ("core", "_core")},
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise FormatError(f"refused: the pickle wants {module[:80]}.{name[:80]}, which is not plain data")
        return _KNOWN[module, name]

    def persistent_load(self, _pid: Any) -> Any:
        raise FormatError("refused: the pickle points at objects outside of itself")


def _scan(data: bytes) -> None:
    """Walk all opcodes first: a truncated argument raises ValueError, and a memo index beyond the number of opcodes
    (which would make the unpickler reserve memory for all below it) is refused."""
    for count, (opcode, argument, _position) in enumerate(pickletools.genops(data)):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and isinstance(argument, int) and argument > count:
            raise FormatError("damaged pickle (a memo index out of range)")
