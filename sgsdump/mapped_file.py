"""Files mapped into memory: views of their bytes that cost nothing until read, and no memory once they are gone.

A page that was read stays in the process's memory as long as the file is mapped. So that a walk over a dump larger
than the memory keeps one tensor at a time, the pages of a view are let go when its last user is gone; reading them
again is a matter of the system's file cache.
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from sgsdump.errors import FormatError

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
