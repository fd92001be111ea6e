"""Executors by name: the built-in executors, plug-ins of installed packages, and classes in a user's file."""

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
    """Return the registry: name -> an ``Executor`` class or a factory. A plug-in may replace a built-in executor."""
    plugins = {point.name: f"{point.module}:{point.attr}" for point in entry_points(group=ENTRY_POINTS)}
    return Registry("executor", EXECUTORS | plugins)


def is_plug_in(name: str) -> bool:
    """Return whether an executor comes from an installed package or a user's file."""
    return _is_of_file(name) or any(point.name == name for point in entry_points(group=ENTRY_POINTS))


def label_of(name: str) -> str:
    """Return the executor's name in messages and paths; for ``FILE.py:Class`` the class name."""
    return name.rpartition(":")[2] if _is_of_file(name) else name


def check_executor(name: str) -> None:
    """Raise ConfigError for an unknown name, InputError for a missing file or class."""
    if _is_of_file(name):
        _of_file(name)
    elif name not in executors():
        raise ConfigError(f"unknown executor {name!r}{hint(name, executors())}; or give FILE.py:CLASS of your own file")


def maker_of(name: str) -> Any:
    """Return the class or factory behind a name in ``executors()`` or ``FILE.py:Class``.

    Raises the errors of ``check_executor``, and ConfigError for a plug-in that cannot be imported.
    """
    from sgsdump.executors.base import reason_of

    check_executor(name)
    try:
        return _of_file(name) if _is_of_file(name) else executors()[name]
    except SgsdumpError:
        raise
    except Exception as error:
        raise ConfigError(f"executor {name} cannot be imported: {reason_of(error)}") from error


def open_executor(name: str, configs: Configs | None = None) -> Executor:
    """Create and initialise an executor, for use in a ``with`` block.

    Parameters
    ----------
    name : str
        Name of a built-in executor or plug-in, or ``FILE.py:Class``.
    configs : Mapping[str, Any], optional
        Options for ``Executor.init``.

    Returns
    -------
    Executor
        The initialised executor.

    Raises
    ------
    ConfigError
        If the name is unknown, the plug-in cannot be imported or created, or the object is not an Executor.
    InputError
        If the file of ``FILE.py:Class`` is missing or lacks the class.
    MissingExtra
        If a package that the executor needs is not installed.

    Examples
    --------
    ::

        with open_executor("ort", {"optimisation": "basic"}) as executor:
            executor.load_model(onnx.load("model.onnx"))
            (scores,) = executor.execute(["scores"], {"input": array})
    """
    from sgsdump.executors.base import Executor, reason_of

    make = maker_of(name)
    try:
        executor = make()
    except SgsdumpError:
        raise
    except Exception as error:
        raise ConfigError(f"executor {name} cannot be created: {reason_of(error)}") from error
    if not isinstance(executor, Executor):
        raise ConfigError(
            f"executor {name} is a {type(executor).__name__}; it must be a subclass of sgsdump.executors.base.Executor"
        )
    executor.init(configs)
    return executor


def open_runner(
    model: Model, *, keep_sessions: bool = False, keep_going: bool = False, provider: str = "CPU"
) -> Runner:
    """Return the runner that yields every tensor of a model.

    A model that only its own framework runs gets a NativeRunner; every other model a SegmentRunner of onnxruntime, to
    which the options apply.

    Raises ConfigError for a provider that the framework lacks, and the errors of the runners.
    """
    if model.native is None:
        from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner

        return SegmentRunner(model, keep_sessions=keep_sessions, keep_going=keep_going, provider=provider)
    from sgsdump.executors.native.runner import NativeRunner

    if provider != "CPU":
        raise ConfigError(f"{model.path}: {model.native.kind} runs this model on the CPU only; omit --provider")
    return NativeRunner(model)


def _is_of_file(name: str) -> bool:
    """Return whether the name has the form ``FILE.py:Class``; an entry point name is never a path."""
    return name.rpartition(":")[0].endswith(".py")


@cache
def _of_file(name: str) -> Any:
    """Return the named object from the user's file; the file is imported once."""
    from sgsdump.files.user_module import import_file

    path, _, attribute = name.rpartition(":")
    file = Path(path)
    if not file.is_file():
        raise InputError(f"executor file {file} not found; give FILE.py:CLASS")
    made = getattr(import_file(file, "executor"), attribute, None)
    if not callable(made):
        raise InputError(f"{file} has no class or function {attribute} that returns an executor")
    return made
