"""One function over many items, here, in processes of this machine or on a Dask cluster: the same results in order.

make_work(*arguments) is called once in each process and gives the function from an item to its result:

    with task_pool(make_work, (data,), Workers(processes=4)) as run:
        for result in run(items):
            ...

``make_work`` is importable by name; ``arguments``, items and results can be pickled. Items are taken as they are
needed, a few ahead, so memory does not grow with their number. Results come in the items' order, so what is merged
from them has the same bits wherever they were made. A killed worker loses nothing: what it had not handed over is done
again. The first item that fails ends it all with its own exception, after the few that are under way.

``in_threads`` keeps to this process and sends nothing: for work that lets go of Python's lock (onnxruntime, numpy,
Pillow's decoders).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from threading import Lock
from typing import Any, TypeVar

from sgsdump.progress import SILENT, Progress

Item = TypeVar("Item")
Result = TypeVar("Result")
_END: Any = object()


@dataclass(frozen=True)
class Workers:
    """Where the tasks run.

    processes  of this machine; 1 is the caller's own.
    scheduler  address of a Dask cluster's scheduler (tcp://host:8786), which then does all of them.
    """

    processes: int = 1
    scheduler: str | None = None


ALONE = Workers()


@contextmanager
def task_pool(
    make_work: Callable[..., Callable[[Item], Result]],
    arguments: tuple[Any, ...],
    workers: Workers = ALONE,
    progress: Progress = SILENT,
) -> Iterator[Callable[[Iterable[Item]], Iterator[Result]]]:
    """The function from items to results; workers stay ready from one call to the next, until the block ends.

    ``progress`` says one line, at most once, when a worker was lost and its tasks are done again.

    Raises MissingExtra when there is a scheduler but no dask.distributed, WorkerError for a scheduler that does not
    answer, has no workers, or is lost, and when tasks kill worker after worker.
    """
    if workers.scheduler is not None:
        from sgsdump.executors.workers.cluster import on_cluster

        with on_cluster(make_work, arguments, workers.scheduler, progress) as run:
            yield run
    elif workers.processes > 1:
        from sgsdump.executors.workers.processes import in_processes

        with in_processes(make_work, arguments, workers.processes, progress) as run:
            yield run
    else:
        yield partial(map, make_work(*arguments))


def run_tasks(
    make_work: Callable[..., Callable[[Item], Result]],
    arguments: tuple[Any, ...],
    items: Iterable[Item],
    workers: Workers = ALONE,
    progress: Progress = SILENT,
) -> Iterator[Result]:
    """A ``task_pool`` for one call."""
    with task_pool(make_work, arguments, workers, progress) as run:
        yield from run(items)


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
