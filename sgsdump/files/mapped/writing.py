"""Writing arrays of any size through little memory, views of mapped files above all."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import IO

import numpy as np

from sgsdump.files.mapped.views import FEW, LET_GO, MappedFile, address_of, advise, identity, mapping_of

_PIECE = 8 << 20
_ORDERED = 1 << 20
_FILL = 22 if sys.platform == "linux" else None  # MADV_POPULATE_READ; kernels before 5.14 refuse it


def write_array(file: IO[bytes], array: np.ndarray) -> None:
    """Write the bytes of an array, in C order. Of a view of a mapped file the system copies them from file to file,
    without a process's memory between, in the time of a plain copy. Where it cannot, they are written a piece at a
    time: the pages of each are filled in one go (a third faster than one by one) and let go when it is written, so that
    memory holds one piece of a tensor of any size. A transposed array is put in order a piece at a time too, small
    enough to be written from the processor's cache."""
    if not array.flags.c_contiguous:
        room = np.empty(min(array.nbytes, _ORDERED), np.uint8)
        for size in _ordered(array, room):
            file.write(room[:size].data)
        return
    flat = array.reshape(-1).view(np.uint8)
    data = mapping_of(array) if flat.nbytes > FEW else None
    first = address_of(flat) - address_of(np.frombuffer(data, np.uint8)) if data is not None else 0
    if isinstance(data, MappedFile) and _sent(file, data, first, flat.nbytes):
        return
    for start in range(0, flat.nbytes, _PIECE):
        piece = flat[start : start + _PIECE]
        advise(data, _FILL, first + start, piece.nbytes)
        file.write(piece.data)
        advise(data, LET_GO, first + start, piece.nbytes)


def _ordered(array: np.ndarray, room: np.ndarray) -> Iterator[int]:
    """The bytes of an array in C order, a piece after the other at the beginning of ``room``; how many each time."""
    rows = len(array) if array.nbytes <= room.nbytes else room.nbytes * len(array) // array.nbytes
    if not rows:
        for row in array:
            yield from _ordered(row, room)
        return
    for start in range(0, len(array), rows):
        piece = array[start : start + rows]
        np.copyto(room[: piece.nbytes].view(piece.dtype).reshape(piece.shape), piece)
        yield piece.nbytes


def _sent(file: IO[bytes], data: MappedFile, offset: int, size: int) -> bool:
    """Have the system append a part of the mapped file to ``file``; False when nothing was written because it cannot.

    The mapped file is opened again by its name: one that stays open for each file of a folder would be too many.
    """
    if data.path is None or not sys.platform.startswith("linux"):
        return False
    try:
        with open(data.path, "rb") as source:
            if identity(os.fstat(source.fileno())) != data.identity:
                return False
            file.flush()
            left = size - os.sendfile(file.fileno(), source.fileno(), offset, size)
            if left == size:
                return False
            while left:
                sent = os.sendfile(file.fileno(), source.fileno(), offset + size - left, left)
                if not sent:
                    raise OSError(f"{data.path} became shorter while it was read")
                left -= sent
            return True
    except (FileNotFoundError, io.UnsupportedOperation, AttributeError):
        return False
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOSYS, errno.EACCES):
            return False
        raise
