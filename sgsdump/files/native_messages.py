"""Keeping what a C library prints by itself, on standard output or standard error, out of a person's sight."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

STANDARD_OUTPUT = 1
STANDARD_ERROR = 2
_one_at_a_time = threading.Lock()


@contextmanager
def no_native_messages(descriptor: int = STANDARD_ERROR) -> Iterator[None]:
    """Nothing that is written to the file descriptor in the block is seen.

    For blocks that only call the library: what another thread writes in the meantime is lost too.
    """
    with _one_at_a_time:
        try:
            kept = os.dup(descriptor)
        except OSError:  # it is closed
            yield
            return
        nowhere = os.open(os.devnull, os.O_WRONLY)
        _flush_c()
        try:
            os.dup2(nowhere, descriptor)
            yield
        finally:
            _flush_c()
            os.dup2(kept, descriptor)
            os.close(kept)
            os.close(nowhere)


def _flush_c() -> None:
    """Write out what C's printf holds back: into a pipe it would come out after the block. Python has its own buffers,
    which this leaves alone."""
    import ctypes

    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)
