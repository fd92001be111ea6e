"""Tasks in threads of this process, apart from those of other processes as nothing is sent: for work that lets go of
Python's lock (onnxruntime, numpy, Pillow's decoders).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import count
from threading import Lock
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
_END: Any = object()


def in_threads(work: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """The results, in the items' order.

    An item is taken by the thread that then works on it, one at a time and in order: making it goes on beside the work
    on others. A few are taken ahead, so memory does not grow with their number. The first that fails, in this order,
    ends it all with its own exception, after those under way.
    """
    if threads == 1:
        yield from map(work, items)
        return
    take = _Taker(work, items)
    pool = ThreadPoolExecutor(threads)
    try:
        running = {pool.submit(take) for _ in range(2 * threads)}
        ended: dict[int, Future[Result]] = {}
        for number in count():
            while number not in ended:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                ended |= dict(future.result() for future in done)
            result = ended.pop(number).result()
            if result is _END:
                return
            running.add(pool.submit(take))
            yield result
    finally:
        pool.shutdown(cancel_futures=True)


class _Taker:
    """Takes the next item and works on it: the item's number, and what became of it."""

    def __init__(self, work: Callable[[Item], Result], items: Iterable[Item]):
        self._work, self._items = work, iter(items)
        self._numbers, self._lock = count(), Lock()

    def __call__(self) -> tuple[int, Future[Any]]:
        outcome: Future[Any] = Future()
        with self._lock:
            number = next(self._numbers)
            try:
                item = next(self._items, _END)
            except BaseException as error:
                outcome.set_exception(error)
                return number, outcome
        try:
            outcome.set_result(_END if item is _END else self._work(item))
        except BaseException as error:
            outcome.set_exception(error)
        return number, outcome
