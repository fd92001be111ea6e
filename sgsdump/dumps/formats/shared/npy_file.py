r"""Reader and writer of numpy's .npy files, treated as untrusted input (specification: ``numpy.lib.format``).

Files are never unpickled. numpy's own parser reads the header, of at most 10 000 bytes. The declared size must fit the
file before memory is allocated. numpy stores extension types without their name (bfloat16 as ``V2``), so the writer
uses their carrier type (``sgsdump.tensors.dtypes``), and the caller of the reader must supply the element type.
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
# Most characters of a header without padding. 32 dimensions need less; numpy's parser takes quadratic time.
_MOST_TEXT = 1000
_KINDS = "biufcSUV"
_MOST_RANK, _MOST_BYTES = 32, 2**60
_READ_BYTES = 2**20


class Header(NamedTuple):
    """Facts of a .npy header: element type, shape, order and byte offset of the values."""

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
    """Parse the header of a file of ``size`` bytes; ``start`` holds its first HEAD_BYTES bytes, or all.

    Raises FormatError, prefixed with ``where``, if the header is damaged, declares more bytes than the file has, or
    describes elements other than plain numbers or text.
    """
    version = tuple(start[6:8])
    if not start.startswith(MAGIC) or len(start) < 12 or version not in ((1, 0), (2, 0)):
        raise FormatError(f"{where} is not a complete .npy file of format version 1 or 2")
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
            f"{where} declares {header.end - header.offset} bytes of values, but only "
            f"{size - header.offset} bytes follow"
        )
    return header


@lru_cache(maxsize=1024)
def _parsed(head: bytes) -> tuple[np.dtype, tuple[int, ...], bool]:
    read, begin = (npy.read_array_header_1_0, 10) if head[6] == 1 else (npy.read_array_header_2_0, 12)
    text = head[begin:].rstrip(b" \n")
    if len(text) > _MOST_TEXT:
        raise FormatError(
            f"has a .npy header of {len(text)} characters; the header of an array of plain numbers has at "
            f"most {_MOST_TEXT} characters"
        )
    try:
        with warnings.catch_warnings():
            # numpy warns about headers of Python 2 (numbers that end in L), Python about hostile ones
            warnings.simplefilter("ignore")
            shape, fortran, dtype = read(io.BytesIO(len(text).to_bytes(begin - 8, "little") + text), HEADER_BYTES)
    except Exception as error:
        # For a hostile header, numpy's parser may raise any exception.
        raise FormatError(f"has a damaged .npy header ({' '.join(str(error).split())[:80]})") from None
    if dtype.hasobject:
        raise NotATensor("holds Python objects, which are never loaded. Save plain numbers instead")
    if dtype.kind not in _KINDS or dtype.names or dtype.subdtype or not dtype.itemsize:
        raise NotATensor(f"holds elements of {str(dtype)[:80]}; only plain numbers are supported")
    if len(shape) > _MOST_RANK or any(type(size) is not int or size < 0 for size in shape):
        raise FormatError(f"has an impossible shape: {str(shape)[:80]}")
    if math.prod(size or 1 for size in shape) * dtype.itemsize > _MOST_BYTES:
        raise FormatError(f"declares a shape too large for any memory: {str(shape)[:80]}")
    return dtype, shape, bool(fortran)


def header_of(path: Path) -> tuple[Header, int]:
    """Return the header and the size of a file. Raises FormatError."""
    with reading(path), open_file(path, buffering=0) as file:
        size, start = os.fstat(file.fileno()).st_size, file.read(_USUAL_BYTES)
        if int.from_bytes(start[8:10], "little") > _USUAL_BYTES - 12 or start[6:7] == b"\2":
            start += file.read(HEAD_BYTES - _USUAL_BYTES)
        return parse_header(start, size, path), size


def check_type(header: Header, dtype: np.dtype, where: object) -> None:
    """Raise FormatError if a file with this header cannot hold values of ``dtype``."""
    if header.dtype.newbyteorder("=") == carrier(dtype).newbyteorder("="):
        return
    # np.save stores extension types as raw bytes (V2)
    if header.dtype.kind == "V" and header.dtype.itemsize == dtype.itemsize and carrier(dtype) != dtype:
        return
    raise FormatError(f"{where} holds values of type {name_of(header.dtype)}, but type {name_of(dtype)} is expected")


def shaped(flat: np.ndarray, header: Header, dtype: np.dtype) -> np.ndarray:
    """Return the stored values in their shape and element type."""
    array = flat.reshape(header.shape, order="F" if header.fortran else "C")
    if dtype == header.dtype:
        return array
    if header.dtype.kind == "V":
        return array.view(dtype)
    as_carrier = array if array.dtype == carrier(dtype) else in_memory(array).astype(carrier(dtype))
    return restored(in_memory(as_carrier) if bits(dtype) < 8 else as_carrier, dtype)


def load(source: Source, header: Header, dtype: np.dtype) -> np.ndarray:
    """Load the values of a .npy file: large ones are mapped, small ones are read so that no file stays open.

    Raises FileChanged if the file has changed since its header was read.
    """
    size = header.end - header.offset
    try:
        if size < _READ_BYTES:
            flat = source.read(header.offset, size).view(header.dtype)
            flat.flags.writeable = False
        else:
            flat = view(source, header.dtype, header.elements, header.offset)
        return shaped(flat, header, dtype)
    except (ValueError, MemoryError) as error:  # numpy before 2 accepts strings of negative size
        raise FormatError(f"cannot read {source.path}: {error}") from None


def tensor_of(path: Path, header: Header, info: TensorInfo) -> Tensor:
    """Return a tensor with the values of a .npy file; the caller has checked the type with ``check_type``."""
    return Tensor(info, partial(load, source_of(path), header, info.dtype))


def plain_tensor(path: Path, name: str, notes: list[str]) -> Tensor:
    """Return the tensor of a .npy file without a manifest; note trailing bytes. Raises FormatError."""
    header, size = header_of(path)
    check_plain(header, path)
    if size > header.end:
        notes.append(f"{path} has {size - header.end} bytes more than its header declares")
    return tensor_of(path, header, TensorInfo(name, header.shape, header.dtype))


def check_plain(header: Header, where: object) -> None:
    """Raise FormatError if the file does not tell the element type."""
    if header.dtype.kind == "V":
        raise FormatError(
            f"the elements of {where} are stored as {header.dtype.itemsize} raw bytes each. numpy "
            "saves bfloat16 and similar types in this form; the file does not name the type"
        )


def write(file: IO[bytes], array: np.ndarray) -> None:
    """Write an array in its carrier type, little-endian and in C order, as version 1 of the format."""
    is_as_it_lies = array.flags.c_contiguous and array.dtype.isnative
    carrying = np.asarray(carried(array if is_as_it_lies else in_memory(array)), order="C")
    npy.write_array_header_1_0(file, npy.header_data_from_array_1_0(carrying))
    write_array(file, carrying)


def save(path: Path, array: np.ndarray) -> None:
    """Write ``array`` to a new file at ``path``. The caller handles OSError."""
    with open(path, "wb") as file:
        write(file, array)


def save_bytes(path: Path, data: bytes) -> None:
    """Write bytes to a new file at ``path``. The caller handles OSError."""
    with open(path, "wb") as file:
        file.write(data)


def in_shape(tensor: Tensor) -> np.ndarray:
    """Return all stored values in the tensor's shape, or flat if the buffer is larger than the shape."""
    array, shape = tensor.raw_view(), tensor.info.shape
    return array.reshape(shape if shape is not None and math.prod(shape) == array.size else -1)
