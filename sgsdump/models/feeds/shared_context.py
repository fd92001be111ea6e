"""A context that changes the whole process, for threads that are in it side by side."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Lock


class SharedContext:
    """The first thread that comes makes and enters the context, the last one that goes leaves it."""

    def __init__(self, make: Callable[[], AbstractContextManager]):
        self._make = make
        self._lock, self._inside = Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._context = self._make()
                self._context.__enter__()
            self._inside += 1

    def __exit__(self, *failure: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._context.__exit__(None, None, None)
