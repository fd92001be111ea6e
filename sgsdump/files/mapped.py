"""Files mapped into memory: views of their bytes that cost nothing until read, and no memory once they are gone;
reading them through a descriptor and writing them on, without holding them.

A page that was read stays in the process's memory as long as the file is mapped. To keep one tensor at a time in a walk
over a dump larger than the memory, the pages of a view are let go when its last user is gone; reading them again is a
matter of the system's file cache.

A view dies with its file: where another program truncates the file, the next look at the view ends the process by
SIGBUS, and where it is rewritten, the view shows the new values. So what this package itself reads of a view it reads
through a descriptor (``in_memory``), which makes an error of both, and users are given copies of all but the largest
tensors. Each access compares the file with the one that was opened: device, inode, size and mtime. Within ``kept_open``
small tensors that follow each other are read in one go, and compared with the file once.
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
COPIED = 64 << 20  # bytes of a view up to which users are given a copy
FEW = 1 << 16  # bytes that are not worth a call of the system
KEPT = 8  # files that a thread keeps open
_AT_ONCE = 1 << 18  # bytes that are read of a file that is kept open, where a small part is asked for
_AROUND = 2 << 20  # the system maps up to so much around a page that is asked for
_PIECE = 8 << 20
_ORDERED = 1 << 20
_NPY = b"\x93NUMPY"
MAPPED = 8  # files that stay mapped though no view is of them
_FEW_PAGES = 1 << 20  # bytes that are read whole sooner than value by value
_LOCAL = threading.local()
_NOTHING = np.empty(0, np.uint8)
_MAPPING = threading.Lock()
_MAPPED: weakref.WeakKeyDictionary[Source, None] = weakref.WeakKeyDictionary()


class Source:
    """A file of which values are read when they are asked for: its path (None: it has no name, and nobody else can
    change it) and what identified it when it was opened.

    It is mapped again when that is needed: the system's limit of open files counts mapped ones too, so only the MAPPED
    that were mapped last stay so, besides those that a view is of.
    """

    __slots__ = ("__weakref__", "_kept", "_mapped", "_name", "identity", "key", "path")

    def __init__(self, path: Path | None, identity: tuple[int, ...]):
        self.path, self.identity = path, identity
        self._name = str(path)
        self.key = (self._name, identity)
        self._kept: MappedFile | None = None
        self._mapped: Callable[[], MappedFile | None] = lambda: None

    def check(self) -> None:
        """Raises FileChanged where the file at the path is not the one that was opened, or is not as it was."""
        if self.path is None:
            return
        try:
            now = os.stat(self._name)  # noqa: PTH116 (half the time of Path.stat; it is asked at every access)
        except OSError as error:
            raise _changed(self.path, error.strerror) from None
        if identity(now) != self.identity:
            raise _changed(self.path)

    def open(self) -> int:
        """A descriptor of the file. Raises FileChanged where it is another one by now."""
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
        """The file, mapped. Raises FileChanged."""
        files = getattr(_LOCAL, "kept", None)
        if files is None or self.path is None:
            self.check()
        elif self.key not in files:
            _kept(files, self)  # what is read of the view is read through this descriptor, and checked
        data = self._mapped()
        if data is None or data.closed:  # as by a ``with`` block that only looked at its head
            descriptor = self.open()
            try:
                data = self.map(descriptor)
            finally:
                os.close(descriptor)
        return data

    def map(self, descriptor: int) -> MappedFile:
        """Map the file that is open, and stay so for a while."""
        data = MappedFile(descriptor, 0, access=mmap.ACCESS_READ)
        data.path, data.identity, data._source = self.path, self.identity, weakref.ref(self)
        data.address = address_of(np.frombuffer(data, np.uint8))
        self.keep(data)
        return data

    def keep(self, data: MappedFile) -> None:
        """Let the file stay mapped for a while."""
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
        """Bytes of the file, read into memory. Raises FileChanged where it changed before or meanwhile."""
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
        """A small part, with what follows it where parts are asked for in their order: a call of the system costs more
        than that."""
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
        """Bytes, as of one mapped, but read into memory."""
        start, stop, _ = part.indices(len(self))
        return self.read(start, max(0, stop - start)).tobytes()


def read_into(descriptor: int, buffer: memoryview, offset: int) -> int:
    """Read what lies at ``offset`` into the buffer; returns the number of bytes, 0 at the end of the file. A descriptor
    belongs to one thread: where the system cannot read at an offset (Windows), its position moves."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [buffer], offset)
    os.lseek(descriptor, offset, os.SEEK_SET)
    data = os.read(descriptor, len(buffer))
    buffer[: len(data)] = data
    return len(data)


class _KeptFile:
    """A file that a thread keeps open, and what was read of it last, from ``start`` on."""

    __slots__ = ("bytes_read", "descriptor", "start")

    def __init__(self, descriptor: int):
        self.descriptor, self.start, self.bytes_read = descriptor, 0, _NOTHING


class MappedFile(mmap.mmap):
    """A mapping that remembers its file, and where in memory it begins. Its source keeps it, not this the source."""

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
    return Source(path, identity(os.fstat(descriptor))).map(descriptor)


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


def view(data: MappedFile | Source, dtype: np.dtype, count: int, offset: int) -> np.ndarray:
    """``count`` elements at byte ``offset``: flat, read-only, not copied. Raises ValueError beyond the end, FileChanged
    where the file is not as it was opened."""
    if isinstance(data, Source):
        data = data.data()
    else:
        data.source.check()
    array = np.frombuffer(data, dtype, count, offset)
    if LET_GO is not None and array.nbytes > FEW:
        start = offset - offset % mmap.PAGESIZE
        # Only a page table entry goes: another view of the same page finds it again, so nothing can be lost.
        end = _End(array, _let_view_go)
        end.data, end.start, end.size = data, start, offset + array.nbytes - start
        _ENDS[id(end)] = end
    return array


def in_memory(array: np.ndarray, most: float = math.inf) -> np.ndarray:
    """The array; a view of a mapped file read into memory, in the same order, where it takes no more than ``most``
    bytes. Raises FileChanged where the file is not as it was opened."""
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
    """What users are given of a view of a mapped file: a copy where it has at most COPIED bytes, else the view; within
    ``no_views`` always a copy."""
    return in_memory(array, COPIED if process.views_are_given else math.inf)


def source_of(path: Path | str) -> Source:
    """A file of which values are to be read later. Raises FormatError when there is none."""
    with reading(path):
        return Source(Path(path).absolute(), identity(Path(path).stat()))


def picked(array: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """The values at flat indices (in C order), of a large view of a mapped file read one by one."""
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
    """Where in its mapped file the first element of a view lies, and how many bytes lie between its ends."""
    reach = sum((count - 1) * abs(stride) for count, stride in zip(array.shape, array.strides))
    return address_of(array) - data.address, reach + array.itemsize


class _End(weakref.ref):
    """A view's end, and the pages that go with it; ``weakref.finalize`` does as much in five times the time."""

    __slots__ = ("data", "size", "start")
    data: MappedFile
    start: int
    size: int


_ENDS: dict[int, _End] = {}


def _let_view_go(end: _End) -> None:
    del _ENDS[id(end)]
    advise(end.data, LET_GO, end.start, end.size)


def loader(data: MappedFile, dtype: np.dtype, count: int, offset: int) -> Callable[[], np.ndarray]:
    """``view`` to be called later: the ``load`` of a Tensor whose values lie in a mapped file."""
    return partial(view, data.source, dtype, count, offset)


def let_bytes_go(data: bytes | mmap.mmap | Source, start: int, end: int) -> None:
    """Keep a part of a mapped file in memory no longer; the system's file cache has it when it is asked for again.
    Less than a page is not worth the call."""
    if isinstance(data, mmap.mmap) and end - start >= mmap.PAGESIZE:
        start, end = max(0, start - _AROUND), min(len(data), end + _AROUND)
        advise(data, LET_GO, start, end - start)


def identity(status: os.stat_result) -> tuple[int, ...]:
    """Identifies a file: device, inode, size, mtime."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _changed(path: Path | None, why: str | None = None) -> FileChanged:
    what = f"{path} has changed since it was opened{f' ({why})' if why else ''}"
    return FileChanged(f"{what}; is a run writing it? Open it again when it is whole")


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
    base: object = array.base
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
    source: Source

    def check(self) -> None:
        """Raises FileChanged where the file is not as it was opened."""
        if identity(os.fstat(self.descriptor)) != self.source.identity:
            raise _changed(self.source.path)


def opened(array: np.ndarray) -> OpenFile | None:
    """The mapped file that an array is a view of, opened to be read, which takes less time than having its pages
    mapped; within ``kept_open``. None for an array in memory. Raises FileChanged where the file is another by now."""
    data = file_of(array) if hasattr(os, "pread") else None
    if data is None or data.path is None:
        return None
    return OpenFile(_kept(_LOCAL.kept, data.source).descriptor, data.address, data.source)


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
            os.close(file.descriptor)
        del _LOCAL.kept


def _kept(files: dict[Any, _KeptFile], source: Source) -> _KeptFile:
    """A file as it is kept open, from now on the last of them."""
    file = files.pop(source.key, None)
    if file is None:
        file = _KeptFile(source.open())
        if len(files) == KEPT:
            os.close(files.pop(next(iter(files))).descriptor)
    files[source.key] = file
    return file


def write_array(file: IO[bytes], array: np.ndarray) -> None:
    """Write the bytes of an array, in C order. Of a view of a mapped file the system copies them from file to file,
    without a process's memory between, in the time of a plain copy. Where it cannot, they are written a piece at a
    time: the pages of each are filled in one go (a third faster than one by one) and let go when it is written, so that
    memory holds one piece of a tensor of any size. A transposed array is put in order a piece at a time too, small
    enough to be written from the processor's cache."""
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
    Raises FileChanged.

    The mapped file is opened again by its name: one that stays open for each file of a folder would be too many.
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
