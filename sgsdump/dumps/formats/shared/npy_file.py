r"""The .npy file of numpy (``numpy.lib.format`` is its specification), read as untrusted input.

Never unpickled, its header is read by numpy's own parser at most 10 000 bytes long, and the size it declares must be
there before anything is allocated. numpy writes no type for elements beyond its own (bfloat16 comes as ``V2``), so
they are written in their carrier type (``sgsdump.tensors.dtypes``), and the caller that knows the file name must also
supply the element type.
"""

from __future__ import annotations

import io
import math
import os
import warnings
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.lib import format as npy

from sgsdump.errors import FormatError, NotATensor
from sgsdump.files.bounded_read import open_file, reading
from sgsdump.files.mapped import Source, in_memory, source_of, view, write_array
from sgsdump.tensors.dtypes import bits, carried, carrier, name_of, restored
from sgsdump.tensors.tensor import Tensor, TensorInfo

MAGIC = b"\x93NUMPY"
HEADER_BYTES = 10_000
HEAD_BYTES = HEADER_BYTES + 12
_USUAL_BYTES = 512
# Without its padding; 32 dimensions need less. numpy's parser takes the square of it.
_MOST_TEXT = 1000
_KINDS = "biufcSUV"
_MOST_RANK, _MOST_BYTES = 32, 2**60
_READ_BYTES = 2**20


class Header(NamedTuple):
    """The facts of a .npy header: type, shape and order of the values, and where they begin."""

    dtype: np.dtype
    shape: tuple[int, ...]
    fortran: bool
    offset: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def end(self) -> int:
        return self.offset + self.elements * self.dtype.itemsize


def parse_header(start: bytes, size: int, where: object) -> Header:
    """The header of a file of ``size`` bytes, of which ``start`` is the first HEAD_BYTES, or all.

    Raises FormatError, beginning with ``where``, when it is damaged, says more than the file holds, or describes what
    is not plain numbers or text.
    """
    version = tuple(start[6:8])
    if not start.startswith(MAGIC) or len(start) < 12 or version not in ((1, 0), (2, 0)):
        raise FormatError(f"{where} is not a whole .npy file of version 1 or 2")
    begin = 10 if version == (1, 0) else 12
    length = int.from_bytes(start[8:begin], "little")
    if len(start) < begin + length:
        raise FormatError(f"{where} is cut off in its .npy header")
    try:
        dtype, shape, fortran = _parsed(start[: begin + length])
    except FormatError as error:
        raise type(error)(f"{where} {error}") from None
    header = Header(dtype, shape, fortran, begin + length)
    if header.end > size:
        raise FormatError(
            f"{where} declares {header.end - header.offset} bytes of values, {size - header.offset} follow"
        )
    return header


@lru_cache(maxsize=1024)
def _parsed(head: bytes) -> tuple[np.dtype, tuple[int, ...], bool]:
    read, begin = (npy.read_array_header_1_0, 10) if head[6] == 1 else (npy.read_array_header_2_0, 12)
    text = head[begin:].rstrip(b" \n")
    if len(text) > _MOST_TEXT:
        raise FormatError(f"has a .npy header of {len(text)} characters, more than plain numbers need")
    try:
        with warnings.catch_warnings():
            # that Python 2 wrote it, so that its numbers end in L; what Python thinks of a hostile one
            warnings.simplefilter("ignore")
            shape, fortran, dtype = read(io.BytesIO(len(text).to_bytes(begin - 8, "little") + text), HEADER_BYTES)
    except Exception as error:
        # What numpy's parser raises for a hostile header is open-ended.
        raise FormatError(f"has a damaged .npy header ({' '.join(str(error).split())[:80]})") from None
    if dtype.hasobject:
        raise NotATensor("holds Python objects, which are never loaded; save numbers")
    if dtype.kind not in _KINDS or dtype.names or dtype.subdtype or not dtype.itemsize:
        raise NotATensor(f"holds elements of {str(dtype)[:80]}; only plain numbers are read")
    if len(shape) > _MOST_RANK or any(type(size) is not int or size < 0 for size in shape):
        raise FormatError(f"has no possible shape: {str(shape)[:80]}")
    if math.prod(size or 1 for size in shape) * dtype.itemsize > _MOST_BYTES:
        raise FormatError(f"declares a shape beyond any memory: {str(shape)[:80]}")
    return dtype, shape, bool(fortran)


def header_of(path: Path) -> tuple[Header, int]:
    """The header of a file and the file's size. Raises FormatError."""
    with reading(path), open_file(path, buffering=0) as file:
        size, start = os.fstat(file.fileno()).st_size, file.read(_USUAL_BYTES)
        if int.from_bytes(start[8:10], "little") > _USUAL_BYTES - 12 or start[6:7] == b"\2":
            start += file.read(HEAD_BYTES - _USUAL_BYTES)
        return parse_header(start, size, path), size


def check_type(header: Header, dtype: np.dtype, where: object) -> None:
    """Raises FormatError when values of ``dtype`` cannot be what a file says it holds."""
    if header.dtype.newbyteorder("=") == carrier(dtype).newbyteorder("="):
        return
    # numpy's own np.save of a type beyond numpy
    if header.dtype.kind == "V" and header.dtype.itemsize == dtype.itemsize and carrier(dtype) != dtype:
        return
    raise FormatError(f"{where} holds {name_of(header.dtype)}, not the {name_of(dtype)} it should")


def shaped(flat: np.ndarray, header: Header, dtype: np.dtype) -> np.ndarray:
    """Values as stored in a file, in their shape and type."""
    array = flat.reshape(header.shape, order="F" if header.fortran else "C")
    if dtype == header.dtype:
        return array
    if header.dtype.kind == "V":
        return array.view(dtype)
    as_carrier = array if array.dtype == carrier(dtype) else in_memory(array).astype(carrier(dtype))
    return restored(in_memory(as_carrier) if bits(dtype) < 8 else as_carrier, dtype)


def load(source: Source, header: Header, dtype: np.dtype) -> np.ndarray:
    """The values of a .npy file whose header is known: mapped, or read when small, so that no file stays open for
    them. Raises FileChanged when the file has changed since."""
    size = header.end - header.offset
    try:
        if size < _READ_BYTES:
            flat = source.read(header.offset, size).view(header.dtype)
            flat.flags.writeable = False
        else:
            flat = view(source, header.dtype, header.elements, header.offset)
        return shaped(flat, header, dtype)
    except (ValueError, MemoryError) as error:  # numpy before 2 has texts of less than no bytes
        raise FormatError(f"cannot read {source.path}: {error}") from None


def tensor_of(path: Path, header: Header, info: TensorInfo) -> Tensor:
    """A tensor whose values are those of a .npy file, of ``info.dtype`` (``check_type`` holds)."""
    return Tensor(info, partial(load, source_of(path), header, info.dtype))


def plain_tensor(path: Path, name: str, notes: list[str]) -> Tensor:
    """The tensor of a file that only itself describes. Raises FormatError; trailing bytes are noted."""
    header, size = header_of(path)
    check_plain(header, path)
    if size > header.end:
        notes.append(f"{path} has {size - header.end} bytes more than its header says")
    return tensor_of(path, header, TensorInfo(name, header.shape, header.dtype))


def check_plain(header: Header, where: object) -> None:
    """Raises FormatError when the type of the elements is not known."""
    if header.dtype.kind == "V":
        raise FormatError(
            f"{where} holds elements of {header.dtype.itemsize} raw bytes, as numpy saves bfloat16 and its like; "
            f"their type is not in the file"
        )


def write(file: IO[bytes], array: np.ndarray) -> None:
    """Write an array in C order and little-endian, in its carrier type; version 1 of the format."""
    is_as_it_lies = array.flags.c_contiguous and array.dtype.isnative
    carrying = np.asarray(carried(array if is_as_it_lies else in_memory(array)), order="C")
    npy.write_array_header_1_0(file, npy.header_data_from_array_1_0(carrying))
    write_array(file, carrying)


def save(path: Path, array: np.ndarray) -> None:
    """Write ``array`` to a new file at ``path``; OSError is the caller's, who writes the folder around it."""
    with open(path, "wb") as file:
        write(file, array)


def save_bytes(path: Path, data: bytes) -> None:
    """Write a new file beside the values, as ``save`` does."""
    with open(path, "wb") as file:
        file.write(data)


def in_shape(tensor: Tensor) -> np.ndarray:
    """All stored values of a tensor: in its shape when they fill it, else flat (a buffer larger than its shape)."""
    array, shape = tensor.raw_view(), tensor.info.shape
    return array.reshape(shape if shape is not None and math.prod(shape) == array.size else -1)
