"""A connection to a Dask scheduler that is already running."""

from __future__ import annotations

import logging
import socket
from asyncio import TimeoutError as AsyncTimeoutError  # another class than TimeoutError before Python 3.11
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from sgsdump.errors import ConfigError, MissingExtra, WorkerError

ANSWER_SECONDS = 5.0
WORKER_SECONDS = 30.0


@contextmanager
def dask_client(address: str) -> Iterator[Any]:
    """A client of the scheduler at ``address``, which has a worker at least; Dask's own log is off in the block.

    Raises MissingExtra without dask.distributed, ConfigError for what is no address, and WorkerError when nothing
    answers there or no worker comes in WORKER_SECONDS.
    """
    _require_dask()
    with _quiet(), _client(address) as client:
        yield client


def _require_dask() -> None:
    try:
        import distributed  # noqa: F401  (before logging is made quiet, for it sets up its own)
    except ImportError as error:
        raise MissingExtra("--scheduler needs dask.distributed: pip install 'sgsdump[cluster]'") from error


@contextmanager
def _client(address: str) -> Iterator[Any]:
    from distributed import Client
    from distributed.comm import get_address_host_port

    try:
        host, port = get_address_host_port(address, strict=True)
    except Exception as error:  # ValueError and more, by the scheme
        raise ConfigError(f"--scheduler {address!r} is no address such as tcp://host:8786") from error
    try:
        with socket.create_connection((host, port), ANSWER_SECONDS) as greeting:
            # A Dask scheduler speaks first; its client waits for ever for what does not.
            if address.startswith("tcp://") and not greeting.recv(1):
                raise OSError("closed")
        client = Client(address, timeout=ANSWER_SECONDS, set_as_default=False)
    except Exception as error:  # what is no Dask scheduler makes Dask raise anything
        raise WorkerError(
            f"no Dask scheduler answers at {address}; is it running, of a like version, and reachable from here?"
        ) from error
    try:
        try:
            client.wait_for_workers(1, timeout=WORKER_SECONDS)
        except (AsyncTimeoutError, TimeoutError) as error:
            raise WorkerError(
                f"the scheduler at {address} has no workers; start some with: dask worker {address}"
            ) from error
        yield client
    finally:
        with suppress(Exception):
            client.unsubscribe_topic("all")
        with suppress(Exception):
            client.close(timeout=ANSWER_SECONDS)


@contextmanager
def _quiet() -> Iterator[None]:
    """Dask's own words on lost connections, with tracebacks, are for its developers; errors say it in one line."""
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client", "distributed.core")]
    before = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        yield
    finally:
        for logger, level in zip(loggers, before):
            logger.setLevel(level)
