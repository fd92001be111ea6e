"""The contract of an executor: it runs a model and gives its tensors one after another. ``executors/`` holds them.

runner = executors()["onnxruntime"](model)
for layer in runner.run({"input": array}):
    print(layer.name, layer.array.shape)
print(runner.skipped)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sgsdump.family import Family

if TYPE_CHECKING:
    import numpy as np

Progress = Callable[[int, int], None]


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
    """The table of executors: name -> a function from a Model to a Runner."""
    from sgsdump.executors import EXECUTORS

    return EXECUTORS


def whole_graphs() -> Family:
    """The table of executors that run a whole graph in one go: name -> a class to load serialised ONNX with."""
    from sgsdump.executors import WHOLE_GRAPHS

    return WHOLE_GRAPHS


def staged_graphs() -> Family:
    """The table of executors that can enter a graph half-way: name -> a class to load a ModelProto with."""
    from sgsdump.executors import STAGED_GRAPHS

    return STAGED_GRAPHS
