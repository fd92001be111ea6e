"""Memory-mapped files: views of their bytes, reads through a descriptor, and copies to other files.

A view costs nothing until it is read. A page that was read stays in the process's memory as long as the file is mapped.
When the last user of a view is gone, its pages are released. A walk over a dump larger than memory therefore keeps one
tensor at a time; later reads come from the system's file cache.

A view depends on its file. If another program truncates the file, the next access to the view ends the process by
SIGBUS. If another program rewrites the file, the view shows the new values. This package therefore reads views through
a descriptor (``in_memory``), which turns both cases into errors. Users get copies of all but the largest tensors. Each
access compares device, inode, size and mtime of the file with those at opening. Within ``kept_open``, consecutive small
tensors are read in one call and checked once.
"""

from __future__ import annotations

import errno
import io
import math
import mmap
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from sgsdump.errors import FileChanged, FormatError
from sgsdump.files import process
from sgsdump.files.bounded_read import open_file, reading

LET_GO = getattr(mmap, "MADV_DONTNEED", None)
COPIED = 64 << 20  # bytes; users get a copy of views up to this size
FEW = 1 << 16  # bytes; smaller parts are not worth a system call
KEPT = 8  # files that a thread keeps open
_AT_ONCE = 1 << 18  # bytes read at once from a file kept open when a small part is requested
_AROUND = 2 << 20  # bytes; the system maps up to this much around a requested page
_PIECE = 8 << 20
_ORDERED = 1 << 20
_NPY = b"\x93NUMPY"
MAPPED = 8  # files that stay mapped without a view
_FEW_PAGES = 1 << 20  # bytes; up to this size reading everything is faster than value by value
_LOCAL = threading.local()
_NOTHING = np.empty(0, np.uint8)
_MAPPING = threading.Lock()
_MAPPED: weakref.WeakKeyDictionary[Source, None] = weakref.WeakKeyDictionary()


class Source:
    """A file whose values are read on request, with its path and its identity at opening.

    ``path`` is None for a file without a name, which no other program can change. The file is mapped again when needed.
    Mapped files count towards the system's limit of open files. Only the last MAPPED files and files with a view
    therefore stay mapped.
    """

    __slots__ = ("__weakref__", "_kept", "_mapped", "_name", "identity", "key", "path")

    def __init__(self, path: Path | None, identity: tuple[int, ...]):
        self.path, self.identity = path, identity
        self._name = str(path)
        self.key = (self._name, identity)
        self._kept: MappedFile | None = None
        self._mapped: Callable[[], MappedFile | None] = lambda: None

    def check(self) -> None:
        """Raise FileChanged if the file at the path was replaced or changed since it was opened."""
        if self.path is None:
            return
        try:
            now = os.stat(self._name)  # noqa: PTH116 (half the time of Path.stat; called at every access)
        except OSError as error:
            raise _changed(self.path, error.strerror) from None
        if identity(now) != self.identity:
            raise _changed(self.path)

    def open(self) -> int:
        """Return a descriptor of the file. Raises FileChanged if the file was replaced."""
        assert self.path is not None, "a file without a name cannot be opened again"
        try:
            descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise FormatError(f"cannot read {self.path}: {error.strerror}") from None
            raise _changed(self.path, error.strerror) from None
        if identity(os.fstat(descriptor)) != self.identity:
            os.close(descriptor)
            raise _changed(self.path)
        return descriptor

    def data(self) -> MappedFile:
        """Return the mapped file. Raises FileChanged."""
        files = getattr(_LOCAL, "kept", None)
        if files is None or self.path is None:
            self.check()
        elif self.key not in files:
            _kept(files, self)  # the view will be read and checked through this descriptor
        data = self._mapped()
        if data is None or data.closed:  # closed by a ``with`` block that read only the header
            descriptor = self.open()
            try:
                data = self.map(descriptor)
            finally:
                os.close(descriptor)
        return data

    def map(self, descriptor: int) -> MappedFile:
        """Map the open file and keep it mapped for a while."""
        data = MappedFile(descriptor, 0, access=mmap.ACCESS_READ)
        data.path, data.identity, data._source = self.path, self.identity, weakref.ref(self)
        data.address = address_of(np.frombuffer(data, np.uint8))
        self.keep(data)
        return data

    def keep(self, data: MappedFile) -> None:
        """Keep the file mapped for a while."""
        self._mapped = weakref.ref(data)
        if self.path is None:
            self._kept = data
            return
        with _MAPPING:
            _MAPPED.pop(self, None)
            _MAPPED[self] = None
            self._kept = data
            oldest = next(iter(_MAPPED)) if len(_MAPPED) > MAPPED else None
            if oldest is not None:
                del _MAPPED[oldest]
                oldest._kept = None

    def read(self, offset: int, size: int) -> np.ndarray:
        """Read bytes of the file into memory. Raises FileChanged if the file changed before or during the read."""
        if self.path is None or not hasattr(os, "pread"):
            return np.frombuffer(self.data(), np.uint8, size, offset)
        files = getattr(_LOCAL, "kept", None)
        if files is not None:
            file = _kept(files, self)
            if size <= FEW:
                return self._read_around(file, offset, size)
            return self._read(file.descriptor, offset, size)
        descriptor = self.open()
        try:
            return self._read(descriptor, offset, size)
        finally:
            os.close(descriptor)

    def _read_around(self, file: _KeptFile, offset: int, size: int) -> np.ndarray:
        """Read a small part; if parts are requested in order, read ahead, which costs less than another system call."""
        start = offset - file.start
        if start < 0 or start + size > len(file.bytes_read):
            follows = 0 <= start <= len(file.bytes_read) + FEW
            at_once = max(size, min(_AT_ONCE, len(self) - offset)) if follows else size
            file.bytes_read, file.start, start = self._read(file.descriptor, offset, at_once), offset, 0
        return file.bytes_read[start : start + size]

    def _read(self, descriptor: int, offset: int, size: int) -> np.ndarray:
        bytes_read = np.empty(size, np.uint8)
        done = 0
        while done < size and (count := read_into(descriptor, bytes_read[done:].data, offset + done)):
            done += count
        if done < size or identity(os.fstat(descriptor)) != self.identity:
            raise _changed(self.path)
        return bytes_read

    def __len__(self) -> int:
        return self.identity[2]

    def __getitem__(self, part: slice) -> bytes:
        """Read bytes into memory; the interface is that of a mapped file."""
        start, stop, _ = part.indices(len(self))
        return self.read(start, max(0, stop - start)).tobytes()


def read_into(descriptor: int, buffer: memoryview, offset: int) -> int:
    """Read from ``offset`` into the buffer and return the number of bytes, 0 at the end of the file.

    A descriptor belongs to one thread: if the system cannot read at an offset (Windows), the descriptor's position
    moves.
    """
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [buffer], offset)
    os.lseek(descriptor, offset, os.SEEK_SET)
    data = os.read(descriptor, len(buffer))
    buffer[: len(data)] = data
    return len(data)


class _KeptFile:
    """A file that a thread keeps open, with the bytes read last and their offset ``start``."""

    __slots__ = ("bytes_read", "descriptor", "start")

    def __init__(self, descriptor: int):
        self.descriptor, self.start, self.bytes_read = descriptor, 0, _NOTHING


class MappedFile(mmap.mmap):
    """A mapping with its file and its address in memory; the source keeps the mapping alive, not the reverse."""

    path: Path | None
    identity: tuple[int, ...]
    address: int
    _source: Callable[[], Source | None]

    @property
    def source(self) -> Source:
        source = self._source()
        if source is None:
            source = Source(self.path, self.identity)
            source.keep(self)
            self._source = weakref.ref(source)
        return source


def map_file(path: Path) -> MappedFile:
    """Map a file read-only. Raises FormatError if the file is empty or cannot be read."""
    try:
        with reading(path), open_file(path) as file:
            if not os.fstat(file.fileno()).st_size:
                raise ValueError("it is empty")
            return map_open(file.fileno(), Path(path).absolute())
    except ValueError as error:
        raise FormatError(f"cannot read {path}: {error}") from None


def map_open(descriptor: int, path: Path | None = None) -> MappedFile:
    """Map an open, non-empty file read-only; ``path`` is used to open it again."""
    return Source(path, identity(os.fstat(descriptor))).map(descriptor)


def load_npy(path: Path) -> np.ndarray:
    """Map the array of a .npy file read-only; any dtype except object.

    Raises OSError if the file cannot be read, and ValueError with one line for another format or a damaged file.
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
        raise ValueError("its header describes an array that does not fit into memory") from None
    except Exception as error:  # on a damaged header numpy raises SyntaxError, TokenError, OverflowError and others
        raise ValueError(" ".join(str(error).split())[:150] or type(error).__name__) from None
    if not isinstance(array, np.ndarray):
        raise ValueError("it does not hold an array")
    return array


def view(data: MappedFile | Source, dtype: np.dtype, count: int, offset: int) -> np.ndarray:
    """Return a flat read-only view of ``count`` elements at byte ``offset``.

    Raises ValueError beyond the end, and FileChanged if the file changed since it was opened.
    """
    if isinstance(data, Source):
        data = data.data()
    else:
        data.source.check()
    array = np.frombuffer(data, dtype, count, offset)
    if LET_GO is not None and array.nbytes > FEW:
        start = offset - offset % mmap.PAGESIZE
        # Only the page table entry is dropped: another view of the same page reloads it, so nothing is lost.
        end = _End(array, _let_view_go)
        end.data, end.start, end.size = data, start, offset + array.nbytes - start
        _ENDS[id(end)] = end
    return array


def in_memory(array: np.ndarray, most: float = math.inf) -> np.ndarray:
    """Return the array; read a view of a mapped file into memory, in the same order, if it has at most ``most`` bytes.

    Raises FileChanged if the file changed since it was opened.
    """
    data = file_of(array)
    return array if data is None or data.path is None or not hasattr(os, "preadv") else _read(array, data, most)


def _read(array: np.ndarray, data: MappedFile, most: float = math.inf) -> np.ndarray:
    if array.flags.c_contiguous:
        if array.nbytes > most:
            return array
        flat = data.source.read(address_of(array) - data.address, array.nbytes).view(array.dtype)
        flat.flags.writeable = False
        return flat.reshape(array.shape)
    first, size = _reach(array, data)
    start = first + sum((count - 1) * stride for count, stride in zip(array.shape, array.strides) if stride < 0)
    if size > most:
        return array
    copied = data.source.read(start, size if array.size else 0)
    copy: np.ndarray = np.ndarray(
        array.shape, array.dtype, copied.data, first - start if array.size else 0, array.strides
    )
    copy.flags.writeable = False
    return copy


def copied(array: np.ndarray) -> np.ndarray:
    """Return the form of a view for users: a copy up to COPIED bytes or within ``no_views``, otherwise the view."""
    return in_memory(array, COPIED if process.views_are_given else math.inf)


def source_of(path: Path | str) -> Source:
    """Return a file whose values are read later. Raises FormatError if the file does not exist."""
    with reading(path):
        return Source(Path(path).absolute(), identity(Path(path).stat()))


def picked(array: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return the values at flat indices (in C order); for a large view of a mapped file, read one by one."""
    data = file_of(array)
    if data is None or data.path is None or not hasattr(os, "preadv"):
        return _at(array, indices)
    if array.nbytes <= _FEW_PAGES:
        return _at(_read(array, data), indices)
    places = np.unravel_index(indices, array.shape)
    first, _ = _reach(array, data)
    offsets = first + sum(place * stride for place, stride in zip(places, array.strides))
    with kept_open():
        parts = [data.source.read(offset, array.itemsize) for offset in np.ravel(offsets).tolist()]
    return np.concatenate(parts).view(array.dtype).reshape(np.shape(indices))


def _at(array: np.ndarray, indices: np.ndarray) -> np.ndarray:
    chosen: np.ndarray = (
        array.reshape(-1)[indices] if array.flags.c_contiguous else array[np.unravel_index(indices, array.shape)]
    )
    return chosen


def _reach(array: np.ndarray, data: MappedFile) -> tuple[int, int]:
    """Return the offset of a view's first element in its mapped file, and the bytes between the view's ends."""
    reach = sum((count - 1) * abs(stride) for count, stride in zip(array.shape, array.strides))
    return address_of(array) - data.address, reach + array.itemsize


class _End(weakref.ref):
    """The end of a view's lifetime, which releases its pages; ``weakref.finalize`` takes five times as long."""

    __slots__ = ("data", "size", "start")
    data: MappedFile
    start: int
    size: int


_ENDS: dict[int, _End] = {}


def _let_view_go(end: _End) -> None:
    del _ENDS[id(end)]
    advise(end.data, LET_GO, end.start, end.size)


def loader(data: MappedFile, dtype: np.dtype, count: int, offset: int) -> Callable[[], np.ndarray]:
    """Return ``view`` as a deferred call: the ``load`` of a Tensor whose values are in a mapped file."""
    return partial(view, data.source, dtype, count, offset)


def let_bytes_go(data: bytes | mmap.mmap | Source, start: int, end: int) -> None:
    """Release the memory of a part of a mapped file; the system's file cache provides it on the next access.

    Less than a page is not worth the call.
    """
    if isinstance(data, mmap.mmap) and end - start >= mmap.PAGESIZE:
        start, end = max(0, start - _AROUND), min(len(data), end + _AROUND)
        advise(data, LET_GO, start, end - start)


def identity(status: os.stat_result) -> tuple[int, ...]:
    """Return device, inode, size and mtime, which identify a file's state."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _changed(path: Path | None, why: str | None = None) -> FileChanged:
    what = f"{path} has changed since it was opened{f' ({why})' if why else ''}"
    return FileChanged(f"{what}; if a run is writing it, open it again when it is complete")


def advise(data: mmap.mmap | None, advice: int | None, offset: int, size: int) -> None:
    """Call madvise on the pages of some bytes; do nothing without a mapping or without such advice."""
    if data is None or advice is None:
        return
    start = offset - offset % mmap.PAGESIZE
    with suppress(OSError):
        data.madvise(advice, start, offset + size - start)


def address_of(array: np.ndarray) -> int:
    """Return the address of the array's data."""
    address: int = array.__array_interface__["data"][0]
    return address


def mapping_of(array: np.ndarray) -> mmap.mmap | None:
    """Return the mapping that an array is a view of, or None for an array in memory."""
    base: object = array.base
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, mmap.mmap) else None


def file_of(array: np.ndarray) -> MappedFile | None:
    """Return the MappedFile that an array is a view of, or None for an array in memory or a foreign mapping."""
    data = mapping_of(array)
    return data if isinstance(data, MappedFile) else None


class OpenFile(NamedTuple):
    """Descriptor of a mapped file and the address of its mapping."""

    descriptor: int
    address: int
    source: Source

    def check(self) -> None:
        """Raise FileChanged if the file changed since it was opened."""
        if identity(os.fstat(self.descriptor)) != self.source.identity:
            raise _changed(self.source.path)


def opened(array: np.ndarray) -> OpenFile | None:
    """Open the mapped file of a view for reading, which is faster than page faults; valid within ``kept_open``.

    Returns None for an array in memory. Raises FileChanged if the file was replaced.
    """
    data = file_of(array) if hasattr(os, "pread") else None
    if data is None or data.path is None:
        return None
    return OpenFile(_kept(_LOCAL.kept, data.source).descriptor, data.address, data.source)


@contextmanager
def kept_open() -> Iterator[None]:
    """Keep the last KEPT files that this thread ``opened`` open until the outermost such block ends.

    Many views share one file. The number is small because a dump with one file per tensor would exhaust the process's
    file limit.
    """
    if hasattr(_LOCAL, "kept"):
        yield
        return
    _LOCAL.kept = {}
    try:
        yield
    finally:
        for file in _LOCAL.kept.values():
            os.close(file.descriptor)
        del _LOCAL.kept


def _kept(files: dict[Any, _KeptFile], source: Source) -> _KeptFile:
    """Return a file kept open, marked as used last."""
    file = files.pop(source.key, None)
    if file is None:
        file = _KeptFile(source.open())
        if len(files) == KEPT:
            os.close(files.pop(next(iter(files))).descriptor)
    files[source.key] = file
    return file


def write_array(file: IO[bytes], array: np.ndarray) -> None:
    """Write the bytes of an array in C order.

    For a view of a mapped file, the system copies the bytes from file to file, without process memory and in the time
    of a plain copy. If the system cannot, one piece at a time is written: its pages are read in one call (a third
    faster than page by page) and released after writing, so that memory holds one piece of a tensor of any size. A
    transposed array is also reordered piece by piece, in pieces small enough for the processor's cache.
    """
    if not array.flags.c_contiguous:
        array = in_memory(array)
        room = np.empty(min(array.nbytes, _ORDERED), np.uint8)
        for size in _ordered(array, room):
            file.write(room[:size].data)
        return
    flat = array.reshape(-1).view(np.uint8)
    data = file_of(flat) if flat.nbytes > FEW else None
    if data is not None and _sent(file, data, *_reach(flat, data)):
        return
    with kept_open():
        for start in range(0, flat.nbytes, _PIECE):
            file.write(in_memory(flat[start : start + _PIECE]).data)


def _ordered(array: np.ndarray, room: np.ndarray) -> Iterator[int]:
    """Put the bytes of an array in C order, piece by piece, at the start of ``room``; yield the size of each piece."""
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
    """Let the system append a part of the mapped file to ``file``; return False if it cannot and nothing was written.

    Raises FileChanged. The mapped file is opened again by its name: keeping every file of a folder open would be too
    many.
    """
    source = data.source
    if source.path is None or not sys.platform.startswith("linux"):
        return False
    descriptor = source.open()
    try:
        file.flush()
        remaining = size - os.sendfile(file.fileno(), descriptor, offset, size)
        if remaining == size:
            return False
        while remaining:
            sent = os.sendfile(file.fileno(), descriptor, offset + size - remaining, remaining)
            if not sent:
                raise _changed(source.path)
            remaining -= sent
        if identity(os.fstat(descriptor)) != source.identity:
            raise _changed(source.path)
        return True
    except (io.UnsupportedOperation, AttributeError):
        return False
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOSYS, errno.EACCES):
            return False
        raise
    finally:
        os.close(descriptor)
