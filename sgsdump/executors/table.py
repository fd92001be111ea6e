"""Executors by name: the built-in ones, and those that installed packages bring as plug-ins."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from sgsdump.errors import ConfigError, SgsdumpError
from sgsdump.executors import ENTRY_POINTS, EXECUTORS
from sgsdump.registry import Registry

if TYPE_CHECKING:
    from sgsdump.executors.base import Configs, Executor
    from sgsdump.executors.runner import Runner
    from sgsdump.models.model import Model


def executors() -> Registry:
    """Name -> an ``Executor`` class or a function that makes one; a plug-in may replace a built-in one."""
    plugins = {point.name: f"{point.module}:{point.attr}" for point in entry_points(group=ENTRY_POINTS)}
    return Registry("executor", EXECUTORS | plugins)


def is_plug_in(name: str) -> bool:
    """Whether an executor is one that an installed package brings."""
    return any(point.name == name for point in entry_points(group=ENTRY_POINTS))


def open_executor(name: str, configs: Configs | None = None) -> Executor:
    """An initialised executor, to be used in a ``with`` block.

    Raises ConfigError for an unknown one and for a plug-in that cannot be imported or is not an Executor, MissingExtra
    for one whose package is absent.
    """
    from sgsdump.executors.base import Executor, reason_of

    try:
        executor = executors()[name]()
    except SgsdumpError:
        raise
    except Exception as error:
        raise ConfigError(f"the executor {name} cannot be imported: {reason_of(error)}") from error
    if not isinstance(executor, Executor):
        raise ConfigError(f"the executor {name} is a {type(executor).__name__}, not an sgsdump.executors.base.Executor")
    executor.init(configs)
    return executor


def open_runner(
    model: Model, *, keep_sessions: bool = False, keep_going: bool = False, provider: str = "CPU"
) -> Runner:
    """The runner that gives every tensor of a model: of one that only its own framework runs by that, else by
    onnxruntime's segments, whose options these are.

    Raises ConfigError for a provider that the framework does not have, and what the runners raise.
    """
    if model.native is None:
        from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner

        return SegmentRunner(model, keep_sessions=keep_sessions, keep_going=keep_going, provider=provider)
    from sgsdump.executors.native.runner import NativeRunner

    if provider != "CPU":
        raise ConfigError(f"{model.path} runs on the CPU, by {model.native.kind}; leave --provider out")
    return NativeRunner(model)
