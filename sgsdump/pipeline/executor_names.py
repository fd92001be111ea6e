"""What an executor is called, where one is given by name or as an object."""

from __future__ import annotations

from sgsdump.errors import ConfigError
from sgsdump.executors.base import Executor
from sgsdump.executors.table import executors
from sgsdump.registry import hint


def called(executor: str | Executor) -> str:
    """Its name in the table of executors, or its own."""
    return executor if isinstance(executor, str) else executor.name


def class_name(executor: str | Executor) -> str:
    """The name of its class, which dump_info.json has. Raises ConfigError for an unknown executor."""
    if isinstance(executor, Executor):
        return type(executor).__name__
    if executor not in executors():
        raise ConfigError(f"unknown executor {executor!r}{hint(executor, executors())}")
    return getattr(executors()[executor], "__name__", executor)
