"""Mapped files read through a descriptor: less work for the system than mapping the pages of what is read once."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from sgsdump.files.mapped.views import FEW, MappedFile, file_of, identity

KEPT = 8
_LOCAL = threading.local()


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
