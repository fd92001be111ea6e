"""The contracts of what runs a model; ``executors/`` holds the families.

An *executor* is one back-end behind four calls, made in this order and checked by the base class: ``init``,
``load_model``, ``execute`` (as often as wanted), ``release``. Every back-end that can be dumped or compared is one;
plug-ins are found by the entry point group ``sgsdump.executors``. As a context manager it releases itself, after a
failure too:

    with open_executor("ort") as executor:
        executor.load_model(proto)
        scores, boxes = executor.execute(["scores", "boxes"], {"input": array})

A *runner* gives every tensor of a model, one after another, in the fastest way its back-end allows:

    runner = runners()["onnxruntime"](model)
    for layer in runner.run({"input": array}):
        print(layer.name, layer.array.shape)
    print(runner.skipped)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sgsdump.errors import ConfigError
from sgsdump.family import Family

if TYPE_CHECKING:
    import numpy as np
    import onnx

Progress = Callable[[int, int], None]
Configs = Mapping[str, Any]
ENTRY_POINTS = "sgsdump.executors"


class Executor(ABC):
    """One back-end. A subclass writes ``on_init``, ``on_load``, ``on_execute``, ``on_release``; only loading and
    executing have to be.

    name  how it is called in ``--executor`` and in messages.
    """

    name = ""
    _state = "new"

    def init(self, configs: Configs | None = None) -> None:
        """Set the back-end up. Raises ConfigError for options it does not know or a package that is missing."""
        self._expect("init", "new", "released")
        self.on_init(configs or {})
        self._state = "ready"

    def load_model(self, model: onnx.ModelProto, configs: Configs | None = None, folder: str | None = None) -> None:
        """Make a model ready to run; ``folder`` is where its external data lies. Raises ModelError."""
        self._expect("load_model", "ready", "loaded")
        self.on_load(model, configs or {}, folder)
        self._state = "loaded"

    def execute(
        self, output_names: Sequence[str], feed: Mapping[str, np.ndarray], configs: Configs | None = None
    ) -> list[np.ndarray]:
        """The named outputs of the loaded model, in the order of ``output_names``. Raises ModelError, InputError."""
        self._expect("execute", "loaded")
        return self.on_execute(list(output_names), feed, configs or {})

    def release(self) -> None:
        """Let everything go; may be called in any state, and twice. ``init`` may follow."""
        if self._state not in ("new", "released"):
            self._state = "released"
            self.on_release()

    def on_init(self, configs: Configs) -> None:
        """Nothing, unless a back-end has to be set up."""
        if configs:
            raise ConfigError(f"the executor {self.name} takes no init options, got {', '.join(configs)}")

    @abstractmethod
    def on_load(self, model: onnx.ModelProto, configs: Configs, folder: str | None) -> None: ...

    @abstractmethod
    def on_execute(
        self, output_names: list[str], feed: Mapping[str, np.ndarray], configs: Configs
    ) -> list[np.ndarray]: ...

    def on_release(self) -> None:  # noqa: B027 - releasing is optional
        """Nothing, unless a back-end holds something."""

    def __enter__(self) -> Executor:
        if self._state in ("new", "released"):
            self.init()
        return self

    def __exit__(self, *failure: object) -> None:
        self.release()

    def _expect(self, call: str, *states: str) -> None:
        if self._state not in states:
            raise ConfigError(
                f"executor {self.name}: {call} comes after {' or '.join(states)}, not when it is {self._state} "
                f"(the order is init, load_model, execute, release)"
            )


@dataclass(frozen=True, eq=False)
class Layer:
    """One output tensor of one node: ``array`` in the model's own layout and dtype, ``node`` the node's name or ""."""

    name: str
    node: str
    op_type: str
    array: np.ndarray


@dataclass(frozen=True)
class Skip:
    """A tensor of the model that cannot be given as an array, and why."""

    name: str
    op_type: str
    reason: str


class Runner(Protocol):
    """A model made ready to run on many feeds, one at a time."""

    skipped: dict[str, Skip]
    """Tensors, by name, that no run gave so far."""

    def run(
        self, feed: Mapping[str, np.ndarray], only: Collection[str] | None = None, progress: Progress | None = None
    ) -> Iterator[Layer]:
        """Every node output in topological order, freed when no later node needs it.

        feed      array by input name, of the declared dtype and shape.
        only      names of the tensors to give; None gives all.
        progress  called with (nodes done, nodes in all) after each node.

        Raises InputError for a feed that does not fit, ModelError for a node that fails.
        """


def executors() -> Family:
    """The table of executors, plug-ins included: name -> an ``Executor`` class or a function that makes one."""
    from sgsdump.executors import executor_table

    return executor_table()


def open_executor(name: str, configs: Configs | None = None) -> Executor:
    """An initialised executor, to be used in a ``with`` block. Raises ConfigError for an unknown or absent one."""
    executor = executors()[name]()
    executor.init(configs)
    return executor


def runners() -> Family:
    """The table of runners: name -> a function from a Model to a Runner."""
    from sgsdump.executors import RUNNERS

    return RUNNERS


def whole_graphs() -> Family:
    """The table of executors that run a whole graph in one go: name -> a class to load serialised ONNX with."""
    from sgsdump.executors import WHOLE_GRAPHS

    return WHOLE_GRAPHS


def staged_graphs() -> Family:
    """The table of executors that can enter a graph half-way: name -> a class to load a ModelProto with."""
    from sgsdump.executors import STAGED_GRAPHS

    return STAGED_GRAPHS
