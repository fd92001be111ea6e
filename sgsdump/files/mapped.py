"""Files mapped into memory: views of their bytes that cost nothing until read, and no memory once they are gone;
reading them through a descriptor and writing them on, without holding them.

A page that was read stays in the process's memory as long as the file is mapped. To keep one tensor at a time in a walk
over a dump larger than the memory, the pages of a view are let go when its last user is gone; reading them again is a
matter of the system's file cache.
"""

from __future__ import annotations

import errno
import io
import mmap
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import open_file, reading

LET_GO = getattr(mmap, "MADV_DONTNEED", None)
FEW = 1 << 16  # bytes that are not worth a call of the system
KEPT = 8  # files that a thread keeps open
_AROUND = 2 << 20  # the system maps up to so much around a page that is asked for
_PIECE = 8 << 20
_ORDERED = 1 << 20
_FILL = 22 if sys.platform == "linux" else None  # MADV_POPULATE_READ; kernels before 5.14 refuse it
_NPY = b"\x93NUMPY"
_LOCAL = threading.local()


class MappedFile(mmap.mmap):
    """A mapping that remembers the file's path, None where it has none, its identity (device, inode, size, mtime) when
    it was opened, and where in memory it begins."""

    path: Path | None
    identity: tuple[int, ...]
    address: int


def map_file(path: Path) -> mmap.mmap:
    """A file mapped read-only. Raises FormatError when it is empty or cannot be read."""
    try:
        with reading(path), open_file(path) as file:
            if not os.fstat(file.fileno()).st_size:
                raise ValueError("it is empty")
            return map_open(file.fileno(), Path(path).absolute())
    except ValueError as error:
        raise FormatError(f"cannot read {path}: {error}") from None


def map_open(descriptor: int, path: Path | None = None) -> MappedFile:
    """An open file that holds something, mapped read-only. ``path``: where it is found again."""
    data = MappedFile(descriptor, 0, access=mmap.ACCESS_READ)
    data.path, data.identity = path, identity(os.fstat(descriptor))
    data.address = address_of(np.frombuffer(data, np.uint8))
    return data


def load_npy(path: Path) -> np.ndarray:
    """The array of a whole .npy file, of any dtype but objects, mapped read-only.

    Raises OSError when it cannot be read, ValueError, one line, for another or a damaged file.
    """
    with open_file(path) as file:
        head = file.read(len(_NPY))
    if head.startswith(b"PK"):
        raise ValueError("it is an archive of several arrays; give one .npy file")
    if head != _NPY:
        raise ValueError("it is not an .npy file" if head else "it is empty")
    try:
        with np.errstate(all="ignore"):
            array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except MemoryError:
        raise ValueError("its header asks for more memory than there is") from None
    except Exception as error:  # a damaged header makes numpy raise anything: SyntaxError, TokenError, OverflowError
        raise ValueError(" ".join(str(error).split())[:150] or type(error).__name__) from None
    if not isinstance(array, np.ndarray):
        raise ValueError("it holds no array")
    return array


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
    """Identifies a file: device, inode, size, mtime."""
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


class OpenFile(NamedTuple):
    """The descriptor of a mapped file, and where in memory its mapping begins."""

    descriptor: int
    address: int


def opened(array: np.ndarray) -> OpenFile | None:
    """The mapped file that an array of some size is a view of, opened to be read, which takes less time than having its
    pages mapped; within ``kept_open``. None for an array in memory, a small one, and where the file at this path is
    another by now."""
    data = file_of(array) if array.nbytes > FEW and hasattr(os, "pread") else None
    return None if data is None else _kept(_LOCAL.kept, data)


@contextmanager
def kept_open() -> Iterator[None]:
    """The KEPT files that this thread ``opened`` last stay open to the end of the outermost such block: many views are
    of one file. They are few: a dump of a file per tensor would use up what a process may open."""
    if hasattr(_LOCAL, "kept"):
        yield
        return
    _LOCAL.kept = {}
    try:
        yield
    finally:
        for file in _LOCAL.kept.values():
            _close(file)
        del _LOCAL.kept


def _kept(files: dict[MappedFile, OpenFile | None], data: MappedFile) -> OpenFile | None:
    """A mapped file as it is kept open, from now on the last of them."""
    file = files[data] = files.pop(data) if data in files else _open_again(data)
    if len(files) > KEPT:
        _close(files.pop(next(iter(files))))
    return file


def _close(file: OpenFile | None) -> None:
    if file:
        os.close(file.descriptor)


def _open_again(data: MappedFile) -> OpenFile | None:
    if data.path is None:
        return None
    try:
        descriptor = os.open(data.path, os.O_RDONLY)
    except OSError:
        return None
    if identity(os.fstat(descriptor)) == data.identity:
        return OpenFile(descriptor, data.address)
    os.close(descriptor)
    return None


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
            remaining = size - os.sendfile(file.fileno(), source.fileno(), offset, size)
            if remaining == size:
                return False
            while remaining:
                sent = os.sendfile(file.fileno(), source.fileno(), offset + size - remaining, remaining)
                if not sent:
                    raise OSError(f"{data.path} became shorter while it was read")
                remaining -= sent
            return True
    except (FileNotFoundError, io.UnsupportedOperation, AttributeError):
        return False
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOSYS, errno.EACCES):
            return False
        raise
