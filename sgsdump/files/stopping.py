"""SIGTERM ends a command as Ctrl-C does: its blocks are left, so that nothing half-written stays behind."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED, TERMINATED = 130, 143


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


@contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """Raises Terminated in the block when SIGTERM comes. Does nothing outside the main thread, where no signal can be
    received, and where the caller has a handler of its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    if before is not signal.SIG_DFL:
        yield
        return

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the second one would stop the tidying up
        raise Terminated

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
