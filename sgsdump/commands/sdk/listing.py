"""The order in which the SDK's onnx_dump_data.py lists a model's tensors; ``sgsdump dump`` keeps to the graph's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sgsdump.executors.runner import Layer, Runner
from sgsdump.progress import Advance, unwatched

if TYPE_CHECKING:
    import numpy as np


def own_outputs_first(
    runner: Runner, feed: Mapping[str, np.ndarray], outputs: Sequence[str], advance: Advance = unwatched
) -> Iterator[Layer]:
    """All layers: the model's own outputs but the first of them, the other tensors as they come, that first one.

    The script marks the tensors it wants as further outputs behind the first one, then puts that at the end. With more
    than one output the model runs twice, so that only its outputs are held in memory. Source:
    docs/formats/sigmastar.md#framework-dumps.
    """
    first, ahead = outputs[0], list(dict.fromkeys(outputs[1:]))
    found: dict[str, Layer] = {}
    for layer in runner.run(feed, only=ahead) if ahead else ():
        found[layer.name] = layer
        if len(found) == len(ahead):
            break
    yield from (found.pop(name) for name in ahead if name in found)
    last = None
    for layer in runner.run(feed, advance=advance):
        if layer.name == first:
            last = layer
        elif layer.name not in ahead:
            yield layer
    if last is not None:
        yield last
