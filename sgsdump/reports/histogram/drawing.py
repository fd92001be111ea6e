"""Pictures drawn beside whatever else goes on, by a thread per core.

Threads and not processes: numpy, the PNG's compression and the text let go of Python's lock, and what is left of a
picture, two milliseconds, is less than what starting processes takes for some hundred of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from sgsdump.tensors.kernels import cores


@contextmanager
def drawing(draw: Callable[..., Any]) -> Iterator[Callable[..., None]]:
    """A function that calls ``draw`` soon; the block ends when all is drawn, and raises what ``draw`` raised first."""
    futures: list[Future[Any]] = []
    pool = ThreadPoolExecutor(cores())
    try:
        yield lambda *args: futures.append(pool.submit(draw, *args))
        for future in futures:
            future.result()
    finally:
        pool.shutdown(cancel_futures=True)
