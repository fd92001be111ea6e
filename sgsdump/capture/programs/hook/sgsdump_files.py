"""Files of one process below ``processes/{pid}``, within the limits of disk and dump; reuse of stored values.

``Files`` writes, ``Store`` knows which values have a file. A tensor's values are written once, at once, from where they
lie in memory: ``values/{number}.bin``. When a line of the index names such a file, the file is complete. Other files
(models, feeds) are written beside their name and renamed. With ``links`` other than "none", values equal to earlier
ones share their file.
"""

import errno
import itertools
import os
import threading
from collections import OrderedDict

from sgsdump_records import header_of

DISK_FULL = "Disk space is not enough, it's must more than 2G, free size(MB) is:"
COPIED_AT_ONCE = 1 << 30
VALUES = "values"
MOST_FOLDERS = 10000
MOST_DIGESTS = 50000
BLOCK = 4096  # unit of disk space, in bytes
AT_ONCE = 1 << 20  # bytes of disk space that are reserved at once
BINARY = getattr(os, "O_BINARY", 0)  # without O_BINARY, Windows writes b"\n" as b"\r\n"


class Full(Exception):
    """Error: the disk or the dump is full; the text says which."""


def in_blocks(size):
    """Return the bytes on disk for a file of ``size`` bytes."""
    return -(-size // BLOCK) * BLOCK


class Files:
    """Files of one process."""

    def __init__(self, root, pid):
        self._root = root
        self._pid = pid
        self._numbers = itertools.count()
        self._folders = set()
        self._room = self._spent = 0
        self._lock = threading.Lock()

    def store(self, fields, header, payload):
        """Write values; return the file's path below ``processes/``. Raises Full, OSError."""
        self.take_room(fields, in_blocks(len(header) + payload.nbytes))
        number = -1
        while number < 0:
            name = f"{self._pid}/{VALUES}/{next(self._numbers)}.bin"
            path = self._path(f"processes/{name}")
            try:
                number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, 0o640)
            except FileExistsError:  # a file of an earlier process with this number
                continue
        try:
            _write(number, header, payload)
        except OSError:
            os.unlink(path)
            raise
        finally:
            os.close(number)
        return name

    def write(self, fields, name, chunks, copied=None):
        """Write a file whole: the chunks, then the content of ``copied``. Raises Full, OSError."""
        size = sum(memoryview(chunk).nbytes for chunk in chunks) + (os.fstat(copied.fileno()).st_size if copied else 0)
        self.take_room(fields, in_blocks(size))
        target = self._path(f"processes/{self._pid}/{name}")
        part = os.path.join(self._root, "processes", str(self._pid), f".part{threading.get_ident()}")
        try:
            number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | BINARY, 0o640)
            try:
                _write(number, *chunks)
                while copied and _copied(copied.fileno(), number):
                    pass
            finally:
                os.close(number)
            os.replace(part, target)
        except OSError:
            if os.path.lexists(part):
                os.unlink(part)
            raise

    def _path(self, path):
        path = os.path.join(self._root, path)
        folder = os.path.dirname(path)
        if folder not in self._folders:
            os.makedirs(folder, mode=0o750, exist_ok=True)
            if len(self._folders) >= MOST_FOLDERS:
                self._folders.clear()
            self._folders.add(folder)
        return path

    def take_room(self, fields, size):
        """Count bytes that will be written. Raises Full if the disk or the dump has no room for them."""
        with self._lock:
            if size <= self._room:
                self._room -= size
                return
            least, most = fields["min_free"], fields["max_bytes"]
            if least and (free := _free(self._root)) < least + size:
                raise Full(f"{DISK_FULL} {free >> 20}")
            granted = size + (min(AT_ONCE, most >> 6) if most else AT_ONCE)
            if most and not self._spend(granted - self._room, most):
                granted = size
                if not self._spend(granted - self._room, most):
                    raise Full(f"the dump has reached {most} bytes (--max-size); nothing more is dumped")
            self._room = granted - size

    def _spend(self, size, most):
        """Count bytes of all processes together; of this process alone if files cannot be locked."""
        try:
            import fcntl
        except ImportError:  # Windows
            if self._spent + size > most:
                return False
            self._spent += size
            return True
        path = self._path("processes/.bytes")
        number = os.open(path, os.O_RDWR | os.O_CREAT, 0o640)
        try:
            fcntl.flock(number, fcntl.LOCK_EX)
            spent = int(os.read(number, 30) or b"0")
            if spent + size > most:
                return False
            os.pwrite(number, b"%020d" % (spent + size), 0)
            return True
        finally:
            os.close(number)


def _free(folder):
    """Return the free bytes on the folder's disk."""
    import shutil

    return shutil.disk_usage(folder).free


def _write(number, *chunks):
    remaining = [memoryview(chunk).cast("B") for chunk in chunks if memoryview(chunk).nbytes]
    while remaining:
        done = os.writev(number, remaining) if hasattr(os, "writev") else os.write(number, remaining[0])
        while remaining and done >= remaining[0].nbytes:
            done -= remaining.pop(0).nbytes
        if done:
            remaining[0] = remaining[0][done:]


def _copied(source, target):
    """Copy a piece of a file, within the kernel if possible; return the number of bytes, 0 at its end."""
    if hasattr(os, "copy_file_range"):
        try:
            return os.copy_file_range(source, target, COPIED_AT_ONCE)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
                raise
    data = os.read(source, 1 << 20)
    _write(target, data)
    return len(data)


class Store:
    """Values that have a file; ``stop(why)`` is called if no more can be stored."""

    def __init__(self, stop):
        self._stop = stop
        self._by_digest = OrderedDict()

    def begin(self, files):
        """Use the files of this process; called again in a forked process, which keeps the knowledge of its parent."""
        self._files = files
        self._lock = threading.Lock()

    def keep(self, control, path, values, data, round=None):
        """Store values in a file, first used at ``path`` in the tree, or in a ``round``.

        Return None, or the reason why they are not stored: "" if it is reported already.
        """
        try:
            data = data() if callable(data) else data
            if data is None:
                return "its values are not available"
            payload = memoryview(data)
            if round is not None:
                values.stored = round.store(payload.cast("B") if payload.nbytes else memoryview(b""))
                return None
            if not payload.nbytes:
                return "it has no elements"
            payload = payload.cast("B")
            header = header_of(values.dtype, values.shape, payload.nbytes)
            digest = _digest(header, payload) if control["links"] != "none" else None
            stored = None if digest is None else self._by_digest.get(digest)
            if stored is None:
                stored = self._files.store(control, header, payload), path
                if digest is not None:
                    self._remember(digest, stored)
            values.stored, values.first = stored
            return None
        except Full as full:
            self._stop(str(full))
        except OSError as error:
            if error.errno == errno.EFAULT:
                return "its memory cannot be read"
            self._stop(f"{path}: {error.strerror or error}")
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def _remember(self, digest, stored):
        with self._lock:
            self._by_digest[digest] = stored
            if len(self._by_digest) > MOST_DIGESTS:
                self._by_digest.popitem(last=False)


def _digest(header, payload):
    import hashlib  # imported late: it loads OpenSSL

    state = hashlib.blake2b(header, digest_size=16)
    state.update(payload)
    return state.digest()
