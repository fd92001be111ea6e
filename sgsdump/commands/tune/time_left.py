"""The time for a search, which Ctrl-C ends."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Left = Callable[[], float]


@contextmanager
def stopped_by_ctrl_c(seconds: float) -> Iterator[Left]:
    """A function that gives the seconds left: none after the first Ctrl-C or SIGTERM. The second one stops at once."""
    end = time.monotonic() + seconds
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield lambda: end - time.monotonic()
        return

    def stop(*_: object) -> None:
        stopped.set()
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: 0.0 if stopped.is_set() else end - time.monotonic()
    finally:
        restore()
