"""Map one function over many items: in this process, in processes of this machine, or on a Dask cluster.

make_work(*arguments) is called once per process and returns the function from an item to its result::

    with task_pool(make_work, (data,), Workers(processes=4)) as run:
        for result in run(items):
            ...

``make_work`` must be importable by name; ``arguments``, items and results must be picklable. Items are read on demand,
a few ahead, so memory does not grow with their number. Results come in the order of the items, so merged results have
the same bits wherever they were computed. A killed worker loses nothing: its unfinished work is done again. The first
item that fails ends everything with its own exception, after the few items in progress.

``in_threads`` stays in this process and sends nothing. It suits work that releases Python's lock (onnxruntime, numpy,
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

    processes  number of processes on this machine; 1 is the calling process.
    scheduler  address of a Dask scheduler (tcp://host:8786), whose cluster then runs all tasks.
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
    """Yield the function from items to results; workers stay ready between calls until the block ends.

    ``progress`` reports once if a worker was lost and its tasks run again.

    Raises MissingExtra for a scheduler without dask.distributed; WorkerError for a scheduler that does not answer, has
    no workers or is lost, and if tasks kill worker after worker.
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
    """Run one call of a ``task_pool``."""
    with task_pool(make_work, arguments, workers, progress) as run:
        yield from run(items)


def in_threads(work: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """Yield the results in the order of the items.

    Threads take items one at a time and in order, so creating one item overlaps with work on others. A few items are
    taken ahead, so memory does not grow with their number. The first item that fails, in this order, ends everything
    with its own exception, after the items in progress.
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
    """Callable that takes the next item and works on it; returns the item's number and its outcome."""

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
