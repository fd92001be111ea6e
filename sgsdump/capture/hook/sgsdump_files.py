"""The files of one process below ``processes/{pid}``, as long as the disk has room and the dump may grow.

The values of a tensor are written once, in one go, from where they lie in memory: ``values/{number}.bin``. Such a file
is whole where a line of the index names it. The others (models, feeds) are written beside their place and renamed.
"""

import errno
import itertools
import os
import threading

DISK_FULL = "Disk space is not enough, it's must more than 2G, free size(MB) is:"
COPIED_AT_ONCE = 1 << 30
VALUES = "values"
MOST_REMEMBERED = 10000


class Full(Exception):
    """The disk or the dump is; with the sentence that tells it."""


class Files:
    def __init__(self, root, pid):
        self._root = root
        self._pid = pid
        self._numbers = itertools.count()
        self._folders = set()

    def store(self, fields, header, payload):
        """Write values; returns their file's path below ``processes/``. Raises Full, OSError."""
        self._room(fields, len(header) + payload.nbytes)
        number = -1
        while number < 0:
            name = f"{self._pid}/{VALUES}/{next(self._numbers)}.bin"
            path = self._place(f"processes/{name}")
            try:
                number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
            except FileExistsError:  # of an earlier process that had this number
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
        """Write a file whole, what is ``copied`` behind the chunks. Raises Full, OSError."""
        size = sum(memoryview(chunk).nbytes for chunk in chunks) + (os.fstat(copied.fileno()).st_size if copied else 0)
        self._room(fields, size)
        target = self._place(f"processes/{self._pid}/{name}")
        part = os.path.join(self._root, "processes", str(self._pid), f".part{threading.get_ident()}")
        try:
            number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)
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

    def _place(self, path):
        path = os.path.join(self._root, path)
        folder = os.path.dirname(path)
        if folder not in self._folders:
            os.makedirs(folder, mode=0o750, exist_ok=True)
            if len(self._folders) >= MOST_REMEMBERED:
                self._folders.clear()
            self._folders.add(folder)
        return path

    def _room(self, fields, size):
        least, most = fields["min_free"], fields["max_bytes"]
        if least and hasattr(os, "statvfs"):
            status = os.statvfs(self._root)
            free = status.f_bavail * status.f_frsize
            if free < least + size:
                raise Full(f"{DISK_FULL} {free >> 20}")
        if most and not self._spend(size, most):
            raise Full(f"the dump has reached its {most} bytes (--max-size); nothing more is dumped")

    def _spend(self, size, most):
        """Count bytes for all processes of the dump together."""
        import fcntl

        number = os.open(os.path.join(self._root, "processes", ".bytes"), os.O_RDWR | os.O_CREAT, 0o640)
        try:
            fcntl.flock(number, fcntl.LOCK_EX)
            spent = int(os.read(number, 30) or b"0")
            if spent + size > most:
                return False
            os.pwrite(number, b"%020d" % (spent + size), 0)
            return True
        finally:
            os.close(number)


def _write(number, *chunks):
    left = [memoryview(chunk).cast("B") for chunk in chunks if memoryview(chunk).nbytes]
    while left:
        done = os.writev(number, left) if hasattr(os, "writev") else os.write(number, left[0])
        while left and done >= left[0].nbytes:
            done -= left.pop(0).nbytes
        if done:
            left[0] = left[0][done:]


def _copied(source, target):
    """Copy a piece of a file, within the kernel where it can; returns the number of bytes, 0 at its end."""
    if hasattr(os, "copy_file_range"):
        try:
            return os.copy_file_range(source, target, COPIED_AT_ONCE)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
                raise
    data = os.read(source, 1 << 20)
    _write(target, data)
    return len(data)
