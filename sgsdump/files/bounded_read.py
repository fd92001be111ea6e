"""Bounded reading of paths named by users or files: regular files only, with a limit on the bytes read.

Files that are read completely have a size limit: a larger file was named by mistake.
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
    """Convert an OSError in the block to ``error`` with the message "cannot read PATH: REASON".

    ``what`` is put before the path.
    """
    try:
        yield
    except OSError as failure:
        raise error(f"cannot read {what}{path}: {failure.strerror or failure}") from None


def is_file(path: Path) -> bool:
    """Return whether ``path`` is a file; False also for a name that the system does not accept.

    Such names occur in the index files of other programs.
    """
    try:
        return path.is_file()
    except OSError:
        return False


def open_file(path: Path | str, buffering: int = -1) -> BinaryIO:
    """Open a regular file for reading; devices and pipes, which may never end, are refused.

    A file of size 0 is opened as empty without reading: a file in /proc has size 0 and may never end either. Raises
    OSError.
    """
    _check_regular(Path(path).stat(), path)
    # O_NONBLOCK: the path may have become a pipe since the first check.
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
    """Return the first ``limit`` bytes of a file, or all if it has fewer. Raises OSError.

    ``file.read(limit)`` would allocate ``limit`` bytes up front; this function does not.
    """
    parts: list[bytes] = []
    with open_file(path) as file:
        while limit and (part := file.read(min(limit, _CHUNK))):
            parts.append(part)
            limit -= len(part)
    return b"".join(parts)


def read_all(path: Path | str, limit: int, kind: str) -> bytes:
    """Read an untrusted file completely.

    Raises FormatError if the file cannot be read, or has more than ``limit`` bytes and so is not a file of this
    ``kind``.
    """
    with reading(path):
        data = read_start(path, limit + 1)
    if len(data) > limit:
        raise FormatError(f"{path} has more than {limit >> 20} MiB, too large for {kind}")
    return data


def read_text(path: Path | str, limit: int, kind: str) -> str:
    """Read an untrusted UTF-8 text completely. Raises FormatError as ``read_all``, and for other bytes."""
    return utf8(read_all(path, limit, kind), path)


def utf8(data: bytes, path: Path | str) -> str:
    """Decode UTF-8 text of an untrusted file. Raises FormatError for other bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise FormatError(f"{path} is damaged: it is not UTF-8 text") from None


def read_whole(path: Path | str) -> bytes:
    """Read a file completely, up to its size when it was opened. Raises OSError."""
    with open_file(path) as file:
        return file.read(os.fstat(file.fileno()).st_size)


def read_bytes(path: Path, limit: int = TEXT_LIMIT) -> bytes:
    """Read a file completely; raise ConfigError if it cannot be read or has more than ``limit`` bytes."""
    with reading(path, ConfigError):
        data = read_start(path, limit + 1)
    if len(data) > limit:
        raise ConfigError(f"cannot read {path}: larger than {limit >> 20} MiB; check that this is the right file")
    return data


def decode(data: bytes, path: Path) -> str:
    """Decode UTF-8 text; other bytes (names in another encoding) become surrogates, as in file names.

    Raises ConfigError for data that is not text.
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
