"""One function over many items in worker processes; results come in the items' order, a few are under way at a time."""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import Any, TypeVar

from sgsdump.errors import SgsdumpError

Item = TypeVar("Item")
Result = TypeVar("Result")

# A worker process's own.
_recipe: tuple = ()
_work: Callable[[Any], Any] | None = None


def ordered_map(
    make_work: Callable[..., Callable[[Item], Result]], given: tuple, items: Iterable[Item], processes: int
) -> Iterator[Result]:
    """``make_work(*given)`` is called once in each process and what it returns for every item; all must be picklable.

    With one process everything happens in this one. The first item that fails ends it with its own exception, after
    the few that are under way. Raises SgsdumpError when a worker is killed.
    """
    if processes <= 1:
        yield from map(make_work(*given), items)
        return
    # Spawned, not forked: onnxruntime's threads do not survive a fork.
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _start, (make_work, given))
    waiting: deque[Future] = deque()
    items = iter(items)
    try:
        waiting.extend(_submit(pool, item) for item in islice(items, 2 * processes))
        while waiting:
            result = waiting.popleft().result()
            waiting.extend(_submit(pool, item) for item in islice(items, 1))
            yield result
    except BrokenProcessPool as error:
        raise SgsdumpError(
            "a worker process was killed, perhaps for want of memory; try fewer (--num_process)"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _submit(pool: ProcessPoolExecutor, item: Any) -> Future:
    """Processes start here, and inherit that Ctrl-C is held back: until ``_start`` it would print their traceback."""
    if not hasattr(signal, "pthread_sigmask"):
        return pool.submit(_do, item)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.submit(_do, item)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(make_work: Callable[..., Callable[[Any], Any]], given: tuple) -> None:
    global _recipe
    # Ctrl-C reaches every process of the terminal; the parent alone decides what becomes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _recipe = make_work, given


def _do(item: Any) -> Any:
    """Makes the work with the first item, so that what fails then reaches the parent as itself."""
    global _work
    if _work is None:
        make_work, given = _recipe
        _work = make_work(*given)
    return _work(item)
