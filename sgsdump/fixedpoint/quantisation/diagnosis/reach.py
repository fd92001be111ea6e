"""How far each tensor reaches on each picture, and what of it lies outside ranges that were calibrated before."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import OnePicture, with_followers
from sgsdump.fixedpoint.quantisation.ranges.statistics import Selection
from sgsdump.models.graph import Graph
from sgsdump.models.model import Model
from sgsdump.tensors.types import Range

LabelledFeed = tuple[str, Mapping[str, np.ndarray]]
# A range is taken to clip where values go beyond it by this part of its width.
BEYOND = 0.1


@dataclass(frozen=True, eq=False)
class Reach:
    """``low`` and ``high``, float64 [pictures, tensors]: the ends of ``names`` on each picture of ``labels``."""

    labels: tuple[str, ...]
    names: tuple[str, ...]
    low: np.ndarray
    high: np.ndarray

    @cached_property
    def ranges(self) -> dict[str, Range]:
        """What all pictures together need."""
        return self.ranges_of(range(len(self.labels)))

    def ranges_of(self, pictures: Iterable[int]) -> dict[str, Range]:
        rows = list(pictures)
        ends = zip(self.names, self.low[rows].min(axis=0), self.high[rows].max(axis=0))
        return {name: Range.of(float(low), float(high)) for name, low, high in ends}

    def beyond(self, ranges: Mapping[str, Range]) -> list[str]:
        """The tensors that go beyond these ranges by more than BEYOND of their width."""
        return [name for name, need in self.ranges.items() if name in ranges and _goes_beyond(need, ranges[name])]


def _goes_beyond(need: Range, given: Range) -> bool:
    room = BEYOND * max(given.high - given.low, 0.0)
    return need.low < given.low - room or need.high > given.high + room


def measure_reach(model: Model, feeds: Iterable[LabelledFeed], names: Collection[str], selected: Selection) -> Reach:
    """The reach of the float model's tensors ``names``, each picture run once; ``selected``: as of its calibration.
    Raises what ``OnePicture`` raises."""
    see, graph = OnePicture(model, selected), Graph(model.proto)
    labels, rows = [], []
    kept: list[str] = []
    for label, feed in feeds:
        ends = with_followers(graph, see((label, feed)).statistics.whole)
        kept = kept or [name for name in ends if name in names]
        labels.append(label)
        rows.append([(ends[name].low, ends[name].high) for name in kept])
    table = np.array(rows, np.float64).reshape(len(rows), len(kept), 2)
    return Reach(tuple(labels), tuple(kept), table[:, :, 0], table[:, :, 1])


def share_outside(
    model: Model, feeds: Iterable[LabelledFeed], ranges: Mapping[str, Range], names: Sequence[str]
) -> float:
    """The part of the values of ``names``, over these feeds, that lies outside their ranges."""
    runner, outside, count = SegmentRunner(model, keep_sessions=True), 0, 0
    for _, feed in feeds:
        fed = {name: array for name, array in feed.items() if name in names}
        layers = ((layer.name, layer.array) for layer in runner.run(feed, only=set(names)))
        for name, values in [*fed.items(), *layers]:
            bounds = ranges[name]
            outside += int(np.count_nonzero((values < bounds.low) | (values > bounds.high)))
            count += values.size
    return outside / count if count else 0.0


def with_swapped_channels(feed: Mapping[str, np.ndarray], axes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """The feed with the channels of its pictures in the opposite order; ``axes``: of these, by picture."""
    return {name: np.flip(array, axes[name]).copy() if name in axes else array for name, array in feed.items()}


def rounded_at(model: Model, name: str, step: float) -> Model:
    """The model with one tensor rounded to steps of this size, for all that read it."""
    from onnx import ModelProto, helper, numpy_helper

    proto = ModelProto()
    proto.CopyFrom(model.proto)
    graph = proto.graph
    at = 1 + max(index for index, node in enumerate(graph.node) if name in node.output)
    rounded = f"{name}/rounded"
    for node in graph.node[at:]:
        for slot, source in enumerate(node.input):
            if source == name:
                node.input[slot] = rounded
    constants = {"inverse": 1 / step, "half": 0.5, "step": step}
    for word, value in constants.items():
        graph.initializer.append(numpy_helper.from_array(np.float32(value).reshape(1)[0], f"{rounded}/{word}"))
    made = [
        helper.make_node("Mul", [name, f"{rounded}/inverse"], [f"{rounded}/scaled"]),
        helper.make_node("Add", [f"{rounded}/scaled", f"{rounded}/half"], [f"{rounded}/raised"]),
        helper.make_node("Floor", [f"{rounded}/raised"], [f"{rounded}/whole"]),
        helper.make_node("Mul", [f"{rounded}/whole", f"{rounded}/step"], [rounded]),
    ]
    nodes = [*graph.node[:at], *made, *graph.node[at:]]
    del graph.node[:]
    graph.node.extend(nodes)
    return replace(model, proto=proto)
