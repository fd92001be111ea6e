"""Keeping what a C library prints on standard error by itself from a person's terminal."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_STANDARD_ERROR = 2
_one_at_a_time = threading.Lock()


@contextmanager
def no_native_messages() -> Iterator[None]:
    """Nothing that is written to the file descriptor of standard error in the block is seen.

    For blocks that only call the library: what another thread writes in the meantime is lost too.
    """
    with _one_at_a_time:
        try:
            kept = os.dup(_STANDARD_ERROR)
        except OSError:  # standard error is closed
            yield
            return
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, _STANDARD_ERROR)
            yield
        finally:
            os.dup2(kept, _STANDARD_ERROR)
            os.close(kept)
            os.close(nowhere)
