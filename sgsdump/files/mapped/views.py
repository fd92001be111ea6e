"""Files mapped into memory: views of their bytes that cost nothing until read, and no memory once they are gone.

A page that was read stays in the process's memory as long as the file is mapped. So that a walk over a dump larger
than the memory keeps one tensor at a time, the pages of a view are let go when its last user is gone; reading them
again is a matter of the system's file cache.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import open_file

LET_GO = getattr(mmap, "MADV_DONTNEED", None)
FEW = 1 << 16  # bytes that are not worth a call of the system
_AROUND = 2 << 20  # the system maps up to so much around a page that is asked for


class MappedFile(mmap.mmap):
    """A mapping that remembers the file's path, None where it has none, its identity (device, inode, size, mtime) when
    it was opened, and where in memory it begins."""

    path: Path | None
    identity: tuple[int, ...]
    address: int


def map_file(path: Path) -> mmap.mmap:
    """A file mapped read-only. Raises FormatError when it is empty or cannot be read."""
    try:
        with open_file(path) as file:
            if not os.fstat(file.fileno()).st_size:
                raise ValueError("cannot mmap an empty file")
            return map_open(file.fileno(), Path(path).absolute())
    except (OSError, ValueError) as error:
        raise FormatError(f"cannot read {path}: {error}") from None


def map_open(descriptor: int, path: Path | None = None) -> MappedFile:
    """An open file that holds something, mapped read-only. ``path``: where it is found again."""
    data = MappedFile(descriptor, 0, access=mmap.ACCESS_READ)
    data.path, data.identity = path, identity(os.fstat(descriptor))
    data.address = address_of(np.frombuffer(data, np.uint8))
    return data


def view(data: mmap.mmap, dtype: np.dtype, count: int, offset: int) -> np.ndarray:
    """``count`` elements at byte ``offset``: flat, read-only, not copied. Raises ValueError beyond the end."""
    array = np.frombuffer(data, dtype, count, offset)
    if LET_GO is not None and array.nbytes >= mmap.PAGESIZE:
        start = offset - offset % mmap.PAGESIZE
        # Only a page table entry goes: another view of the same page finds it again, so nothing can be lost.
        end = _End(array, _let_view_go)
        end.data, end.start, end.size = data, start, offset + array.nbytes - start
        _ENDS[id(end)] = end
    return array


class _End(weakref.ref):
    """A view's end, and the pages that go with it; ``weakref.finalize`` does as much in five times the time."""

    __slots__ = ("data", "size", "start")
    data: mmap.mmap
    start: int
    size: int


_ENDS: dict[int, _End] = {}


def _let_view_go(end: _End) -> None:
    del _ENDS[id(end)]
    advise(end.data, LET_GO, end.start, end.size)


def loader(data: mmap.mmap, dtype: np.dtype, count: int, offset: int) -> Callable[[], np.ndarray]:
    """``view`` to be called later: the ``load`` of a Tensor whose values lie in a mapped file."""
    return partial(view, data, dtype, count, offset)


def let_bytes_go(data: bytes | mmap.mmap, start: int, end: int) -> None:
    """Keep a part of a mapped file in memory no longer; the system's file cache has it when it is asked for again.
    Less than a page is not worth the call."""
    if isinstance(data, mmap.mmap) and end - start >= mmap.PAGESIZE:
        start, end = max(0, start - _AROUND), min(len(data), end + _AROUND)
        advise(data, LET_GO, start, end - start)


def let_go(array: np.ndarray) -> None:
    """Give back the pages of a view of a mapped file that others may still hold; what is read again costs no more than
    finding it in the system's file cache."""
    data = file_of(array) if array.nbytes > FEW else None
    if data is None:  # what others mapped may hold changes of theirs, which would be lost
        return
    reach = [(size - 1) * stride for size, stride in zip(array.shape, array.strides)]
    first = address_of(array) - data.address + sum(step for step in reach if step < 0)
    advise(data, LET_GO, first, sum(map(abs, reach)) + array.itemsize)


def identity(status: os.stat_result) -> tuple[int, ...]:
    """What tells that a file is the one it was."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def advise(data: mmap.mmap | None, advice: int | None, offset: int, size: int) -> None:
    """Advise the system on the pages of some bytes; nothing where there is no mapping, or no such advice."""
    if data is None or advice is None:
        return
    start = offset - offset % mmap.PAGESIZE
    with suppress(OSError):
        data.madvise(advice, start, offset + size - start)


def address_of(array: np.ndarray) -> int:
    """Where in memory an array begins."""
    address: int = array.__array_interface__["data"][0]
    return address


def mapping_of(array: np.ndarray) -> mmap.mmap | None:
    """The mapped file that an array is a view of; None for one in memory."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, mmap.mmap) else None


def file_of(array: np.ndarray) -> MappedFile | None:
    """The file that an array is a view of; None for one in memory, and for what others mapped."""
    data = mapping_of(array)
    return data if isinstance(data, MappedFile) else None
