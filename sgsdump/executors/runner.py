"""A runner gives every tensor of a model, one after another, in the fastest way its back-end allows.

runner = SegmentRunner(model)
for layer in runner.run({"input": array}):
    print(layer.name, layer.array.shape)
print(runner.skipped)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from sgsdump.dumps.quantised_graph import dequantised
from sgsdump.progress import Advance, unwatched


@dataclass(frozen=True, eq=False)
class Layer:
    """One output tensor of one node: ``array`` in the model's own layout and dtype, ``node`` the node's name or ""."""

    name: str
    node: str
    op_type: str
    array: np.ndarray


@dataclass(frozen=True)
class Skip:
    """A tensor of the model that cannot be given as an array, and why; ``failed``: running it went wrong."""

    name: str
    op_type: str
    reason: str
    failed: bool = False


class Runner(Protocol):
    """A model made ready to run on many feeds, one at a time."""

    skipped: dict[str, Skip]
    """Tensors, by name, that no run gave so far."""

    def run(
        self, feed: Mapping[str, np.ndarray], only: Collection[str] | None = None, advance: Advance = unwatched
    ) -> Iterator[Layer]:
        """Every node output in topological order, freed when no later node needs it.

        feed      array by input name, of the declared dtype and shape (a bfloat16 input may come as float32).
        only      names of the tensors to give; None gives all.
        advance   called with (nodes done, nodes in all) after each node.

        Raises InputError for a feed that does not fit, ModelError for a node that fails.
        """


def with_found_scales(layers: Iterable[Layer], dynamic: Mapping[str, tuple[str, str]]) -> Iterator[Layer]:
    """The layers; the codes of a DynamicQuantizeLinear wait for the two that come after them and become floats.

    dynamic  of such codes the names of their scale and zero point.
    """
    waiting: dict[str, Layer] = {}
    for layer in layers:
        waiting[layer.name] = layer
        numbers = dynamic.get(next(iter(waiting)), ())
        found = [waiting[name].array for name in numbers if name in waiting]
        if len(waiting) <= len(numbers) and len(found) < len(numbers):
            continue
        if numbers and len(found) == len(numbers):
            first = next(iter(waiting))
            waiting[first] = replace(waiting[first], array=dequantised(waiting[first].array, *found))
        yield from waiting.values()
        waiting = {}
    yield from waiting.values()
