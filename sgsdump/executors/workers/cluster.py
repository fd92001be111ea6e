"""Tasks on a running Dask cluster (see ``task_pool``).

The data that all tasks need is itself a task. Its result travels from worker to worker, once to each. If the worker
that held it dies, the scheduler computes it again. Each thread of a worker creates the work once from the data. All
data are sent, so workers need no user files. Workers and the scheduler, which reads the tasks, need the same versions
of sgsdump and of the computing packages.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
import uuid
import warnings
from asyncio import TimeoutError as AsyncTimeoutError  # another class than TimeoutError before Python 3.11
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from typing import Any

from sgsdump import __version__
from sgsdump.errors import ConfigError, MissingExtra, SgsdumpError, WorkerError
from sgsdump.progress import Progress

# Time limits for a scheduler's answer, and for a cluster without workers.
ANSWER_SECONDS = 5.0
WORKER_SECONDS = 30.0
POLL_SECONDS = 2.0
# Silence of a scheduler or worker before a message is printed, and before the scheduler or worker counts as lost.
NOTICE_SECONDS = 10.0
SILENT_SECONDS = 60.0
OURS = "sgsdump-"
# Packages whose version can change the bits of a result.
COMPUTING = ("numpy", "onnx", "onnxruntime")


@contextmanager
def on_cluster(
    make_work: Callable[..., Callable[[Any], Any]], arguments: tuple, address: str, progress: Progress
) -> Iterator[Callable[[Iterable[Any]], Iterator[Any]]]:
    """Yield the function from items to results.

    Raises MissingExtra without dask.distributed; ConfigError for a malformed address; WorkerError if nothing answers,
    if there is no worker for WORKER_SECONDS, if the scheduler is lost or its Python lacks this version of sgsdump, if a
    task kills worker after worker, and if the scheduler or a worker with our tasks is silent for SILENT_SECONDS.
    """
    with _client(address) as client:
        cluster = _Cluster(client, address, progress)
        shared = cluster.submit(Recipe, versions(), make_work, arguments)
        yield lambda items: cluster.results(shared, items)


class _Cluster:
    """A client of a cluster, and whether the cluster lost workers."""

    def __init__(self, client: Any, address: str, progress: Progress):
        self._client, self._address, self._progress = client, address, progress
        self._lost = threading.Event()
        self._noticed = False
        self._signs: dict[str, tuple[float, float]] = {}
        self._waited_for: set[str] = set()
        self._shared = ""
        self._thread_count, self._counted = 0, -POLL_SECONDS
        client.subscribe_topic("all", self._heard)

    def submit(self, function: Callable, *arguments: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # a model is large
            return self._client.submit(function, *arguments, key=f"{OURS}{uuid.uuid4().hex}", pure=False)

    def results(self, shared: Any, items: Iterable[Any]) -> Iterator[Any]:
        source = iter(items)
        waiting: deque[Any] = deque()
        self._shared = shared.key
        while True:
            more = max(0, 2 * max(1, self._threads()) - len(waiting))  # 0 after workers were lost
            waiting.extend(self.submit(do, shared, Parcel(item)) for item in islice(source, more))
            if not waiting:
                return
            result = self._result(waiting[0])
            waiting.popleft()
            if self._lost.is_set() and not self._noticed:
                self._progress.say(f"a worker of the cluster at {self._address} was lost; its tasks run again")
                self._noticed = True
            yield result

    def _result(self, future: Any) -> Any:
        self._wait(future)
        try:
            return future.result(timeout=SILENT_SECONDS)
        except SgsdumpError:
            raise
        except (AsyncTimeoutError, TimeoutError) as error:
            if future.status == "error":
                raise
            raise WorkerError(
                f"the cluster at {self._address} finished a task, but its result did not arrive "
                f"within {SILENT_SECONDS:g} s; is a machine frozen?"
            ) from error
        except CancelledError as error:
            raise WorkerError(f"the connection to the scheduler at {self._address} was lost") from error
        except Exception as error:
            raise self._explained(error) from error

    def _wait(self, future: Any) -> None:
        """Wait for a task while there are workers. Raises WorkerError if none is left or the task's is frozen."""
        done = threading.Event()
        future.add_done_callback(lambda _: done.set())
        without = 0.0
        while not done.wait(POLL_SECONDS) and not future.done():
            workers = self._workers()
            without = 0.0 if workers else without + POLL_SECONDS
            self._check_signs(workers)
            if without >= WORKER_SECONDS:
                raise WorkerError(f"the cluster at {self._address} has no workers left")

    def _explained(self, error: Exception) -> Exception:
        """Return a one-line error for failures of the cluster; the error itself if the task raised it."""
        if type(error).__name__ == "KilledWorker":
            return WorkerError(
                f"a task killed several workers of the cluster at {self._address}, possibly out of memory. "
                f"See the workers' logs."
            )
        causes = (error, error.__cause__)
        if any(isinstance(e, ImportError) and (e.name or "").partition(".")[0] == "sgsdump" for e in causes):
            return WorkerError(
                f"the cluster at {self._address} cannot import this version of sgsdump. "
                f"Install sgsdump {__version__} on the scheduler and every worker."
            )
        return error

    def _threads(self) -> int:
        """Return the thread count of all workers, asked every POLL_SECONDS: asking takes as long as a small task."""
        if time.monotonic() - self._counted >= POLL_SECONDS or self._lost.is_set():
            self._thread_count = sum(worker["nthreads"] for worker in self._workers().values())
            self._counted = time.monotonic()
        return self._thread_count

    def _workers(self) -> dict[str, Any]:
        """Return the scheduler's records of its workers, by address."""
        return self._ask(lambda scheduler: scheduler.identity)["workers"]

    def _ask(self, call: Callable[[Any], Callable[..., Any]], **arguments: Any) -> Any:
        """Return the result of a call of the scheduler. Raises WorkerError after SILENT_SECONDS without an answer."""
        began = time.monotonic()
        while True:
            try:
                return self._client.sync(call(self._client.scheduler), callback_timeout=POLL_SECONDS, **arguments)
            except (AsyncTimeoutError, TimeoutError) as error:  # noqa: PERF203
                silent = time.monotonic() - began
                if silent >= SILENT_SECONDS:
                    raise WorkerError(
                        f"the scheduler at {self._address} has not answered for {silent:.0f} s; is its machine frozen?"
                    ) from error
                if silent >= NOTICE_SECONDS:
                    self._say_waiting(f"the scheduler at {self._address}")
            except Exception as error:  # a broken connection makes Dask raise many types
                raise WorkerError(f"the connection to the scheduler at {self._address} was lost") from error

    def _check_signs(self, workers: dict[str, Any]) -> None:
        """Find workers without a sign of life. Raises WorkerError for a silent worker that has our tasks."""
        now = time.monotonic()
        for address, worker in workers.items():
            last_seen = float(worker.get("last_seen") or 0)
            if self._signs.get(address, (None,))[0] != last_seen:
                self._signs[address] = last_seen, now
        silent = {address: now - self._signs[address][1] for address in workers}
        if max(silent.values(), default=0.0) < min(NOTICE_SECONDS, SILENT_SECONDS):
            return
        busy = self._ask(lambda scheduler: scheduler.processing)
        holders = set(self._ask(lambda scheduler: scheduler.who_has, keys=[self._shared]).get(self._shared) or ())
        for address, seconds in silent.items():
            if address not in holders and not any(str(key).startswith(OURS) for key in busy.get(address) or ()):
                continue
            if seconds >= SILENT_SECONDS:
                raise WorkerError(
                    f"the worker at {address} has not answered for {seconds:.0f} s; is its machine frozen? Stop this "
                    f"worker and run the same command again."
                )
            if seconds >= NOTICE_SECONDS:
                self._say_waiting(f"the worker at {address}")

    def _say_waiting(self, what: str) -> None:
        if what not in self._waited_for:
            self._waited_for.add(what)
            self._progress.say(f"waiting for {what}, which does not answer (at most {SILENT_SECONDS:g} s)")

    def _heard(self, event: tuple[float, Any]) -> None:
        message = event[1]
        if isinstance(message, dict) and message.get("action") == "remove-worker" and not message.get("expected"):
            self._lost.set()


def versions() -> dict[str, str]:
    """Return the versions of sgsdump and of the packages that can change the bits of a result."""
    installed = {"sgsdump": __version__}
    for name in COMPUTING:
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
    return installed


class Recipe:
    """Data that tasks share, in the form that is sent; each thread creates its own work from the data."""

    def __init__(self, made_for: dict[str, str], make_work: Callable, arguments: tuple):
        self._parts = (made_for, make_work, arguments)
        self._thread = threading.local()

    def __reduce__(self) -> tuple:
        return Recipe, self._parts

    def work(self) -> Callable[[Any], Any]:
        if not hasattr(self._thread, "work"):
            made_for, make_work, arguments = self._parts
            here = versions()
            for name, expected in made_for.items():
                if here.get(name) != expected:
                    raise WorkerError(
                        f"a worker on {socket.gethostname()} has {name} {here.get(name)}, this machine has {expected}; "
                        f"results might differ. Install the same version on all machines."
                    )
            self._thread.work = make_work(*arguments)
        return self._thread.work


class Parcel:
    """Wrapper that keeps Dask from searching an item for tasks."""

    def __init__(self, item: Any):
        self.item = item


def do(recipe: Recipe, parcel: Parcel) -> Any:
    """Run one task."""
    return recipe.work()(parcel.item)


@contextmanager
def _client(address: str) -> Iterator[Any]:
    """Yield a client of the scheduler at ``address``, with at least one worker and Dask's own log switched off.

    Raises the errors of ``on_cluster``.
    """
    try:
        # Import before logging is switched off: the import sets up Dask's own logging.
        from distributed import Client
        from distributed.comm import get_address_host_port
    except ImportError as error:
        raise MissingExtra("--scheduler needs dask.distributed: pip install 'sgsdump[cluster]'") from error
    with _quiet_log():
        try:
            host, port = get_address_host_port(address, strict=True)
        except Exception as error:  # ValueError and more, by the scheme
            raise ConfigError(f"--scheduler {address!r} is not an address; give one such as tcp://host:8786") from error
        try:
            with socket.create_connection((host, port), ANSWER_SECONDS) as greeting:
                # A Dask scheduler sends first. Dask's client would wait for ever for a server that does not.
                if address.startswith("tcp://") and not greeting.recv(1):
                    raise OSError("closed")
            client = Client(address, timeout=ANSWER_SECONDS, set_as_default=False)
        except Exception as error:  # Dask raises many types if there is no scheduler
            raise WorkerError(
                f"no Dask scheduler answers at {address}. Check that it runs, has a similar version and can be reached."
            ) from error
        try:
            try:
                client.wait_for_workers(1, timeout=WORKER_SECONDS)
            except (AsyncTimeoutError, TimeoutError) as error:
                raise WorkerError(
                    f"the scheduler at {address} has no workers. Start some with: dask worker {address}"
                ) from error
            yield client
        finally:
            with suppress(Exception):
                client.unsubscribe_topic("all")
            with suppress(Exception):
                client.close(timeout=ANSWER_SECONDS)


@contextmanager
def _quiet_log() -> Iterator[None]:
    """Switch off Dask's own log of lost connections, whose tracebacks are for its developers."""
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client", "distributed.core")]
    before = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        yield
    finally:
        for logger, level in zip(loggers, before):
            logger.setLevel(level)
