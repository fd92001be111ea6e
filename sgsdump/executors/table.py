"""Executors by name: the built-in ones, those that installed packages bring as plug-ins, and those of a user's file."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgsdump.errors import ConfigError, InputError, SgsdumpError, hint
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
    """Whether an executor is not sgsdump's own: of an installed package, or of a user's file."""
    return _is_of_file(name) or any(point.name == name for point in entry_points(group=ENTRY_POINTS))


def label_of(name: str) -> str:
    """The executor's name in messages and paths: of ``FILE.py:Class`` the class."""
    return name.rpartition(":")[2] if _is_of_file(name) else name


def check_executor(name: str) -> None:
    """Raises ConfigError for an unknown name, InputError for a file that is not there or lacks the class."""
    if _is_of_file(name):
        _of_file(name)
    elif name not in executors():
        raise ConfigError(f"unknown executor {name!r}{hint(name, executors())}; or FILE.py:CLASS of a file of your own")


def maker_of(name: str) -> Any:
    """The class, or the function that makes one, of a name in ``executors()`` or of ``FILE.py:Class``.

    Raises what ``check_executor`` raises, and ConfigError for a plug-in that cannot be imported.
    """
    from sgsdump.executors.base import reason_of

    check_executor(name)
    try:
        return _of_file(name) if _is_of_file(name) else executors()[name]
    except SgsdumpError:
        raise
    except Exception as error:
        raise ConfigError(f"the executor {name} cannot be imported: {reason_of(error)}") from error


def open_executor(name: str, configs: Configs | None = None) -> Executor:
    """An initialised executor, to be used in a ``with`` block.

    Raises what ``maker_of`` raises, ConfigError for what is not an Executor, and MissingExtra for one whose package is
    absent.
    """
    from sgsdump.executors.base import Executor, reason_of

    make = maker_of(name)
    try:
        executor = make()
    except SgsdumpError:
        raise
    except Exception as error:
        raise ConfigError(f"the executor {name} cannot be made: {reason_of(error)}") from error
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


def _is_of_file(name: str) -> bool:
    """``FILE.py:Class``; a path is not a name of an entry point."""
    return name.rpartition(":")[0].endswith(".py")


@cache
def _of_file(name: str) -> Any:
    """What the user's file has by that name; the file is imported once."""
    from sgsdump.files.user_module import import_file

    path, _, attribute = name.rpartition(":")
    file = Path(path)
    if not file.is_file():
        raise InputError(f"there is no executor file {file}; give FILE.py:CLASS")
    made = getattr(import_file(file, "executor"), attribute, None)
    if not callable(made):
        raise InputError(f"{file} has no class or function {attribute}, which makes an executor")
    return made
