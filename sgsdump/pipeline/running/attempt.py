"""Run one model once by one executor: its outputs, or one line that says why there are none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgsdump.errors import ConfigError, MissingExtra, SgsdumpError
from sgsdump.executors.base import Configs, Executor, reason_of
from sgsdump.executors.table import open_executor

if TYPE_CHECKING:
    import numpy as np
    import onnx


@dataclass(frozen=True)
class ExecutorConfigs:
    """Options for the three calls of an executor that take some."""

    init: Configs = field(default_factory=dict)
    load: Configs = field(default_factory=dict)
    execute: Configs = field(default_factory=dict)


NO_CONFIGS = ExecutorConfigs()


@dataclass(frozen=True)
class Failed:
    """Why a model did not load or run, in one line."""

    reason: str


@contextmanager
def opened(executor: str | Executor, init: Configs) -> Iterator[Executor]:
    """An executor that has just been initialised; released at the end, after a failure too."""
    if isinstance(executor, str):
        ready = open_executor(executor, init)
    else:
        ready = executor
        ready.release()
        ready.init(init)
    with ready:
        yield ready


def attempt(
    executor: Executor,
    proto: onnx.ModelProto,
    names: Sequence[str],
    feed: Mapping[str, np.ndarray],
    configs: ExecutorConfigs,
    folder: Path | None,
) -> list[Any] | Failed:
    """The named outputs of a model, or why there are none.

    Raises ConfigError and MissingExtra, which any other model would run into too.
    """
    try:
        executor.load_model(proto, configs.load, None if folder is None else str(folder))
        return list(executor.execute(names, feed, configs.execute))
    except (ConfigError, MissingExtra):
        raise
    except SgsdumpError as error:
        return Failed(str(error))
    except Exception as error:
        # A plug-in may raise anything; it costs this model, not the run.
        return Failed(f"executor {executor.name}: {reason_of(error)}")
