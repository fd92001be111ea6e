"""Files mapped into memory: views of their bytes that cost nothing until read, and no memory once they are gone.

A page that was read stays in the process's memory as long as the file is mapped. So that a walk over a dump larger
than the memory keeps one tensor at a time, the pages of a view are let go when its last user is gone; reading them
again is a matter of the system's file cache.
"""

from __future__ import annotations

import mmap
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np

from sgsdump.errors import FormatError

_PIECE = 8 << 20
_FEW = 1 << 16
_FILL = 22 if sys.platform == "linux" else None  # MADV_POPULATE_READ; kernels before 5.14 refuse it
_LET_GO = getattr(mmap, "MADV_DONTNEED", None)


def map_file(path: Path) -> mmap.mmap:
    """A file mapped read-only. Raises FormatError when it is empty or cannot be read."""
    try:
        with open(path, "rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise FormatError(f"cannot read {path}: {error}") from None


def view(data: mmap.mmap, dtype: np.dtype, count: int, offset: int) -> np.ndarray:
    """``count`` elements at byte ``offset``: flat, read-only, not copied. Raises ValueError beyond the end."""
    array = np.frombuffer(data, dtype, count, offset)
    if _LET_GO is not None and array.nbytes >= mmap.PAGESIZE:
        start = offset - offset % mmap.PAGESIZE
        # Only a page table entry goes: another view of the same page finds it again, so nothing can be lost.
        weakref.finalize(array, data.madvise, _LET_GO, start, offset + array.nbytes - start).atexit = False
    return array


def loader(data: mmap.mmap, dtype: np.dtype, count: int, offset: int) -> Callable[[], np.ndarray]:
    """``view`` to be called later: the ``load`` of a Tensor whose values lie in a mapped file."""
    return partial(view, data, dtype, count, offset)


def write(file: IO[bytes], array: np.ndarray) -> None:
    """Write the bytes of a C-contiguous array, a piece at a time. Of a view of a mapped file, the pages of each piece
    are filled in one go (a third faster than one by one), and let go when it is written, so that memory holds one piece
    of a tensor of any size."""
    flat = array.reshape(-1).view(np.uint8)
    data = _mapping(array) if flat.nbytes > _FEW else None
    first = flat.ctypes.data - np.frombuffer(data, np.uint8).ctypes.data if data is not None else 0
    for start in range(0, flat.nbytes, _PIECE):
        piece = flat[start : start + _PIECE]
        _advise(data, _FILL, first + start, piece.nbytes)
        file.write(piece.data)
        _advise(data, _LET_GO, first + start, piece.nbytes)


def _advise(data: mmap.mmap | None, advice: int | None, offset: int, size: int) -> None:
    if data is None or advice is None:
        return
    start = offset - offset % mmap.PAGESIZE
    with suppress(OSError):
        data.madvise(advice, start, offset + size - start)


def _mapping(array: np.ndarray) -> mmap.mmap | None:
    """The mapped file that an array is a view of; None for one in memory."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, mmap.mmap) else None
