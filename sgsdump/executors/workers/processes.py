"""Tasks in worker processes of this machine (see ``task_pool``)."""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sgsdump.errors import WorkerError
from sgsdump.progress import Progress

# Number of consecutive worker deaths that are tolerated.
PATIENCE = 3

# State of a worker process.
_recipe: tuple = ()
_work: Callable[[Any], Any] | None = None


@contextmanager
def in_processes(
    make_work: Callable[..., Callable[[Any], Any]], arguments: tuple, processes: int, progress: Progress
) -> Iterator[Callable[[Iterable[Any]], Iterator[Any]]]:
    """Yield the function from items to results. Raises WorkerError if processes are killed repeatedly."""
    pool = _Pool(make_work, arguments, processes, progress)
    try:
        yield pool.results
    finally:
        pool.executor.shutdown(wait=True, cancel_futures=True)


@dataclass
class _Task:
    item: Any
    future: Future | None = None

    def kept(self) -> bool:
        """Return whether the task ended by itself."""
        done = self.future is not None and self.future.done() and not self.future.cancelled()
        return done and not isinstance(self.future.exception(), BrokenProcessPool)  # type: ignore[union-attr]


class _Pool:
    """Executor that is replaced after one of its processes is killed, because the whole executor is then broken."""

    def __init__(self, make_work: Callable, arguments: tuple, processes: int, progress: Progress):
        self._start = (make_work, arguments)
        self._processes, self._progress = processes, progress
        self._noticed = False
        self.executor = self._executor()

    def results(self, items: Iterable[Any]) -> Iterator[Any]:
        source = iter(items)
        waiting: deque[_Task] = deque()
        losses = 0
        while True:
            waiting.extend(_Task(item) for item in islice(source, 2 * self._processes - len(waiting)))
            if not waiting:
                return
            try:
                for task in waiting:
                    task.future = task.future or _submit(self.executor, task.item)
                result = waiting[0].future.result()  # type: ignore[union-attr]
            except BrokenProcessPool as error:
                losses += 1
                if losses > PATIENCE:
                    raise WorkerError(
                        f"worker processes were killed {losses} times at the same task, possibly out of memory. "
                        f"Use fewer processes (--num-process)."
                    ) from error
                self._replace(waiting)
                continue
            losses = 0
            waiting.popleft()
            yield result

    def _replace(self, waiting: Iterable[_Task]) -> None:
        self.executor.shutdown(wait=True, cancel_futures=True)
        if not self._noticed:
            self._progress.say("a worker process was killed; its tasks run again")
            self._noticed = True
        self.executor = self._executor()
        for task in waiting:
            if not task.kept():
                task.future = None

    def _executor(self) -> ProcessPoolExecutor:
        # Spawned, not forked: onnxruntime's threads do not survive a fork.
        return ProcessPoolExecutor(self._processes, multiprocessing.get_context("spawn"), _start, self._start)


def _submit(pool: ProcessPoolExecutor, item: Any) -> Future:
    """Submit an item with Ctrl-C blocked.

    Processes start here and inherit the signal mask; before ``_start`` runs, Ctrl-C would print their traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):
        return pool.submit(_do, item)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.submit(_do, item)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(make_work: Callable[..., Callable[[Any], Any]], arguments: tuple) -> None:
    global _recipe
    # Ctrl-C reaches every process of the terminal; the parent alone handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _recipe = make_work, arguments


def _do(item: Any) -> Any:
    """Run the work on an item; create the work with the first item, so that its error reaches the parent unchanged."""
    global _work
    if _work is None:
        make_work, arguments = _recipe
        _work = make_work(*arguments)
    return _work(item)
