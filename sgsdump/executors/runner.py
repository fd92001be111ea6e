"""The contract of a runner, which yields every tensor of a model, one after another.

::

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
    """One output tensor of one node: ``array`` in the model's layout and dtype, ``node`` the node's name or ""."""

    name: str
    node: str
    op_type: str
    array: np.ndarray


@dataclass(frozen=True)
class Skip:
    """A tensor that cannot be returned as an array, and the reason; ``failed`` is True if its node failed."""

    name: str
    op_type: str
    reason: str
    failed: bool = False


class Runner(Protocol):
    """A model that is ready to run on many feeds, one at a time."""

    skipped: dict[str, Skip]
    """Tensors that no run has returned so far, by name."""

    def run(
        self, feed: Mapping[str, np.ndarray], only: Collection[str] | None = None, advance: Advance = unwatched
    ) -> Iterator[Layer]:
        """Yield every node output in topological order; each is freed after its last reader.

        feed      array by input name, of the declared dtype and shape (float32 is accepted for a bfloat16 input).
        only      names of the tensors to yield; None yields all.
        advance   called with (nodes done, all nodes) after each node.

        Raises InputError for a feed that does not match, ModelError for a node that fails.
        """


def with_found_scales(layers: Iterable[Layer], dynamic: Mapping[str, tuple[str, str]]) -> Iterator[Layer]:
    """Yield the layers, with the integers of each DynamicQuantizeLinear converted to floats.

    The integers wait for the scale and the zero point, which are the next two layers.

    dynamic  names of the scale and the zero point, by the name of the integer tensor.
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
