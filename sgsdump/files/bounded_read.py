"""Reading the path that a user or a file names: regular files only, and no more than is asked for.

What is read whole has a limit: a larger file is some other one, named by mistake.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from sgsdump.errors import ConfigError, FormatError, SgsdumpError

_CHUNK = 2**18
TEXT_LIMIT = 64 << 20


@contextmanager
def reading(path: Path | str, error: type[SgsdumpError] = FormatError, what: str = "") -> Iterator[None]:
    """Raises ``error``, "cannot read PATH: why", for an OSError in the block; ``what`` stands before the path."""
    try:
        yield
    except OSError as failure:
        raise error(f"cannot read {what}{path}: {failure.strerror or failure}") from None


def is_file(path: Path) -> bool:
    """Whether there is a file of this name; False also for a name that the system does not take, as an index of others
    may hold."""
    try:
        return path.is_file()
    except OSError:
        return False


def open_file(path: Path | str, buffering: int = -1) -> BinaryIO:
    """A regular file, open for reading. A device or a pipe, which may never end, is refused.

    A file of size 0 is given as empty without being read: what such a file of /proc gives may never end either.
    Raises OSError.
    """
    _check_regular(Path(path).stat(), path)
    # Without waiting: between the two looks it may have become a pipe.
    number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        status = os.fstat(number)
        _check_regular(status, path)
    except OSError:
        os.close(number)
        raise
    if status.st_size:
        return cast("BinaryIO", os.fdopen(number, "rb", buffering))
    os.close(number)
    return open(os.devnull, "rb")


def read_start(path: Path | str, limit: int) -> bytes:
    """The first ``limit`` bytes of a file, or all if it has fewer, without taking ``limit`` bytes of memory up front as
    ``file.read(limit)`` does. Raises OSError."""
    parts: list[bytes] = []
    with open_file(path) as file:
        while limit and (part := file.read(min(limit, _CHUNK))):
            parts.append(part)
            limit -= len(part)
    return b"".join(parts)


def read_all(path: Path | str, limit: int, kind: str) -> bytes:
    """All of a file that others wrote. Raises FormatError when it cannot be read, or has more than ``limit`` bytes and
    so is not a file of this ``kind``."""
    with reading(path):
        data = read_start(path, limit + 1)
    if len(data) > limit:
        raise FormatError(f"{path} has more than {limit >> 20} MiB, too much for {kind}")
    return data


def read_whole(path: Path | str) -> bytes:
    """All of a file, as long as it was when it was opened. Raises OSError."""
    with open_file(path) as file:
        return file.read(os.fstat(file.fileno()).st_size)


def read_bytes(path: Path, limit: int = TEXT_LIMIT) -> bytes:
    """The whole file. Raises ConfigError when it cannot be read or is larger than ``limit`` bytes."""
    with reading(path, ConfigError):
        data = read_start(path, limit + 1)
    if len(data) > limit:
        raise ConfigError(f"cannot read {path}: it is larger than {limit >> 20} MiB, so it is not the file meant here")
    return data


def decode(data: bytes, path: Path) -> str:
    """UTF-8 text; bytes that are not UTF-8 (names in another encoding) survive as surrogates, as in file names.

    Raises ConfigError for what is not text.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ConfigError(f"{path} is saved as UTF-16; save it as UTF-8 (plain text)")
    if b"\0" in data:
        raise ConfigError(f"{path} is a binary file, not text")
    return data.decode("utf-8", "surrogateescape")


def _check_regular(status: os.stat_result, path: Path | str) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder, not a file", str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is a device or a pipe; name a file", str(path))
